"""How a rank comes to its weights: its part of a proven checkpoint, or drawn from the seed.

Tells the supervisor how far it is, and waits for the other ranks without a limit of its own: the
supervisor ends a start in which nobody gets on.
"""

import time
from collections.abc import Callable

import torch

from worker.config import ModelConfig
from worker.engine import reports
from worker.engine.wiring import Ends
from worker.model import checkpoint, weights
from worker.model.checkpoint import Checkpoint
from worker.model.weights import Weights
from worker.parallel.channel import Channel, Message

PROGRESS_PERIOD_S = 2.0


def held(
    ends: Ends, model: ModelConfig, proven: Checkpoint | None, *, supervisor: Channel
) -> Weights:
    """The weights of this rank, in float32.

    Raises: CheckpointError if a file is no longer the one that was proven.
    """
    if proven is None:
        return weights.draw(model, rank=ends.index, num_ranks=ends.num_ranks)
    return checkpoint.load(
        proven,
        rank=ends.index,
        num_ranks=ends.num_ranks,
        dtype=torch.float32,  # the CPU has no fast BF16; its products are taken in float32
        on_block=_told(supervisor, num_blocks=model.num_blocks),
    )


def meet(ends: Ends) -> None:
    """Return once every rank has come here.

    Ranks load at different speeds, and a collective gives up after the group's timeout.
    Raises: PeerLostError.
    """
    channels = [Channel(end, peer=f"rank {index}") for index, end in sorted(ends.plans.items())]
    here = Message(kind="here")
    if ends.index == 0:
        for channel in channels:
            channel.receive()
        for channel in channels:
            channel.send(here)
    else:
        (leader,) = channels
        leader.send(here)
        leader.receive()


def _told(supervisor: Channel, *, num_blocks: int) -> Callable[[int], None]:
    last_s = time.monotonic()

    def on_block(block: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= PROGRESS_PERIOD_S:
            last_s = now_s
            fields = {"block": block, "num_blocks": num_blocks}
            supervisor.send(Message(kind=reports.LOADING, fields=fields))

    return on_block
