"""The gates of a decision: each with its numbers in its own unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.domain.verdict import Verdict
from controlplane.web.present import words
from controlplane.web.present.words import State, Tone

TONES = {
    Verdict.PASSING: Tone.GOOD,
    Verdict.FAILING: Tone.BAD,
    Verdict.INCONCLUSIVE: Tone.WATCH,
    Verdict.UNMEASURED: Tone.WATCH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """One gate with its numbers."""

    name: str
    state: State
    value: str
    limit: str
    reason: str
    evidence: str


def shown(results: Sequence[Mapping[str, Any]], *, now: datetime) -> tuple[GateView, ...]:
    """Gates with their numbers in the unit of each; those that fail first."""
    order = {verdict: index for index, verdict in enumerate(_worst_first())}
    ordered = sorted(results, key=lambda result: order[Verdict(result["verdict"])])
    return tuple(_gate(result, now=now) for result in ordered)


def _worst_first() -> tuple[Verdict, ...]:
    return (Verdict.FAILING, Verdict.UNMEASURED, Verdict.INCONCLUSIVE, Verdict.PASSING)


def _gate(result: Mapping[str, Any], *, now: datetime) -> GateView:
    verdict = Verdict(result["verdict"])
    samples = words.count(result["num_samples"], "sample")
    failed_at = result.get("failed_at")
    if failed_at:
        failed = datetime.fromisoformat(failed_at)
        samples = f"{samples}; first failing {words.ago(failed, now=now)}"
    return GateView(
        name=result["gate"],
        state=State(tone=TONES[verdict], word=verdict),
        value=_number(result["gate"], result["value"]),
        limit=_number(result["gate"], result["limit"]),
        reason=result["reason"],
        evidence=samples,
    )


def _number(gate: str, value: float | None) -> str:
    if value is None:
        return words.NOTHING
    match gate:
        case "floor":
            return f"{words.fps(value)} fps"
        case "memory":
            return words.size(value)
        case "freshness":
            return f"{value:.1f} s"
        case _:
            return f"{value:g}"
