"""`make bench`: plays the demo, measures the code, and prints the rows of docs/benchmarks.md."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench import code

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / ".cache" / "bench.json"
DEMO_WITHIN_S = 300
RANKS = (2, 3)  # two have a core each on the machine of docs/benchmarks.md, three have to share


def main() -> None:
    """Measure, write `.cache/bench.json`, print the table; exit 1 if the demo failed."""
    RESULT.parent.mkdir(exist_ok=True)
    engines = [_engine(num_ranks) for num_ranks in RANKS]
    demo = _demo()
    measured = {"machine": _machine(), "engines": engines, "demo": demo, "code": code.sizes()}
    RESULT.write_text(json.dumps(measured, indent=2) + "\n")
    print(f"| what | figure ({measured['machine']}) |")  # noqa: T201 - a script that reports
    print("| --- | --- |")  # noqa: T201
    for what, figure in rows(measured):
        print(f"| {what} | {figure} |")  # noqa: T201
    sys.exit(0 if demo["is_as_expected"] else 1)


def rows(measured: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What docs/benchmarks.md reports, in order."""
    demo, sizes = measured["demo"], measured["code"]
    for engine in measured["engines"]:
        yield from _engine_rows(engine)
    yield "demo, all scenes", f"{demo['took_s']:.0f} s"
    yield "memory at most, all processes", f"{demo['peak_memory_bytes'] / 2**20:.0f} MiB"
    yield "healthy sessions, lowest", f"{demo['lowest_healthy_fps']:.2f} fps"
    if demo["worker_cpu_percent"] is not None:
        yield "one worker at 25 fps", f"{demo['worker_cpu_percent']:.0f} % of a core"
    for scene in demo["scenes"]:
        if scene["contained_after_s"] is not None:
            yield f"{scene['title']}: contained", f"{scene['contained_after_s']:.1f} s"
            yield f"{scene['title']}: verified", f"{scene['verified_after_s']:.1f} s"
            harmed = f"{scene['num_sessions_harmed']} of {scene['num_sessions']}"
            yield f"{scene['title']}: sessions harmed", harmed
    for package, lines in sizes["lines"].items():
        yield f"lines in {package}", f"{lines:,}"
    yield (
        f"lines of a function, median and 90th percentile of {sizes['num_functions']:,}",
        f"{sizes['function_lines_median']:g} and {sizes['function_lines_p90']:g}",
    )


def _engine_rows(engine: dict[str, Any]) -> Iterator[tuple[str, str]]:
    ratios = engine["fused_steady_over_nccl"]
    for what, key in (
        ("a step", "step_ms"),
        ("an output product and its sum", "product_and_sum_ms"),
        ("CPU of a rank a step", "rank_cpu_ms"),
    ):
        was, now = (engine["variants"][name][key] for name in ("nccl", "fused_steady"))
        figure = f"{was:.2f} and {now:.2f} ms, ratio {ratios[key]:.2f}"
        yield f"{engine['ranks']} ranks unpaced, {what}: nccl and fused_steady", figure


def _engine(num_ranks: int) -> dict[str, Any]:
    """Both variants in turns in one run, so that the ratio holds on a noisy machine."""
    ended = subprocess.run(
        [sys.executable, "-m", "worker.engine.measure", "--ranks", str(num_ranks)],
        check=True,
        capture_output=True,
        text=True,
        timeout=DEMO_WITHIN_S,
    )
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


def _demo() -> dict[str, Any]:
    summary = RESULT.with_name("demo.json")
    summary.unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, "-m", "controlplane.cli.main", "demo", "--summary", str(summary)],
        check=False,
        timeout=DEMO_WITHIN_S,
    )
    told: dict[str, Any] = json.loads(summary.read_text())
    return told


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
