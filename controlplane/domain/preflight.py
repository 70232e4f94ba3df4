"""Whether a variant may meet a viewer: the question of preflight, and the name of its probe.

A worker without viewers runs the variant for lengths all over the domain and goes back. Pure: what
it measured comes in as evidence.
"""

from collections.abc import Iterable
from typing import Final

from controlplane.contract import vocabulary
from controlplane.domain.canary import Canary
from controlplane.domain.document import size_text
from controlplane.domain.evidence import ProbeEvidence
from controlplane.domain.policy import Preflight
from controlplane.domain.verdict import Case, GateResult, Verdict

GATE: Final = "preflight"


def probe_id(canary: Canary) -> str:
    """Name of the probe that is asked for while the canary is in this preflight.

    The version rises with every transition, so a preflight that is repeated has a probe of its own.
    """
    return f"{canary.id}-{canary.version}"


def has_asked(canary: Canary, probe: str) -> bool:
    """Whether `probe` is one that the canary asked for, in this preflight or an earlier one."""
    asked, _, version = probe.rpartition("-")
    return asked == canary.id and version.isdecimal() and int(version) <= canary.version


def result(asked: Preflight, case: Case) -> GateResult:
    """What the reports say so far: failing at any that fails, passing at one that passes."""
    results = [_judged(asked, probe) for probe in case.evidence.probes]
    for verdict in (Verdict.FAILING, Verdict.PASSING, Verdict.UNMEASURED):
        for each in results:
            if each.verdict is verdict:
                return each
    return _result(asked, None, verdict=Verdict.UNMEASURED, reason="no report of a probe yet")


def _judged(asked: Preflight, probe: ProbeEvidence) -> GateResult:
    if why := next(iter(_failures(asked, probe)), None):
        reason = f"{probe.worker}: {why}"
        return _result(asked, probe, verdict=Verdict.FAILING, reason=reason)
    missing = [length for length in asked.lengths if length not in probe.lengths]
    if missing:
        reason = f"{probe.worker} ran {len(probe.lengths)} of {len(asked.lengths)} lengths"
    elif probe.rollback_ms is None or probe.flag_bytes_left is None:
        reason = f"{probe.worker} did not come to the rollback drill"
    else:
        reason = (
            f"{len(asked.lengths)} first-forward lengths run on {probe.worker}, at most"
            f" {_mib(_most_kept(probe))} kept for one; back in {probe.rollback_ms:.0f} ms"
        )
        return _result(asked, probe, verdict=Verdict.PASSING, reason=reason)
    if probe.detail:
        reason = f"{reason}: {probe.detail}"
    return _result(asked, probe, verdict=Verdict.UNMEASURED, reason=reason)


def _failures(asked: Preflight, probe: ProbeEvidence) -> Iterable[str]:
    if probe.fault is not None:
        num_run = len(probe.lengths)
        yield f"{probe.fault} after {num_run} lengths" + (f": {probe.detail}" * bool(probe.detail))
    kept = {
        length: num_bytes
        for length, num_bytes in sorted(probe.lengths.items())
        if num_bytes > asked.retained_at_most
    }
    if len(kept) >= vocabulary.LEAST_RETAINED_LENGTHS:
        length, num_bytes = next(iter(kept.items()))
        yield (
            f"keeps {_mib(num_bytes)} for first-forward length {length},"
            f" {size_text(asked.retained_at_most)} allowed; {len(kept)} of {len(probe.lengths)}"
            " lengths are above"
        )
    limit_ms = asked.rollback_within.total_seconds() * 1000
    if probe.rollback_ms is not None and probe.rollback_ms > limit_ms:
        yield f"took {probe.rollback_ms:.0f} ms to the fallback, {limit_ms:.0f} ms allowed"
    left = probe.flag_bytes_left
    if left is not None and left > probe.flag_bytes_before:
        yield (
            f"{left} bytes left on the fallback after the drill,"
            f" {probe.flag_bytes_before} before it"
        )


def _result(
    asked: Preflight, probe: ProbeEvidence | None, *, verdict: Verdict, reason: str
) -> GateResult:
    return GateResult(
        gate=GATE,
        verdict=verdict,
        value=None if probe is None else _most_kept(probe),
        limit=asked.retained_at_most,
        num_samples=0 if probe is None else len(probe.lengths),
        reason=reason,
        failed_at=probe.received_at if probe and verdict is Verdict.FAILING else None,
    )


def _most_kept(probe: ProbeEvidence) -> int:
    return max(probe.lengths.values(), default=0)


def _mib(num_bytes: float) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"
