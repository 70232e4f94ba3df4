"""How a variant stands by what is on record of it, and what a canary leaves behind."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from controlplane.domain import ledger
from controlplane.domain.blocks import FAILED_SESSIONS, SLOW, Block, Kind
from controlplane.domain.canary import Event
from controlplane.domain.desired import Qualification
from controlplane.domain.eprocess import Table
from controlplane.domain.ledger import Basis, DisqualifiedError, Origin, Record, Standing
from tests.domain import build

FLEET = "main"
SUBJECT = Qualification(
    flag=build.FLAG, variant=build.FUSED, hardware=build.HARDWARE, stack=build.STACK
)


def record(number: int = 1, standing: Standing = Standing.QUALIFIED, **changes: Any) -> Record:
    """What a canary said of the fused variant."""
    base = Record(
        number=number,
        subject=SUBJECT,
        standing=standing,
        fleet=None,
        canary=f"fused-allreduce-{number}",
        decision=None,
        evidence_digest=None,
        basis=None,
        actor="steadyframe",
        reason="floor: 23.1 fps",
        created_at=build.NOW,
        revoked_at=None,
        revoked_by=None,
        revoked_reason=None,
    )
    return replace(base, **changes)


def block(*slow: Table, failed: tuple[Table, ...] = ()) -> Block:
    return Block(
        kind=Kind.SESSIONS,
        index=0,
        opened_at=build.NOW,
        closed_at=build.NOW,
        arms={},
        tables={SLOW: slow, FAILED_SESSIONS: failed},
        sessions=(),
    )


def test_nothing_on_record_is_no_standing() -> None:
    assert ledger.current([], fleet=FLEET) is None
    assert ledger.attempt([]) == 1


@pytest.mark.parametrize(
    ("standings", "revoked"),
    [
        (standings, revoked)
        for standings in product(Standing, repeat=3)
        for revoked in product((False, True), repeat=3)
    ],
)
def test_the_newest_record_that_is_not_revoked_counts(
    standings: tuple[Standing, ...], revoked: tuple[bool, ...]
) -> None:
    """In whatever order they are read."""
    records = [
        record(number, standing, revoked_at=build.NOW if is_revoked else None)
        for number, (standing, is_revoked) in enumerate(zip(standings, revoked, strict=True))
    ]
    counting = [one for one in records if one.revoked_at is None]
    expected = counting[-1] if counting else None
    for order in (records, records[::-1], [records[1], records[2], records[0]]):
        assert ledger.current(order, fleet=FLEET) == expected


def test_an_attestation_counts_in_its_own_fleet_alone() -> None:
    """One operator must not decide what another's fleet runs."""
    said = record(2, fleet=FLEET, canary=None)
    failed = record(1, Standing.DISQUALIFIED)

    assert ledger.current([failed, said], fleet=FLEET) == said
    assert ledger.current([failed, said], fleet="other") == failed
    assert (said.origin, failed.origin) == (Origin.ATTESTED, Origin.CANARY)


def test_every_failure_counts_as_an_attempt_whatever_came_of_it_later() -> None:
    """Else one could try until it passes, at the full level each time."""
    records = [
        record(1, Standing.DISQUALIFIED),
        record(2),
        record(3, Standing.DISQUALIFIED, revoked_at=build.NOW),
        record(4, revoked_at=build.NOW),
    ]

    assert [ledger.attempt(records[:length]) for length in range(5)] == [1, 2, 2, 3, 3]


def test_only_what_the_variant_did_disqualifies_it() -> None:
    """Whoever aborts a canary, or loses it, has learnt nothing of the variant."""
    sent_back = {
        Event.GATE_FAILED,
        Event.HARD_STOPPED,
        Event.ABORT_REQUESTED,
        Event.CONTROL_LOST,
    }
    assert sent_back - {Event.ABORT_REQUESTED, Event.CONTROL_LOST} == ledger.FAILURES


def test_rates_are_those_of_the_canarys_own_arm_over_all_blocks_and_strata() -> None:
    blocks = [
        block(Table(1, 10, 9, 10), Table(0, 2, 0, 2), failed=(Table(1, 20, 0, 20),)),
        block(Table(2, 8, 0, 30), failed=(Table(0, 5, 5, 5),)),
    ]

    found = ledger.basis(blocks)

    assert found == Basis(num_rated=20, num_slow=3, num_sessions=25, num_failed=1)
    assert found.slow_rate == 3 / 20
    assert found.failure_rate == 1 / 25


@pytest.mark.parametrize("blocks", [[], [block()], [block(Table(0, 0, 5, 5))]])
def test_no_session_is_no_rate_and_not_a_rate_of_zero(blocks: list[Block]) -> None:
    """A default of 0 % slow sessions would refuse every canary after it."""
    found = ledger.basis(blocks)

    assert (found.slow_rate, found.failure_rate) == (None, None)


def test_a_refusal_says_which_canary_failed_and_who_may_go_on() -> None:
    said = str(DisqualifiedError(record(7, Standing.DISQUALIFIED)))

    for part in ("fused-allreduce-7", "23.1 fps", build.STACK, build.HARDWARE, "admin", "reason"):
        assert part in said
