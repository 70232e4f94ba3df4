"""The flags of the cache under a running session of real ranks."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.worker.engine.conftest import Stand, Taken
from tests.worker.engine.pictures import distance
from worker import config, flags
from worker.config import InjectedFault, Injection
from worker.engine.api import Chunk, Effective, Event, Fault, FaultKind, FlagsRefused, MemorySample
from worker.engine.engine import LocalEngine

TINY = config.tiny()
# Levels of 255, well above what was seen: 0.02 for another order of sums, 2.4 for FP8 and for the
# shorter past of a rebuild. A prompt with one more token was 5.7 away, another seed 179.
SAME = 0.3
CLOSE = 4.0

# The plainest that a running group can be asked for.
_PLAIN = {
    name: variant
    for name, variant in flags.plain().items()
    if flags.REGISTRY[name].applies is flags.Applies.STEP
}

Requests = Mapping[int, Mapping[str, str]]  # after which step what is asked for


async def _streamed(
    engine: LocalEngine, requests: Requests, *, number: int
) -> tuple[list[Chunk], list[MemorySample]]:
    """A session during which flags are asked for, and the memory after each of its steps."""
    chunks = engine.chunks("session", first_forward_length=7, seed=5)
    got, memory = [], []
    async for chunk in chunks:
        got.append(chunk)
        memory.append(await engine.memory())
        if chunk.step in requests:
            engine.request_flags(requests[chunk.step], generation=10 + chunk.step)
        if len(got) == number:
            break
    await chunks.aclose()
    return got, memory


def _asked(stand: Stand, engine: LocalEngine, wanted: Mapping[str, str], generation: int) -> Event:
    engine.request_flags(wanted, generation=generation)
    return stand.event(engine)


def _all_took(event: Event, wanted: Mapping[str, str]) -> Effective:
    """Every rank tells one digest of one step."""
    assert isinstance(event, Effective), event
    assert event.flags == flags.fallback() | dict(wanted)
    assert {rank.digest for rank in event.ranks} == {flags.digest(event.flags)}
    assert len({rank.step for rank in event.ranks}) == 1
    assert [rank.rank for rank in event.ranks] == [0, 1]
    return event


_EXACT: Requests = {
    2: {"kv_cache": "recompute"},
    7: {"kv_cache": "recompute", "pre_attention": "fused"},
    12: {"position_reset": "delta_sinks", "pre_attention": "fused"},
    17: {"kv_cache": "recompute", "position_reset": "delta_sinks"},
    22: {},
}
_ROUNDED: Requests = {
    2: {"kv_cache": "write_time_fp8"},
    9: {"kv_cache": "write_time_fp8", "position_reset": "rebuild", "pre_attention": "fused"},
    15: {"position_reset": "rebuild", "fused_allreduce": "fused_steady"},
    20: {},
}


@pytest.mark.parametrize(
    ("requests", "bound"), [(_EXACT, SAME), (_ROUNDED, CLOSE)], ids=["exact", "rounded"]
)
def test_live_flips_lose_no_chunk_and_change_no_picture(
    stand: Stand, taken: Taken, requests: Requests, bound: float
) -> None:
    """Through two resets, against the same session without a flip."""
    engine = stand.started(TINY)
    plain = stand.run(taken(engine, 30, length=7, seed=5))
    flipped, memory = stand.run(_streamed(engine, requests, number=30))
    answers = [stand.event(engine) for _ in requests]
    assert [chunk.step for chunk in flipped] == list(range(30))
    assert distance(flipped, plain) < bound
    for answer, wanted in zip(answers, requests.values(), strict=True):
        _all_took(answer, wanted)
    # What another format holds is told, and after the fallback nothing is.
    assert max(sample.flag_bytes["kv_cache"] for sample in memory) > 0
    assert memory[-1].flag_bytes == {"fused_allreduce": 0, "kv_cache": 0}
    last = answers[-1]
    assert isinstance(last, Effective)
    assert all(set(rank.flag_bytes.values()) == {0} for rank in last.ranks)


@pytest.mark.parametrize(
    "wanted",
    [
        {"kv_cache": "recompute"},
        {"kv_cache": "write_time_fp8"},
        {"position_reset": "delta_sinks"},
        {"position_reset": "rebuild"},
        {"pre_attention": "fused"},
        _PLAIN,
    ],
    ids=lambda wanted: "+".join(wanted.values()),
)
def test_an_idle_engine_takes_every_variant_and_streams_on_it(
    stand: Stand, taken: Taken, wanted: Mapping[str, str]
) -> None:
    """In two phases there and in one back."""
    engine = stand.started(TINY)
    plain = stand.run(taken(engine, 16))
    there = _all_took(_asked(stand, engine, wanted, 2), wanted)
    assert {rank.flag_bytes["kv_cache"] for rank in there.ranks} == {0}  # no session, no cache
    assert distance(stand.run(taken(engine, 16)), plain) < CLOSE
    back = _all_took(_asked(stand, engine, {}, 3), {})
    assert distance(stand.run(taken(engine, 16)), plain) == 0
    assert back.ranks[0].step > there.ranks[0].step


def test_a_worker_may_start_on_any_variant(stand: Stand, taken: Taken) -> None:
    engine = stand.engine(TINY)
    wanted = {"kv_cache": "write_time_fp8", "pre_attention": "fused"}
    _all_took(stand.run(engine.start(wanted, generation=1)), wanted)
    assert len(stand.run(taken(engine, 16))) == 16


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"kv_cache": "ring"}, "'kv_cache' has no variant 'ring'; allowed: write_time_bf16"),
        ({"position_reset": "none"}, "'position_reset' has no variant 'none'; allowed: delta_w"),
        ({"pre_attention": "Fused"}, "'pre_attention' has no variant 'Fused'; allowed: unfused"),
    ],
)
def test_an_unknown_variant_is_refused_and_nothing_changes(
    stand: Stand, taken: Taken, wanted: Mapping[str, str], sentence: str
) -> None:
    engine = stand.started(TINY)
    refused = _asked(stand, engine, wanted, 2)
    assert isinstance(refused, FlagsRefused)
    assert sentence in refused.reason
    assert len(stand.run(taken(engine, 3))) == 3


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "wanted",
    [
        {"kv_cache": "write_time_fp8"},
        {"position_reset": "delta_sinks"},
        {"pre_attention": "fused"},
        {"kv_cache": "recompute", "fused_allreduce": "fused_steady"},
    ],
    ids=lambda wanted: "+".join(wanted.values()),
)
def test_a_rank_that_cannot_prepare_leaves_every_rank_as_it_was(
    stand: Stand, taken: Taken, wanted: Mapping[str, str], rank: int
) -> None:
    """In the middle of a session, which goes on to the byte; nothing that was prepared stays."""
    fault = Injection(kind=InjectedFault.REFUSE_PREPARE, rank=rank)
    engine = stand.started(replace(TINY, faults=(fault,)))
    plain = stand.run(taken(engine, 14, length=7, seed=5))
    got, memory = stand.run(_streamed(engine, {3: wanted}, number=14))
    refused = stand.event(engine)
    assert isinstance(refused, FlagsRefused)
    assert f"rank {rank} was told not to prepare" in refused.reason
    assert [chunk.frames for chunk in got] == [chunk.frames for chunk in plain]
    assert memory[-1].flag_bytes == {"fused_allreduce": 0, "kv_cache": 0}
    # The way back to where they never left is open.
    _all_took(_asked(stand, engine, {}, 99), {})


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_flips_one_step_late_is_named(stand: Stand, rank: int) -> None:
    """The negative control: no sum fails and nothing hangs, but the ranks tell different steps."""
    fault = Injection(kind=InjectedFault.FLIP_LATE, rank=rank)
    engine = stand.started(replace(TINY, faults=(fault,)))
    got, _ = stand.run(_streamed(engine, {3: {"kv_cache": "recompute"}}, number=10_000))
    event = stand.event(engine)
    assert isinstance(event, Fault)
    assert (event.kind, event.rank) == (FaultKind.RANK_DISAGREEMENT, rank), event.detail
    assert "different flags for generation 13" in event.detail
    # Found by the reports of the two steps, and not by the watchdog: that would name a hang.
    assert len(got) < 30
    restarted = stand.run(engine.restart({}, generation=99))
    assert restarted.flags == flags.fallback()


@pytest.mark.parametrize("kv_cache", ["write_time_bf16", "write_time_fp8"])
@pytest.mark.parametrize("step", [2, 3, 6])
def test_a_latent_that_is_no_number_is_named_so_on_every_format(
    stand: Stand, taken: Taken, kv_cache: str, step: int
) -> None:
    """Also at the very step where it would set the scales of FP8, before rank 0 has looked."""
    fault = Injection(kind=InjectedFault.NAN, rank=1, session_step=step)
    engine = stand.engine(replace(TINY, faults=(fault,)))
    stand.run(engine.start({"kv_cache": kv_cache}, generation=1))
    stand.run(taken(engine, 50))
    event = stand.event(engine)
    assert isinstance(event, Fault)
    assert event.kind is FaultKind.NAN, event.detail
