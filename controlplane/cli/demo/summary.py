"""The demo's result: a table for a person, JSON for `make bench`."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from controlplane.cli import output
from controlplane.cli.demo.story import SceneResult, fps_text

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All scenes, and what they took."""

    scenes: tuple[SceneResult, ...]
    num_scenes: int  # that there are; fewer were played if one failed
    took_s: float
    peak_memory_bytes: int
    lowest_healthy_fps: float | None
    num_sessions: int
    worker_cpu_percent: float | None  # of one core, mean over the workers while all ran

    @property
    def is_as_expected(self) -> bool:
        """Whether every scene was played and ended as it must."""
        return len(self.scenes) == self.num_scenes and all(
            scene.is_as_expected for scene in self.scenes
        )

    def as_json(self) -> dict[str, Any]:
        """The summary as JSON values; durations in seconds."""
        return {**asdict(self), "is_as_expected": self.is_as_expected}


def write(summary: Summary) -> None:
    """The summary for a person, on stdout."""
    output.write_line()
    output.write_table(
        ("scene", "ended", "contained", "verified", "harmed", "healthy fps"),
        [_row(scene) for scene in summary.scenes],
        empty="no scene was played",
    )
    output.write_line()
    for scene in summary.scenes:
        output.write_line(f"{scene.title}: {scene.reason}")
        for problem in scene.problems:
            output.write_line(f"  otherwise than it must: {problem}", style="bold red")
    output.write_line(
        f"\n{summary.took_s:.0f} s, {summary.num_sessions} sessions,"
        f" at most {summary.peak_memory_bytes // _MIB} MiB of memory,"
        f" lowest healthy session {fps_text(summary.lowest_healthy_fps)} fps"
    )
    if not summary.is_as_expected and (busy := _busy_text()):
        output.write_line(busy)
    output.write_line(_closing(summary.scenes, is_as_expected=summary.is_as_expected), style="bold")


def _closing(scenes: Sequence[SceneResult], *, is_as_expected: bool) -> str:
    if is_as_expected:
        return f"all {len(scenes)} scenes ended as they must"
    return "the demo FAILED: not every scene ended as it must"


def _busy_text() -> str:
    """What may be behind frames that came late, if the machine has more to do than the demo."""
    load, num_cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= num_cores:
        return ""
    return (
        f"the machine is busy (load {load:.1f} on {num_cores} cores): late frames may come from"
        " what else runs here; try again when it is quieter"
    )


def _row(scene: SceneResult) -> tuple[str, ...]:
    return (
        scene.title,
        scene.outcome if scene.is_as_expected else f"{scene.outcome}: WRONG",
        _seconds(scene.contained_after_s),
        _seconds(scene.verified_after_s),
        f"{scene.num_sessions_harmed} of {scene.num_sessions}",
        fps_text(scene.lowest_healthy_fps),
    )


def _seconds(seconds: float | None) -> str:
    return output.MISSING if seconds is None else f"{seconds:.1f} s"
