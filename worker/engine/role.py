"""What a freshly forked process becomes: rank 0, another rank, or the decoder. Never returns.

The one place where a process of the group catches everything: it tells the supervisor why it ends,
and ends at once, so that no other rank waits for it.
"""

import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import torch

from worker.config import WorkerConfig
from worker.decode.dedicated import DedicatedDecoder
from worker.decode.stage import DecodeStage
from worker.engine import follower, leader, limit, outlet, proof, rank_weights, reports, runtime
from worker.engine.flip import Flip
from worker.engine.outlet import Outlet
from worker.engine.wiring import Ends
from worker.model.checkpoint import Checkpoint
from worker.parallel.board import Line
from worker.parallel.channel import Channel, Message, PeerLostError


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What every process of a launch is told."""

    config: WorkerConfig
    launch: int
    flags: Mapping[str, str]  # full and allowed: the supervisor has checked
    generation: int
    checkpoint: Checkpoint | None = None  # proven; none: weights from the seed


def run(ends: Ends, start: Start) -> NoReturn:
    """Be the process that `ends` names until something ends it."""
    supervisor = Channel(ends.supervisor, peer="the supervisor")
    try:
        torch.set_num_threads(1)
        with torch.inference_mode():
            _serve(ends, start, supervisor)
    except BaseException as error:  # noqa: BLE001 - the worker's loop: told, then the process ends
        limit.lift()
        report = reports.fault(error)
        if report.kind == "rank_died":
            traceback.print_exc()
        _tell(supervisor, report)
    os._exit(1)


def _serve(ends: Ends, start: Start, supervisor: Channel) -> NoReturn:
    line = Line(ends.board, ends.index)
    line.beat()
    if ends.index == ends.num_ranks:
        _decode(ends, start, supervisor, line)
    held = rank_weights.held(ends, start.config.model, start.checkpoint, supervisor=supervisor)
    # Before the ranks meet, and before the warm-up sets the limit on what may be allocated.
    latents_go_to = _outlet(ends, start, supervisor, line) if ends.index == 0 else None
    proofs = proof.proven(start.flags, start.config, held, beat=line.beat)
    rank_weights.meet(ends)
    rank = runtime.Runtime(ends, start.config, line, held, proofs)
    rank.warm_up(start.flags)
    effective = rank.effective(start.flags, generation=start.generation, step=0)
    line.beat()
    supervisor.send(Message(kind=reports.READY, fields=reports.effective_fields(effective)))
    if latents_go_to is None:
        channel = Channel(ends.plans[0], peer="rank 0")
        follower.serve(rank, supervisor=supervisor, leader=channel, launch=start.launch)
    flags = Flip(num_ranks=ends.num_ranks, effective=dict(start.flags), generation=start.generation)
    followers = {index: Channel(end, peer=f"rank {index}") for index, end in ends.plans.items()}
    leader.Leader(
        rank,
        flags,
        supervisor=supervisor,
        followers=followers,
        outlet=latents_go_to,
        launch=start.launch,
    ).serve()


def _outlet(ends: Ends, start: Start, supervisor: Channel, line: Line) -> Outlet:
    if ends.latents:
        return outlet.Dedicated(Channel(ends.latents, peer="the decoder"))
    return outlet.Shared(DecodeStage(start.config), line, supervisor=supervisor)


def _decode(ends: Ends, start: Start, supervisor: Channel, line: Line) -> NoReturn:
    assert ends.latents, "the decoder has no channel to rank 0"
    stage = DecodeStage(start.config)
    supervisor.send(Message(kind=reports.READY))
    latents = Channel(ends.latents, peer="rank 0")
    DedicatedDecoder(stage, line, latents=latents, supervisor=supervisor).serve()


def _tell(supervisor: Channel, report: reports.FaultReport) -> None:
    try:
        supervisor.send(reports.fault_message(report))
    except PeerLostError:
        os._exit(1)
