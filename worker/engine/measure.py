"""Measures the fast path against the fallback in one run: `python -m` this; prints JSON.

For `make bench`, never for a test: the figures depend on the machine and its other work, so the
variants take turns and only their ratio means something elsewhere.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from worker import config
from worker.config import FRAMES_PER_CHUNK
from worker.engine.api import Effective
from worker.engine.engine import LocalEngine

_VARIANTS = ("nccl", "fused_steady")
_WARM_UP_CHUNKS = 5


@dataclass(slots=True)
class Tally:
    """What was seen of one variant."""

    step_ms: list[float] = field(default_factory=list)
    reduce_ms: list[float] = field(default_factory=list)
    frames_per_s: list[float] = field(default_factory=list)
    rank_cpu_ms: list[float] = field(default_factory=list)  # of rank 0, a step


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=sorted(config.PRESETS), default="demo")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each variant")
    parser.add_argument("--chunks", type=int, default=100, help="chunks in a turn")
    parser.add_argument("--ranks", type=int, default=2, help="processes that share the model")
    chosen = parser.parse_args()
    worker = replace(config.PRESETS[chosen.preset](), num_ranks=chosen.ranks)
    figures = asyncio.run(measured(worker, rounds=chosen.rounds, chunks=chosen.chunks))
    told = {"preset": chosen.preset, "ranks": chosen.ranks, **figures}
    sys.stdout.write(json.dumps(told, indent=2) + "\n")


async def measured(worker: config.WorkerConfig, *, rounds: int, chunks: int) -> dict[str, Any]:
    """Medians of each variant and their ratios; unpaced, one group alone."""
    engine = LocalEngine(worker)
    tallies = {variant: Tally() for variant in _VARIANTS}
    begun_s = time.perf_counter()
    try:
        await engine.start({}, generation=0)
        ready_s = time.perf_counter() - begun_s
        for turn in range(rounds * len(_VARIANTS)):
            variant = _VARIANTS[turn % len(_VARIANTS)]
            await _flip(engine, variant, generation=turn + 1)
            await _stream(engine, tallies[variant], chunks=chunks)
        restarted_s = time.perf_counter()
        await engine.restart({}, generation=len(_VARIANTS) * rounds + 1)
        restart_s = time.perf_counter() - restarted_s
    finally:
        await engine.stop()
    calls = worker.model.num_blocks * worker.model.num_passes
    figures = {variant: _figures(tally, calls) for variant, tally in tallies.items()}
    slow, fast = (figures[variant] for variant in _VARIANTS)
    return {
        "ready_s": round(ready_s, 2),
        "restart_s": round(restart_s, 3),
        "products_a_step": calls,
        "variants": figures,
        "fused_steady_over_nccl": {
            key: round(fast[key] / slow[key], 3)
            for key in ("step_ms", "product_and_sum_ms", "fps", "rank_cpu_ms")
        },
    }


async def _flip(engine: LocalEngine, variant: str, *, generation: int) -> None:
    engine.request_flags({"fused_allreduce": variant}, generation=generation)
    answer = await anext(engine.events())
    if not isinstance(answer, Effective):
        raise SystemExit(f"the engine did not take {variant}: {answer}")


async def _stream(engine: LocalEngine, tally: Tally, *, chunks: int) -> None:
    stream = engine.chunks("measure", first_forward_length=16, seed=1)
    begun_s, num_frames = time.perf_counter(), 0
    rank = engine.pids()["rank0"]
    cpu_s = _cpu_s(rank)
    async with contextlib.aclosing(stream):
        async for chunk in stream:
            if chunk.step < _WARM_UP_CHUNKS:
                begun_s = time.perf_counter()
                continue
            tally.step_ms.append(chunk.parts.diffusion_ms)
            tally.reduce_ms.append(chunk.parts.reduce_ms)
            num_frames += FRAMES_PER_CHUNK
            if chunk.step >= chunks:
                break
    if engine.pids().get("rank0") != rank:
        raise SystemExit(f"the group failed: {await anext(engine.events())}")
    tally.frames_per_s.append(num_frames / (time.perf_counter() - begun_s))
    tally.rank_cpu_ms.append((_cpu_s(rank) - cpu_s) * 1e3 / (chunks + 1))


def _figures(tally: Tally, calls: int) -> dict[str, float]:
    return {
        "step_ms": round(statistics.median(tally.step_ms), 2),
        # Of one block: a fused kernel cannot tell the output product from its sum over the ranks.
        "product_and_sum_ms": round(statistics.median(tally.reduce_ms) / calls, 4),
        "fps": round(statistics.median(tally.frames_per_s), 1),
        "rank_cpu_ms": round(statistics.median(tally.rank_cpu_ms), 2),
    }


def _cpu_s(pid: int) -> float:
    """Processor time of a process so far: what a step costs however busy the machine is."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
