"""Measures a shared decoder against a dedicated one: `python -m` this; prints JSON.

Never for a test: the figures depend on the machine and its other work, so the variants take turns
and only their ratio means something elsewhere. Unpaced: the ranks wait for nobody.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from worker import config
from worker.engine.api import StepParts
from worker.engine.engine import LocalEngine

_VARIANTS = ("dedicated", "shared")
_WARM_UP_CHUNKS = 5


@dataclass(slots=True)
class Tally:
    """What was seen of one variant."""

    period_ms: list[float] = field(default_factory=list)  # mean of each turn
    parts: list[StepParts] = field(default_factory=list)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=sorted(config.PRESETS), default="demo")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each variant")
    parser.add_argument("--chunks", type=int, default=60, help="chunks in a turn")
    chosen = parser.parse_args()
    worker = config.PRESETS[chosen.preset]()
    figures = asyncio.run(measured(worker, rounds=chosen.rounds, chunks=chosen.chunks))
    sys.stdout.write(json.dumps({"preset": chosen.preset, **figures}, indent=2) + "\n")


async def measured(worker: config.WorkerConfig, *, rounds: int, chunks: int) -> dict[str, Any]:
    """Medians of each variant and the ratio of their periods; one group alone."""
    engine = LocalEngine(worker)
    tallies = {variant: Tally() for variant in _VARIANTS}
    try:
        await engine.start({}, generation=0)
        for turn in range(rounds * len(_VARIANTS)):
            variant = _VARIANTS[turn % len(_VARIANTS)]
            await engine.restart({"decoder": variant}, generation=turn + 1)
            await _stream(engine, tallies[variant], chunks=chunks)
    finally:
        await engine.stop()
    figures = {variant: _figures(tally) for variant, tally in tallies.items()}
    dedicated, shared = (figures[variant]["period_ms"] for variant in _VARIANTS)
    return {"variants": figures, "shared_over_dedicated": round(shared / dedicated, 3)}


async def _stream(engine: LocalEngine, tally: Tally, *, chunks: int) -> None:
    stream = engine.chunks("measure", first_forward_length=16, seed=1)
    begun_s, num_steps = time.perf_counter(), 0
    async with contextlib.aclosing(stream):
        async for chunk in stream:
            if chunk.step < _WARM_UP_CHUNKS:
                begun_s = time.perf_counter()
                continue
            tally.parts.append(chunk.parts)
            num_steps += 1
            if num_steps == chunks:
                break
    if num_steps < chunks:
        raise SystemExit(f"the group failed: {await anext(engine.events())}")
    tally.period_ms.append((time.perf_counter() - begun_s) * 1e3 / num_steps)


def _figures(tally: Tally) -> dict[str, float]:
    values = {
        "period_ms": tally.period_ms,
        "diffusion_ms": [part.diffusion_ms for part in tally.parts],
        "exposed_ms": [part.decoder_ms + part.encode_ms for part in tally.parts],
        "hidden_ms": [part.decoder_hidden_ms + part.encode_hidden_ms for part in tally.parts],
    }
    return {name: round(statistics.median(each), 2) for name, each in values.items()}


if __name__ == "__main__":
    main()
