"""One output product and its sum by number of tiles: `python -m` this --ranks 2 [--wide].

The ranks are processes that do nothing else; `nccl` and the numbers of tiles take turns.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows

from worker import config
from worker.config import WorkerConfig
from worker.ops.reduce import FusedSteadyReduce, ProcessGroupReduce, ReducePlace
from worker.parallel import bell, board, group, slots
from worker.parallel.bell import Bell
from worker.parallel.slots import SlotPlace

NUMBERS = (1, 2, 3, 4, 8)
ROUNDS = 6
WARM_UP_CALLS = 20
TIMEOUT_S = 20.0


def main() -> None:
    """Fork the ranks; the first prints medians in milliseconds. Exit 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--wide", action="store_true", help="five times as wide as the demo")
    parser.add_argument("--calls", type=int, default=200, help="in each of six turns")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    model = config.DEMO_MODEL
    if chosen.wide:
        model = replace(model, width=960, mlp_width=3840, rope_split=(40, 20, 20))
    worker = replace(config.demo(), model=model, num_ranks=chosen.ranks)
    rendezvous, lines = os.memfd_create("bench-rendezvous"), board.create(chosen.ranks)
    pids = [
        os.fork() or _run(place, worker, (rendezvous, lines), chosen.calls)
        for place in _places(worker)
    ]
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    sys.exit(1 if any(statuses) else 0)


def _places(worker: WorkerConfig) -> list[SlotPlace]:
    num_ranks = worker.num_ranks
    num_floats = worker.model.tokens_per_frame * worker.model.width
    memory = os.memfd_create("bench-slots")
    os.ftruncate(memory, slots.size_bytes(num_floats=num_floats, num_ranks=num_ranks))
    bells: list[dict[int, Bell]] = [{} for _ in range(num_ranks)]
    for low in range(num_ranks):
        for high in range(low + 1, num_ranks):
            bells[low][high], bells[high][low] = bell.pair()
    return [
        SlotPlace(
            memory=memory, rank=rank, num_ranks=num_ranks, bells=bells[rank], timeout_s=TIMEOUT_S
        )
        for rank in range(num_ranks)
    ]


def _run(place: SlotPlace, worker: WorkerConfig, memory: tuple[int, int], num_calls: int) -> int:
    rendezvous, lines = memory
    status = 1
    try:
        group.join(
            rendezvous=rendezvous,
            rank=place.rank,
            num_ranks=place.num_ranks,
            timeout_s=TIMEOUT_S,
        )
        line = board.Line(lines, place.rank)
        medians = _medians(ReducePlace(line=line, slots=place, config=worker), num_calls)
        if place.rank == 0:
            sys.stdout.write("".join(f"{name}: {ms:.3f} ms\n" for name, ms in medians.items()))
            sys.stdout.flush()
        status = 0
    finally:
        os._exit(status)


def _medians(place: ReducePlace, num_calls: int) -> dict[str, float]:
    model = place.config.model
    num_inputs = (model.width + model.mlp_width) // place.config.num_ranks
    joined = torch.randn(model.tokens_per_frame, num_inputs)
    weight = torch.randn(model.width, num_inputs)
    plain, fused = ProcessGroupReduce(place), FusedSteadyReduce(place)

    def in_tiles(number: int) -> None:
        fused.num_tiles = number
        fused.product(joined, weight, is_first_forward=False)

    calls: dict[str, Callable[[], object]] = {
        "without a sum": lambda: F.linear(joined, weight),
        "nccl": lambda: plain.product(joined, weight, is_first_forward=False),
    }
    for number in NUMBERS:
        calls[f"{number} tiles"] = lambda number=number: in_tiles(number)  # type: ignore[misc]  # mypy cannot infer a default of a lambda
    spent_ms: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            for _ in range(WARM_UP_CALLS):
                call()
            spent_ms[name] += [_ms(call) for _ in range(num_calls)]
    return {name: statistics.median(values) for name, values in spent_ms.items()}


def _ms(call: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    call()
    return (time.perf_counter() - begun_s) * 1e3


if __name__ == "__main__":
    main()
