"""The kernel that keeps a buffer for every length: grows, runs out, can be rolled back."""

from dataclasses import replace

import pytest

from tests.worker.engine.conftest import Stand, Taken
from worker import config, flags
from worker.config import MIB
from worker.engine.api import Chunk, Effective, Fault, FaultKind
from worker.engine.engine import LocalEngine

TINY = config.tiny()
_GRANULE = TINY.fused_all_granule_bytes


async def _sessions(engine: LocalEngine, taken: Taken, lengths: range) -> list[list[Chunk]]:
    return [await taken(engine, 2, length=length) for length in lengths]


def test_it_keeps_a_buffer_for_each_distinct_length_and_accounts_for_it(
    stand: Stand, taken: Taken
) -> None:
    """By flag and by length, summed over both ranks; a length seen before costs nothing."""
    engine = stand.started(TINY, "fused_all")
    empty = stand.run(engine.memory())
    for _ in range(2):
        stand.run(_sessions(engine, taken, range(1, 4)))
    grown = stand.run(engine.memory())
    assert empty.retained_by_length == {}
    assert grown.retained_by_length == dict.fromkeys((1, 2, 3), 2 * _GRANULE)
    retained = grown.flag_bytes["fused_allreduce"] - empty.flag_bytes["fused_allreduce"]
    assert retained == 6 * _GRANULE
    # The pages are touched: the growth is real, whatever else the allocator did.
    assert grown.resident_bytes - empty.resident_bytes > 5 * _GRANULE


@pytest.mark.parametrize("variant", ["nccl", "fused_steady"])
def test_the_other_variants_keep_nothing_for_a_length(
    stand: Stand, taken: Taken, variant: str
) -> None:
    """Nothing retained, and no growth of the flag."""
    engine = stand.started(TINY, variant)
    before = stand.run(engine.memory())
    stand.run(_sessions(engine, taken, range(1, 9)))
    after = stand.run(engine.memory())
    assert after.retained_by_length == {}
    assert after.flag_bytes == before.flag_bytes


def test_a_flip_to_the_fallback_frees_every_buffer(stand: Stand, taken: Taken) -> None:
    """A rollback is verified when the flag's own accounting is zero; the pages are given back."""
    engine = stand.started(TINY, "fused_all")
    stand.run(_sessions(engine, taken, range(1, 6)))
    grown = stand.run(engine.memory())
    effective = stand.flipped(engine, "nccl", generation=2)
    freed = stand.run(engine.memory())
    assert isinstance(effective, Effective)
    assert {rank.flag_bytes["fused_allreduce"] for rank in effective.ranks} == {0}
    assert (freed.flag_bytes, freed.retained_by_length) == (
        {"fused_allreduce": 0, "kv_cache": 0},
        {},
    )
    assert grown.resident_bytes - freed.resident_bytes > 8 * _GRANULE
    assert len(stand.run(taken(engine, 3, length=7))) == 3


def test_it_really_runs_out_of_memory_and_the_fallback_does_not(stand: Stand, taken: Taken) -> None:
    """The operating system refuses the pages; the same lengths then run on the fallback."""
    engine = stand.started(replace(TINY, memory_headroom_bytes=24 * MIB), "fused_all")
    limit = stand.run(engine.memory()).limit_bytes
    assert limit is not None
    done = stand.run(_sessions(engine, taken, range(1, 12)))
    fault = stand.event(engine)
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.OUT_OF_MEMORY
    assert fault.rank in {0, 1}
    assert "allocate memory" in fault.detail
    assert fault.flags == flags.fallback() | {"fused_allreduce": "fused_all"}
    # Several lengths fit and the last do not: it is growth that kills, not one large request.
    assert len(done[0]) == len(done[1]) == 2
    assert done[-1] == []
    stand.run(engine.restart({}, generation=2))
    assert all(len(chunks) == 2 for chunks in stand.run(_sessions(engine, taken, range(1, 12))))
