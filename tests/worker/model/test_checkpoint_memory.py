"""What a rank takes of memory while it loads: its part, and a map of one file at a time."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.profiler import ProfilerActivity, profile

from tests.worker.model import folders
from tests.worker.model.folders import LARGE
from worker import shapes
from worker.config import MIB
from worker.model import checkpoint, layout

FLOAT32_BYTES = 4
NOISE_BYTES = 2 * MIB  # of the interpreter and the allocator
RANKS = (1, 2, 4, 8)


def _kept_bytes(num_ranks: int) -> int:
    products = shapes.product_parameters(LARGE) // num_ranks
    return (products + shapes.shared_parameters(LARGE)) * FLOAT32_BYTES


def _allowed_bytes(num_ranks: int) -> int:
    largest = max(e.shape[0] * e.shape[1] for e in layout.block_entries(LARGE)) * FLOAT32_BYTES
    # The kernel counts a private map of one file against the limit, though its pages are the
    # file's and are given up on demand.
    mapped = sum(e.shape[0] * e.shape[1] for e in layout.block_entries(LARGE)) * FLOAT32_BYTES
    return _kept_bytes(num_ranks) + mapped + largest + NOISE_BYTES


WITHIN = [(num_ranks, _allowed_bytes(num_ranks)) for num_ranks in RANKS]
WHOLE_IN_A_PART = (1, _allowed_bytes(4))
BELOW_A_PART = (4, _kept_bytes(4) - NOISE_BYTES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("checkpoint")
    folders.written(made, LARGE)
    return made


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[tuple[int, int], str]:
    """One process for all cases: importing torch takes longer than they do."""
    cases = [*WITHIN, WHOLE_IN_A_PART, BELOW_A_PART]
    arguments = [f"{num_ranks}:{allowed_bytes}" for num_ranks, allowed_bytes in cases]
    module = "tests.worker.model.limited_load"
    # A fixed threshold: otherwise the allocator lends to one case what it kept of the last.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(64 * 1024)}
    done = subprocess.run(
        [sys.executable, "-m", module, str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return dict(zip(cases, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("case", WITHIN, ids=[str(num_ranks) for num_ranks in RANKS])
def test_a_rank_loads_under_a_limit_of_little_more_than_its_part(
    outcomes: dict[tuple[int, int], str], case: tuple[int, int]
) -> None:
    """Three ranks of one host that each held the whole of 57 B for a moment would not start."""
    assert outcomes[case] == "loaded"


def test_the_limit_of_a_part_does_not_hold_the_whole(
    outcomes: dict[tuple[int, int], str],
) -> None:
    """So that the test above cannot pass by a limit that limits nothing."""
    assert _allowed_bytes(4) < _kept_bytes(1)
    assert outcomes[WHOLE_IN_A_PART] == "refused"


def test_what_a_part_keeps_is_its_own(outcomes: dict[tuple[int, int], str]) -> None:
    """A rank that kept views of the maps would fit below its own size."""
    assert outcomes[BELOW_A_PART] == "refused"


@pytest.mark.parametrize("num_ranks", RANKS)
def test_a_rank_allocates_what_it_keeps_and_nothing_beside(folder: Path, num_ranks: int) -> None:
    """Read from torch's own record of every allocation; maps of files stand in it by their length.

    Fusing queries, keys, values, gate and up by joining copies would take all five once more.
    """
    maps = {path.stat().st_size for path in folder.glob("*.safetensors")}
    opened = checkpoint.opened(folder, LARGE)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        held = checkpoint.load(opened, rank=0, num_ranks=num_ranks)
    changes = [
        (event.start_ns(), event.nbytes())
        for event in recorded.profiler.kineto_results.events()
        if event.name() == "[memory]" and abs(event.nbytes()) not in maps
    ]
    levels = list(itertools.accumulate(num_bytes for _, num_bytes in sorted(changes)))
    assert len(held.blocks) == LARGE.num_blocks
    assert levels[-1] == max(levels) == _kept_bytes(num_ranks)
