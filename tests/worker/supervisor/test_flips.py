"""When flags that were asked for count as effective."""

import asyncio

import pytest

from tests.worker.supervisor.fake_engine import FakeEngine
from worker.engine.api import Effective
from worker.main.flips import Flips

RUNS = {"fused_allreduce": "fused_all", "kv_cache": "write_time_bf16"}


@pytest.mark.parametrize(
    ("asked", "is_effective"),
    [
        (RUNS, True),
        ({"fused_allreduce": "fused_all"}, True),  # as the probe of a fleet that steers one flag
        ({"fused_allreduce": "nccl"}, False),
        ({"fused_allreduce": "fused_all", "kv_cache": "recompute"}, False),
        ({"fused_allreduce": "fused_all", "unknown": "on"}, False),
    ],
)
def test_a_build_with_more_flags_than_were_asked_for_still_runs_them(
    asked: dict[str, str],
    is_effective: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """Otherwise a probe waits for ever for what is there already."""

    async def waited() -> bool:
        flips = Flips(FakeEngine())
        await flips.note_effective(Effective(generation=1, flags=RUNS, ranks=()))
        return await flips.wait_for(asked, timeout_s=0.01)

    assert asyncio.run(waited()) is is_effective


def test_before_the_first_group_nothing_is_effective() -> None:
    """Not even the empty set."""
    assert asyncio.run(Flips(FakeEngine()).wait_for({}, timeout_s=0.01)) is False
