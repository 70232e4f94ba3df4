"""What is measured of the picture, by people and their tools; the gate `quality` judges it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from controlplane.domain import canary as lifecycle
from controlplane.domain import gates, judge, ledger, plan
from controlplane.domain.canary import Canary, Phase
from controlplane.domain.errors import ConflictError
from controlplane.domain.observation import Observation
from controlplane.domain.verdict import GateResult, Verdict
from controlplane.services import observations
from controlplane.services.change import Act, Change
from controlplane.store import audit as audit_store
from controlplane.store import canaries as canary_store
from controlplane.store import qualities as quality_store
from controlplane.store.qualities import QualityReport
from controlplane.store.transaction import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What somebody measured of the picture under a canary's variant."""

    measure: str
    value: float  # finite
    num_samples: int


def report(conn: Connection, name: str, measured: Measured, *, act: Act) -> Change:
    """Keep what was measured; the next tick judges it.

    Raises:
        NotFoundError: no canary of that name.
        ConflictError: it is over.
    """
    canary = canary_store.get(conn, name_or_id=name)
    if canary.phase in lifecycle.TERMINAL:
        raise ConflictError(
            f"{canary.name} is {canary.phase} ({canary.reason}): no gate of it is judged any more"
        )
    kept = QualityReport(
        id=act.new_id(),
        canary_id=canary.id,
        measure=measured.measure,
        value=measured.value,
        num_samples=measured.num_samples,
        actor=act.actor,
        reason=act.reason,
        received_at=act.now,
    )
    quality_store.put(conn, kept)
    _audit(conn, canary, measured, act=act)
    seen = observations.observe(conn, canary, tick=timedelta(0))
    return Change(subject=_shown(kept, canary), effects=tuple(_effects(seen, measured, act=act)))


def list_page(
    conn: Connection, name: str, *, after: str | None, limit: int
) -> tuple[Mapping[str, object], ...]:
    """Up to `limit` reports of the canary, newest first. Raises: NotFoundError."""
    canary = canary_store.get(conn, name_or_id=name)
    found = quality_store.list_page(conn, canary_id=canary.id, after=after, limit=limit)
    return tuple(_shown(one, canary) for one in found)


def _shown(report: QualityReport, canary: Canary) -> Mapping[str, object]:
    return {
        "id": report.id,
        "canary": canary.name,
        "measure": report.measure,
        "value": report.value,
        "num_samples": report.num_samples,
        "actor": report.actor,
        "reason": report.reason,
        "received_at": report.received_at,
    }


def _effects(seen: Observation, measured: Measured, *, act: Act) -> Iterator[str]:
    """What follows, the most important first."""
    gate = seen.policy.gates.quality
    if gate is None or gate.measure != measured.measure:
        asked = f"asks for {gate.measure}" if gate else "has no gate quality"
        yield (
            f"{measured.measure} {measured.value} is kept, and nothing judges it: policy"
            f" {seen.policy.name} of {seen.canary.name} {asked}"
        )
        return
    result = gates.quality(gate, seen.case)
    match result.verdict:
        case Verdict.FAILING:
            yield from _failed(seen, result, act=act)
        case _:
            yield f"passes the gate quality: {result.reason}"
            yield from _passed(seen, act=act)


def _failed(seen: Observation, result: GateResult, *, act: Act) -> Iterator[str]:
    canary = seen.canary
    told = f"fails the gate quality ({result.reason})"
    if canary.phase in (Phase.ROLLING_BACK, Phase.CONTAINED):
        yield f"{told}, and changes nothing: {canary.name} is on its way back already"
        return
    if canary.phase not in lifecycle.EXPOSED:
        yield (
            f"{told}: {canary.name} is {canary.phase} and is rolled back once its workers are"
            " exposed, unless a newer report passes before"
        )
        return
    yield f"{told} and rolls {canary.name} back"
    workers = ", ".join(sorted({one.worker for one in seen.exposures}))
    if canary.phase in lifecycle.RUNNING and workers:
        yield f"{workers}: {canary.flag or 'from'} {canary.left_behind} -> {canary.way_back}"
    # Somebody may have asked to abort it just now: then that is what it ends by.
    if plan.plan(seen, now=act.now).event in ledger.FAILURES:
        what = f"{canary.flag}={canary.variant}" if canary.flag else "what it ran"
        yield (
            f"{what} is disqualified on {canary.hardware}, stack {canary.stack}, once it is back"
        )


def _passed(seen: Observation, *, act: Act) -> Iterator[str]:
    canary = seen.canary
    if canary.phase is Phase.HELD:
        yield f"{canary.name} stays held until `steadyframe canary resume {canary.name}`"
    if canary.phase not in lifecycle.EXPOSED:
        yield f"{canary.name} is {canary.phase}: it counts once its workers are exposed"
        return
    judgement = judge.judge(seen.case, now=act.now)
    missing = [one.gate for one in judgement.results if one.verdict is not Verdict.PASSING]
    if missing:
        yield f"{canary.name} waits for other gates: {', '.join(missing)}"
    else:
        yield f"every gate of {canary.name} passes now"


def _audit(conn: Connection, canary: Canary, measured: Measured, *, act: Act) -> None:
    audit_store.append(
        conn,
        actor=act.actor,
        action="canary.quality_reported",
        target=canary.name,
        reason=act.reason,
        detail={
            "fleet": canary.fleet,
            "flag": canary.flag,
            "variant": canary.variant,
            "measure": measured.measure,
            "value": measured.value,
            "num_samples": measured.num_samples,
        },
        now=act.now,
    )
