"""`execution` in real processes: compiled and proven at the start, and never in a session."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.worker.engine.conftest import Stand, Taken
from worker import config
from worker.engine.api import Effective, FlagsRefused
from worker.engine.engine import EngineStartError, LocalEngine

# Traced, not compiled: what is wrong shows all the same, without the compiler's seconds.
TRACED = replace(
    config.tiny(config.TINY_EDGE_MODEL), compile_backend="aot_eager", has_demo_variants=False
)
COMPILED = {"execution": "compiled"}
# `entered`, `left`, and `fused` into float32 and into e4m3; the same on every rank.
_GRAPHS = 4
# Two resets of the positions, with flips on both sides.
_STEPS = 12
_PATIENCE_S = 240.0
_FLIPS = (
    {"pre_attention": "fused"},
    {"kv_cache": "write_time_fp8"},
    {"kv_cache": "recompute", "fused_allreduce": "fused_steady"},
    {"kv_cache": "write_time_bf16", "pre_attention": "fused"},
)


def _started(stand: Stand, flags: dict[str, str], settings: config.WorkerConfig) -> LocalEngine:
    engine = stand.engine(settings)

    async def start() -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await engine.start(flags, generation=1)

    stand.loop.run_until_complete(start())
    return engine


def _graphs(stand: Stand, engine: LocalEngine) -> int:
    return stand.run(engine.memory()).num_graphs


@pytest.mark.parametrize(
    "num_ranks", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3))]
)
def test_a_compiled_group_streams_what_an_eager_one_streams(
    stand: Stand, taken: Taken, num_ranks: int
) -> None:
    """Picture by picture, with as many graphs after sessions and flips as after the start."""
    settings = replace(TRACED, num_ranks=num_ranks)
    engine = _started(stand, COMPILED, settings)
    assert _graphs(stand, engine) == _GRAPHS
    plain = _started(stand, {}, settings)
    for number, flip in enumerate(({}, *_FLIPS), start=2):
        for each, flags in ((engine, {**COMPILED, **flip}), (plain, flip)):
            each.request_flags(flags, generation=number)
            assert isinstance(stand.event(each), Effective)
        streams = [stand.run(taken(each, _STEPS, length=3 + number)) for each in (engine, plain)]
        frames = [[chunk.frames for chunk in stream] for stream in streams]
        assert frames[0] == frames[1]
        assert len(frames[0]) == _STEPS
    assert _graphs(stand, engine) == _GRAPHS
    assert _graphs(stand, plain) == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"execution": "graphs"}, "'graphs' records CUDA graphs and needs a CUDA device"),
        (
            {**COMPILED, "pre_attention": "fused_undeclared"},
            "cannot prepare pre_attention 'fused_undeclared': compiled fused_undeclared",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_at_the_start_by_name(
    stand: Stand, flags: dict[str, str], sentence: str
) -> None:
    with pytest.raises(EngineStartError, match=sentence):
        _started(stand, flags, replace(TRACED, num_ranks=1, has_demo_variants=True))


def test_the_faults_that_only_a_compiler_shows_are_refused_by_a_compiled_group_alone(
    stand: Stand, taken: Taken
) -> None:
    """An eager fleet would promote them. The stream goes on in the form that it had."""
    settings = replace(TRACED, num_ranks=1, has_demo_variants=True)
    engine = _started(stand, COMPILED, settings)
    plain = _started(stand, {}, settings)
    sentences = {
        "fused_undeclared": "is off by",
        "fused_counting": "graphs by step",
    }
    plain.request_flags(COMPILED, generation=2)
    stays = stand.event(plain)
    assert isinstance(stays, FlagsRefused)
    assert "'execution' applies at a restart: 'eager' stays" in stays.reason
    for number, (form, sentence) in enumerate(sentences.items(), start=3):
        engine.request_flags({**COMPILED, "pre_attention": form}, generation=number)
        refused = stand.event(engine)
        assert isinstance(refused, FlagsRefused)
        assert f"rank 0: cannot prepare pre_attention {form!r}: compiled" in refused.reason
        assert sentence in refused.reason
        plain.request_flags({"pre_attention": form}, generation=number)
        assert isinstance(stand.event(plain), Effective)
    assert len(stand.run(taken(engine, _STEPS))) == _STEPS


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_a_compiler_writes_into_its_folder_alone_and_the_next_start_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a server of its own, as a worker has. Both ranks share the folder."""
    temporary, folder = tmp_path / "tmp", tmp_path / "compiler"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    settings = replace(TRACED, compile_backend="inductor", compiler_folder=str(folder), num_ranks=2)

    async def life() -> int:
        engine = LocalEngine(settings)
        await engine.start({**COMPILED, "pre_attention": "fused"}, generation=1)
        stream = engine.chunks("compiled", first_forward_length=5, seed=1)
        for _ in range(_STEPS):
            await anext(stream)
        await stream.aclose()
        num_graphs = (await engine.memory()).num_graphs
        await engine.stop()
        return num_graphs

    assert asyncio.run(life()) == _GRAPHS
    compiled = sorted(folder.rglob("*.so"))
    assert compiled
    assert asyncio.run(life()) == _GRAPHS
    assert sorted(folder.rglob("*.so")) == compiled
    assert list(temporary.iterdir()) == []
