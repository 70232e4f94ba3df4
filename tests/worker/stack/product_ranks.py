"""Ranks as real processes: `python -m` this NUM_RANKS SCENARIO OUT_DIR; a JSON file from each.

They are forked before anything is computed, as the worker does it, and meet over gloo and slots.
"""

import hashlib
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    import torch

from torch import Tensor

from tests.worker.stack import slot_ranks
from worker import config
from worker.ops import reduce
from worker.ops.reduce import FusedSteadyReduce, ReducePlace
from worker.parallel import board, group
from worker.parallel.channel import PeerLostError
from worker.parallel.slots import SlotExchange, SlotPlace

# Tokens, columns, inputs: the steady shape of `tiny`, then sizes that no tile divides.
SHAPES = ((13, 192, 480), (13, 191, 97), (1, 1, 1), (5, 3, 17), (12, 193, 64))
VARIANTS = ("nccl", "fused_steady", "fused_all", "fused_small_tiles")
TIMEOUT_S = 1.0  # until a dead peer is given up


def main() -> None:
    """Fork the ranks, wait for all of them, and end with what the last to fail said."""
    num_ranks, scenario, out = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    torch.set_num_threads(1)
    rendezvous = os.memfd_create("test-rendezvous")
    lines = board.create(num_ranks)
    timeout_s = TIMEOUT_S if scenario == "dies" else 20.0
    with slot_ranks.places(num_ranks, timeout_s=timeout_s) as places:
        pids = [os.fork() or _run(place, rendezvous, lines, scenario, out) for place in places]
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    sys.stdout.write(json.dumps(ended))


def _run(place: SlotPlace, rendezvous: int, lines: int, scenario: str, out: Path) -> int:
    status = 1
    try:
        group.join(
            rendezvous=rendezvous, rank=place.rank, num_ranks=place.num_ranks, timeout_s=20.0
        )
        # 26 tokens of 192 columns are what the slots of the tests hold.
        worker = config.tiny(replace(config.TINY_MODEL, first_forward_bounds=(1, 26)))
        line = board.Line(lines, place.rank)
        told = _SCENARIOS[scenario](ReducePlace(line=line, slots=place, config=worker))
        (out / f"rank{place.rank}.json").write_text(json.dumps(told))
        status = 0
    finally:
        if status:
            traceback.print_exc()
        os._exit(status)  # never back into the copy of the parent's code


def _agrees(place: ReducePlace) -> dict[str, Any]:
    """Digest of every product by each variant, and how far it is from the oracle's."""
    told: dict[str, Any] = {}
    for variant in VARIANTS:
        fast = reduce.build(variant, place)
        plain = reduce.build("nccl", place)
        for number, (num_tokens, width, num_inputs) in enumerate(SHAPES):
            generator = torch.Generator().manual_seed(100 * place.slots.rank + number)
            joined = torch.randn(num_tokens, num_inputs, generator=generator)
            weight = torch.randn(width, num_inputs, generator=generator)
            for is_first in (False, True):
                total = fast.product(joined, weight, is_first_forward=is_first)
                oracle = plain.product(joined, weight, is_first_forward=is_first)
                told[f"{variant} {number} {is_first}"] = {
                    "digest": _digest(total),
                    "has_oracle_bits": torch.equal(total, oracle),
                    "deviation": float((total - oracle).abs().max() / num_inputs**0.5),
                }
        group.least_(torch.ones(1))  # nobody gives slots back that another reads
        fast.release()
        group.least_(torch.ones(1))
    return told


def _digest(total: Tensor) -> str:
    return hashlib.sha256(
        bytes(total.contiguous().view(torch.uint8).flatten().tolist())
    ).hexdigest()


class _Dies(SlotExchange):
    """Is killed in its third call, with its first tile sent and its second computed."""

    def _send(
        self, tile: int, parts: tuple[Tensor, ...], write: Callable[[int, Tensor], object]
    ) -> None:
        if (self._num_calls, tile) == (3, 1):
            write(tile, parts[self._place.rank])
            os.kill(os.getpid(), signal.SIGKILL)
        super()._send(tile, parts, write)


def _dies(place: ReducePlace) -> dict[str, Any]:
    fast = FusedSteadyReduce(place)
    if place.slots.rank == place.slots.num_ranks - 1:
        fast._exchange = _Dies(place.slots, num_floats=13 * 192)
    joined, weight = torch.ones(13, 480), torch.ones(192, 480)
    num_products = 0
    try:
        for _ in range(100):
            fast.product(joined, weight, is_first_forward=False)
            num_products += 1
    except PeerLostError as error:
        return {"num_products": num_products, "error": str(error)}
    return {"num_products": num_products, "error": ""}


_SCENARIOS = {"agrees": _agrees, "dies": _dies}

if __name__ == "__main__":
    main()
