"""Blocks of evidence: what began in one window, counted once when all of it is known.

A block is never revised: what is late for it is shown, and judged by the absolute gates, but
changes no e-value. Two kinds are written. `sessions`: sessions that began in one window on exposed
workers, compared between the arms that were drawn for them. `failures`: processes at risk when
failures became known, compared between exposed and never-exposed workers; a death is no matter of
the arm drawn for one session, and waiting for the window to close would only cost more of them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import ARM_CANARY
from controlplane.domain import eprocess
from controlplane.domain.eprocess import QUANTILES, Table
from controlplane.domain.evidence import PARTS, SessionEvidence


class Kind(StrEnum):
    """What the units of a block are."""

    SESSIONS = "sessions"
    FAILURES = "failures"  # units are incarnations


# Indicators, as blocks and reports name them.
SLOW: Final = "slow"
UNRATED: Final = "unrated"  # without a rate: too short, held up by their viewer, or never ended
FAILED: Final = "failed"
# Sessions that failed, by drawn arm: for the rate that promotion asks about, never for rollback,
# which counts the same failures as incarnations.
FAILED_SESSIONS: Final = "failed_sessions"
SHIFT: Final = "shift"  # of the frame rate, whether slow or not
STEP_TIME: Final = "step_time"  # diffusion and reduction together


# Of the horizon, how long after its window a block waits for sessions that do not end.
_PATIENCE: Final = 3
# A process that was heard of within this is at risk: between two sessions it says nothing of one.
_AT_RISK: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCounts:
    """Sessions of one arm in one block."""

    num_started: int = 0
    num_rated: int = 0
    num_slow: int = 0
    num_very_slow: int = 0
    num_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What one window adds to the evidence."""

    kind: Kind = Kind.SESSIONS
    index: int  # of sessions: windows since the canary began; of failures: a running number
    opened_at: datetime
    closed_at: datetime
    arms: Mapping[str, ArmCounts]  # for display; every session of the window
    # Indicator -> a table a stratum; an indicator of ranks has one a quantile: `shift.0.1`.
    tables: Mapping[str, tuple[Table, ...]] = field(default_factory=dict)
    sessions: tuple[str, ...]  # ids, sorted
    units: tuple[str, ...] = ()  # incarnations whose failure is counted here, sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How sessions are gathered into blocks, and what is compared with what."""

    since: datetime  # start of the first window
    width: timedelta
    horizon: timedelta  # of streaming, at which a session that still runs is judged
    exposed: Collection[str]  # workers that have been told to run the canary
    # Whether the whole worker is one arm (a flag that changes at a restart, or a step that gives
    # all sessions of its workers to the canary): then an incarnation has one outcome a window.
    is_by_worker: bool = False
    # When the share of the arms last changed, if steps differ in it: a window with two shares
    # compares nothing.
    share_changed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """What an arm was drawn for: a session, or an incarnation with the worst of its sessions."""

    is_canary: bool
    has_failed: bool
    is_rated: bool
    fps: float | None
    times_ms: Mapping[str, float]  # of `STEP_TIME` and each part, those measured


def ranked(indicator: str, quantile: float) -> str:
    """The key of an indicator of ranks in `Block.tables`."""
    return f"{indicator}.{quantile:g}"


def closed(
    sessions: Iterable[SessionEvidence], *, design: Design, known: Iterable[Block], now: datetime
) -> tuple[Block, ...]:
    """Blocks of sessions that can be written now: window over, all judged, not written before."""
    written = {block.index for block in known if block.kind is Kind.SESSIONS}
    by_window: dict[int, list[SessionEvidence]] = {}
    for session in sessions:
        if session.started_at >= design.since:
            index = (session.started_at - design.since) // design.width
            by_window.setdefault(index, []).append(session)
    return tuple(
        _of_sessions(index, group, design=design, now=now)
        for index, group in sorted(by_window.items())
        if index not in written and _is_complete(index, group, design=design, now=now)
    )


def _is_complete(
    index: int, sessions: Sequence[SessionEvidence], *, design: Design, now: datetime
) -> bool:
    """Whether a window can be written: over, and everyone who is compared in it is known.

    Or overdue: a session that never ends, because its viewer blocks it or because it hangs before
    its first frame, must not withhold what the others of its window have shown. Then it has no
    rate, in either arm.
    """
    over_at = design.since + (index + 1) * design.width
    if now < over_at:
        return False
    compared = [s for s in sessions if s.is_drawn or design.is_by_worker]
    return now >= over_at + _PATIENCE * design.horizon or all(
        session.is_judged(horizon=design.horizon) for session in compared
    )


def _of_sessions(
    index: int, sessions: Sequence[SessionEvidence], *, design: Design, now: datetime
) -> Block:
    arms = {session.arm for session in sessions}
    return Block(
        kind=Kind.SESSIONS,
        index=index,
        opened_at=design.since + index * design.width,
        closed_at=now,
        arms={arm: _counts(s for s in sessions if s.arm == arm) for arm in sorted(arms)},
        tables={} if _has_two_shares(index, design) else _tables(sessions, design=design),
        sessions=tuple(sorted(session.id for session in sessions)),
    )


def _has_two_shares(index: int, design: Design) -> bool:
    opened_at = design.since + index * design.width
    changed_at = design.share_changed_at
    return changed_at is not None and opened_at < changed_at < opened_at + design.width


def _tables(sessions: Sequence[SessionEvidence], *, design: Design) -> dict[str, tuple[Table, ...]]:
    """Every indicator, over the strata that arms were drawn in: live first, synthetic second.

    Each has its place even where it is empty: promotion must not take one for the other.
    """
    kinds = [[s for s in sessions if s.is_synthetic is synthetic] for synthetic in (False, True)]
    strata = [_units(kind, design=design) for kind in kinds]
    if not any(strata):
        return {}
    tables = {
        # Failed units are in the denominator, and no slow ones: they count as failed.
        SLOW: tuple(
            _table((unit for unit in units if unit.has_failed or unit.is_rated), _is_slow)
            for units in strata
        ),
        UNRATED: tuple(
            _table(units, lambda unit: not (unit.has_failed or unit.is_rated)) for units in strata
        ),
        FAILED_SESSIONS: tuple(_table(units, lambda unit: unit.has_failed) for units in strata),
    }
    for indicator in (SHIFT, STEP_TIME, *PARTS):
        for quantile in QUANTILES:
            tables[ranked(indicator, quantile)] = tuple(
                _worst(units, indicator, quantile=quantile) for units in strata
            )
    return tables


def _units(sessions: Sequence[SessionEvidence], *, design: Design) -> list[_Unit]:
    if not design.is_by_worker:
        drawn = [session for session in sessions if session.is_drawn]
        return [_unit([s], design=design, is_canary=s.arm == ARM_CANARY) for s in drawn]
    by_incarnation: dict[tuple[str, bool], list[SessionEvidence]] = {}
    for session in sessions:
        is_exposed = _is_exposed(session, design.exposed)
        if is_exposed is not None:
            by_incarnation.setdefault((session.incarnation, is_exposed), []).append(session)
    return [
        _unit(group, design=design, is_canary=is_exposed)
        for (_, is_exposed), group in sorted(by_incarnation.items())
    ]


def _unit(sessions: Sequence[SessionEvidence], *, design: Design, is_canary: bool) -> _Unit:
    rated = [
        session
        for session in sessions
        if session.counts_for_rate()
        and session.is_judged(horizon=design.horizon)
        # It ran something else than what was drawn for it, so it vouches for neither.
        and not session.is_non_compliant
    ]
    times: dict[str, float] = {}
    for session in rated:
        measured = dict(session.parts_ms)
        if session.step_ms is not None:
            measured[STEP_TIME] = session.step_ms
        times |= {name: max(ms, times.get(name, ms)) for name, ms in measured.items()}
    return _Unit(
        is_canary=is_canary,
        has_failed=any(session.has_failed for session in sessions),
        is_rated=bool(rated),
        fps=min((session.fps for session in rated if session.fps is not None), default=None),
        times_ms=times,
    )


def _is_slow(unit: _Unit) -> bool:
    is_judged = unit.is_rated and not unit.has_failed and unit.fps is not None
    return is_judged and vocabulary.is_slow(unit.fps or 0.0)


def _worst(units: Sequence[_Unit], indicator: str, *, quantile: float) -> Table:
    """The table of one quantile: failed units rank worst, those not measured are left out."""
    arms: dict[bool, list[float | None]] = {True: [], False: []}
    for unit in units:
        value = unit.fps
        if indicator != SHIFT:  # a longer time is worse, a lower number ranks worse
            value = -unit.times_ms[indicator] if indicator in unit.times_ms else None
        if unit.has_failed or value is not None:
            arms[unit.is_canary].append(None if unit.has_failed else value)
    return eprocess.worst_ranked(arms[True], arms[False], quantile=quantile)


def _table(units: Iterable[_Unit], is_bad: Callable[[_Unit], bool]) -> Table:
    num: Counter[tuple[bool, bool]] = Counter((unit.is_canary, is_bad(unit)) for unit in units)
    return Table(
        canary_bad=num[True, True],
        canary=num[True, True] + num[True, False],
        control_bad=num[False, True],
        control=num[False, True] + num[False, False],
    )


def _counts(sessions: Iterable[SessionEvidence]) -> ArmCounts:
    count: Counter[str] = Counter()
    for session in sessions:
        count["started"] += 1
        count["failed"] += session.has_failed
        if session.counts_for_rate() and session.fps is not None:
            count["rated"] += 1
            count["slow"] += vocabulary.is_slow(session.fps)
            count["very_slow"] += vocabulary.is_very_slow(session.fps)
    return ArmCounts(
        num_started=count["started"],
        num_rated=count["rated"],
        num_slow=count["slow"],
        num_very_slow=count["very_slow"],
        num_failed=count["failed"],
    )


def failed(
    sessions: Sequence[SessionEvidence],
    *,
    design: Design,
    known: Sequence[Block],
    now: datetime,
) -> Block | None:
    """The block of the failures that became known since the last one, if there are any.

    A unit is an incarnation, with one outcome a window: a burst on one worker is one event.

    Args:
        sessions: of the stratum, exposed and not.
        design: how sessions are gathered.
        known: blocks written before.
        now: of this judgement.
    """
    before = [block for block in known if block.kind is Kind.FAILURES]
    counted = {session for block in before for session in block.sessions}
    new = [s for s in sessions if s.has_failed and s.id not in counted]
    if not new:
        return None
    recent = [block for block in before if now - block.closed_at < design.width]
    out = {unit for block in recent for unit in block.units}
    # One that failed before it was exposed is neither the variant's fault nor the baseline's.
    failing = {s.incarnation for s in new if _is_exposed(s, design.exposed) is not None} - out
    arms: dict[bool, set[str]] = {True: set(), False: set()}
    for session in sessions:
        silence = now - session.updated_at
        is_at_risk = silence <= max(design.width, _AT_RISK) or session.incarnation in failing
        if is_at_risk and session.incarnation not in out:
            is_exposed = _is_exposed(session, design.exposed)
            if is_exposed is not None:
                arms[is_exposed].add(session.incarnation)
    # A process that ran both before and after it was exposed is exposed.
    arms[False] -= arms[True]
    table = Table(
        canary_bad=len(failing & arms[True]),
        canary=len(arms[True]),
        control_bad=len(failing & arms[False]),
        control=len(arms[False]),
    )
    return Block(
        kind=Kind.FAILURES,
        index=len(before),
        opened_at=min(s.updated_at for s in new),
        closed_at=now,
        arms={},
        tables={FAILED: (table,)},
        sessions=tuple(sorted(s.id for s in new)),
        units=tuple(sorted(failing)),
    )


def _is_exposed(session: SessionEvidence, exposed: Collection[str]) -> bool | None:
    """True: drawn for the canary; False: on a never-exposed worker; None: neither.

    An exposed worker has sessions that are not the canary's, too: before it heard of it, while the
    canary is held, after its lease lapsed. They ran the baseline and are no sign of the variant.
    """
    if session.is_drawn:
        return True
    return None if session.worker in exposed else False
