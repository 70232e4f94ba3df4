"""`make bench-decision`: the rule of rollback and its peers on the same streams, and their score.

Writes `.cache/bench-decision.json` and a chart beside it, prints the tables of docs/benchmarks.md,
and ends with 1 if our rule does not qualify or two ways of deciding one stream differ.
"""

import argparse
import json
import os
import platform
import sys
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from tests.bench.decision import chart, horizon, promotion, report, score
from tests.bench.decision.streams import SCENARIOS

ROOT = Path(__file__).resolve().parents[3]
RESULT = ROOT / ".cache" / "bench-decision.json"


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=4000, help="streams of each scenario")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--chart", type=Path, default=RESULT.with_suffix(".svg"))
    asked = parser.parse_args()
    result = measured(num_streams=asked.reps, num_jobs=asked.jobs)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    title = "Harmed sessions until rollback, and healthy canaries rolled back"
    caption = f"{asked.reps:,} streams of each scenario; green: qualifies (1 % in every world)."
    asked.chart.write_text(chart.drawn(report.points(result), title=title, caption=caption))
    _say(*report.lines(result), f"{result['took_s']:.0f} s on {result['machine']}")
    wrong = list(report.problems(result))
    _say(*(f"WRONG: {problem}" for problem in wrong))
    sys.exit(1 if wrong else 0)


def measured(*, num_streams: int, num_jobs: int) -> dict[str, Any]:
    """Everything, as JSON has it."""
    began = monotonic()
    # Half as many as elsewhere: each is twenty times as long.
    num_chunks = max(1, num_streams // 2 // horizon.CHUNK)
    with ProcessPoolExecutor(num_jobs) as pool:
        scenarios = {
            name: pool.submit(score.measured, name, num_streams=num_streams) for name in SCENARIOS
        }
        promoted = pool.submit(_promotion, num_streams)
        chunks = {
            world: [
                pool.submit(horizon.num_rolled_back, world, chunk=chunk)
                for chunk in range(num_chunks)
            ]
            for world in horizon.WORLDS
        }
        waited: list[Future[Any]] = [promoted, *scenarios.values()]
        waited += [future for futures in chunks.values() for future in futures]
        _watch(waited, began=began)
        return {
            "machine": _machine(),
            "reps": num_streams,
            "scenarios": {name: future.result() for name, future in scenarios.items()},
            "promotion": promoted.result(),
            "horizon": {world: _added(futures) for world, futures in chunks.items()},
            "took_s": monotonic() - began,
        }


def _promotion(num_streams: int) -> list[dict[str, float]]:
    return [asdict(one) for one in promotion.measured(num_streams)]


def _added(futures: list[Future[tuple[list[int], int]]]) -> tuple[list[int], int]:
    told = [future.result() for future in futures]
    by_horizon = np.sum([nums for nums, _ in told], axis=0)
    return [int(num) for num in by_horizon], sum(num for _, num in told)


def _watch(futures: list[Future[Any]], *, began: float) -> None:
    """Say how far it is, a line a tenth."""
    tell_at = iter(range(1, 11))
    tenth = next(tell_at)
    for num_done, _ in enumerate(as_completed(futures), start=1):
        while num_done >= tenth * len(futures) / 10:
            sys.stderr.write(f"{10 * tenth} % of the parts after {monotonic() - began:.0f} s\n")
            tenth = next(tell_at, 11)


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()},"
        f" numpy {np.__version__}"
    )


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
