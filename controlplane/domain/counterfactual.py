"""What one event more, or one less, would change of a judgement: asked of the judge itself.

Nothing here is an estimate: the same gates are asked about the same case with one thing changed.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final

from controlplane.domain import compared_gates, comparison, gates, judge
from controlplane.domain.blocks import FAILED, SLOW, Block, Kind
from controlplane.domain.eprocess import Table
from controlplane.domain.evidence import SessionEvidence, TripEvidence
from controlplane.domain.policy import RegressionGate
from controlplane.domain.verdict import Case, Judgement, Verdict

# More sessions that fail a gate than this are a pattern: no one of them decides.
_MOST_CULPRITS: Final = 20


def if_worse(
    case: Case, judgement: Judgement, *, now: datetime, back: str = "would send it back"
) -> Iterator[str]:
    """What would send back a canary that no gate fails, each as a sentence in the conditional.

    Args:
        case: as it was judged.
        judgement: of it; none of its gates fails.
        now: of the judgement.
        back: how the sentences say it: of what is over, that it would have.
    """
    asked = case.policy.gates
    named = {result.gate: result for result in judgement.results}
    if asked.regression and "regression" in named:
        yield from _of_evidence(case, asked.regression, now=now, back=back)
    if asked.failures and "failures" in named:
        spare = asked.failures.at_most - int(named["failures"].value or 0)
        what = "session{s} of the canary arm, failed or lost,"
        yield _more(spare + 1, what, back=f"{back} (failures)")
    if asked.floor and "floor" in named:
        floor = f"below {asked.floor.at_least:g} fps {back}"
        yield f"one session of the canary arm that is rated {floor} (floor)"
    if asked.stall and "stall" in named:
        most_s = asked.stall.at_most.total_seconds()
        yield f"one stall of over {most_s:g} s in the canary arm {back} (stall)"
    if case.policy.hard_stops:
        words = ", ".join(sorted(one.replace("_", " ") for one in case.policy.hard_stops))
        yield f"any hard stop on an exposed worker {back} at once: {words}"


def if_better(case: Case, judgement: Judgement, *, now: datetime) -> Iterator[str]:
    """Without what single session or trip no gate would have failed; or that there is none.

    Args:
        case: as it was judged.
        judgement: of it; a gate of it fails.
        now: of the judgement.
    """
    failing = [one.gate for one in judgement.results if one.verdict is Verdict.FAILING]
    if "regression" in failing and case.policy.gates.regression:
        yield _less_evidence(case, case.policy.gates.regression)
    if failing == ["regression"]:
        return
    deciding = list(_deciding(case, now=now))
    yield from (f"without {one} no gate would have failed then" for one in deciding)
    if not deciding:
        yield f"no single session or trip decided it: {', '.join(failing)} would have failed anyway"


def with_failure(case: Case, gate: RegressionGate, *, now: datetime) -> float | None:
    """Evidence of harm if one process on an exposed worker failed now, and none elsewhere did.

    Every worker that a session came from counts as one process at risk.

    Returns: None where there is no process to compare it with.
    """
    control = {one.worker for one in case.evidence.sessions} - case.exposed
    if not control or not case.exposed:
        return None
    failure = Block(
        kind=Kind.FAILURES,
        index=sum(block.kind is Kind.FAILURES for block in case.blocks),
        opened_at=now,
        closed_at=now,
        arms={},
        tables={FAILED: (Table(1, len(case.exposed), 0, len(control)),)},
        sessions=(),
    )
    return comparison.regression((*case.blocks, failure), gate.weights).value


def _of_evidence(case: Case, gate: RegressionGate, *, now: datetime, back: str) -> Iterator[str]:
    num_slow = compared_gates.bad_sessions_to(case, gate)
    if num_slow is not None:
        what = "slow canary session{s} in one block like the last"
        yield _more(num_slow, what, back=f"{back} (regression)")
    value = with_failure(case, gate, now=now)
    if value is not None:
        what = "one failed process more on an exposed worker"
        of = f"evidence of harm {value:.3g} of {gate.at_most:g} (regression)"
        if value >= gate.at_most:
            yield f"{what} {back}: {of}"
        else:
            yield f"{what} would not be enough by its evidence alone: {of}"


def _more(num: int, what: str, *, back: str) -> str:
    """That so many and no fewer would do it."""
    if num <= 1:
        return f"one more {what.format(s='')} {back}"
    return f"{num} more {what.format(s='s')} {back}; {num - 1} would not"


def _less_evidence(case: Case, gate: RegressionGate) -> str:
    """What one slow session less, in the block that crossed the limit, would have left of it."""
    found = comparison.regression(case.blocks, gate.weights)
    crossed = next(n for n, value in enumerate(found.trajectory) if value >= gate.at_most)
    block = case.blocks[crossed]
    tables = block.tables.get(SLOW, ())
    if not any(table.canary_bad for table in tables):
        return f"no slow session was in the block that crossed {gate.at_most:g}"
    index = next(n for n, table in enumerate(tables) if table.canary_bad)
    fewer = replace(tables[index], canary_bad=tables[index].canary_bad - 1)
    changed = {**block.tables, SLOW: (*tables[:index], fewer, *tables[index + 1 :])}
    before = (*case.blocks[:crossed], replace(block, tables=changed), *case.blocks[crossed + 1 :])
    highest = max(comparison.regression(before, gate.weights).trajectory)
    does = "still above it" if highest >= gate.at_most else "below it"
    return (
        f"with one slow session less in the block that crossed {gate.at_most:g} the evidence of"
        f" harm would have been {highest:.3g}, {does}"
    )


def _deciding(case: Case, *, now: datetime) -> Iterator[str]:
    sessions = list(_culprits(case))
    if len(sessions) <= _MOST_CULPRITS:
        for session in sessions:
            if not _fails(_without_session(case, session), now=now):
                yield f"session {session.id} on {session.worker}"
    for trip in case.evidence.trips[:_MOST_CULPRITS]:
        if not _fails(_without_trip(case, trip), now=now):
            yield f"the trip on {trip.worker} ({trip.reason})"


def _culprits(case: Case) -> Iterator[SessionEvidence]:
    """Sessions that alone would fail a gate, or count as a failure."""
    asked = case.policy.gates
    for session in gates.canary_sessions(case):
        alone = replace(case, evidence=replace(case.evidence, sessions=(session,), trips=()))
        results = [
            gates.hard_stops(alone),
            *([gates.floor(asked.floor, alone)] if asked.floor else []),
            *([gates.stall(asked.stall, alone)] if asked.stall else []),
        ]
        if session.has_failed or any(one.verdict is Verdict.FAILING for one in results):
            yield session


def _without_session(case: Case, session: SessionEvidence) -> Case:
    kept = tuple(one for one in case.evidence.sessions if one is not session)
    return replace(case, evidence=replace(case.evidence, sessions=kept))


def _without_trip(case: Case, trip: TripEvidence) -> Case:
    kept = tuple(one for one in case.evidence.trips if one is not trip)
    return replace(case, evidence=replace(case.evidence, trips=kept))


def _fails(case: Case, *, now: datetime) -> bool:
    return judge.judge(case, now=now).verdict is Verdict.FAILING
