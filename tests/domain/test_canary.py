"""The state machine of a canary, walked over every pair of phase and event."""

from datetime import timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain import canary as canaries
from controlplane.domain.canary import TERMINAL, TRANSITIONS, Event, Phase
from tests.domain import build
from tests.domain.build import NOW

# Written from section 4 of the architecture, not from the table under test.
BAD_NEWS = {"gate_failed", "hard_stopped", "abort_requested", "control_lost"}
HOLDS = {"paused", "inconclusive", "lease_lapsed"}
EXPECTED = {
    "pending": {
        "started": "preflight",
        "start_expired": "cancelled",
        "abort_requested": "cancelled",
    },
    "preflight": {
        "preflight_passed": "progressing",
        "paused": "held",
        "inconclusive": "held",
        **dict.fromkeys(BAD_NEWS, "rolling_back"),
    },
    "progressing": {
        "step_passed": "progressing",
        "last_step_passed": "baking",
        "promote_requested": "promoted",
        **dict.fromkeys(HOLDS, "held"),
        **dict.fromkeys(BAD_NEWS, "rolling_back"),
    },
    "baking": {
        "bake_passed": "promoted",
        "promote_requested": "promoted",
        **dict.fromkeys(HOLDS, "held"),
        **dict.fromkeys(BAD_NEWS, "rolling_back"),
    },
    "held": {
        "resumed": "progressing",
        "started": "preflight",  # again: it had not passed
        "withdrawn": "rolling_back",
        **dict.fromkeys(BAD_NEWS, "rolling_back"),
    },
    "rolling_back": {"containment_seen": "contained"},
    "contained": {"verification_seen": "rolled_back"},
    "promoted": {},
    "rolled_back": {},
    "cancelled": {},
}


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, Event)))
def test_each_event_leads_where_the_architecture_says_or_is_refused(
    phase: Phase, event: Event
) -> None:
    canary = build.canary(phase=phase)
    expected = EXPECTED[phase].get(event)
    if expected is None:
        with pytest.raises(canaries.IllegalTransitionError) as refusal:
            canaries.apply(canary, event, now=NOW, reason="")
        assert (refusal.value.phase, refusal.value.event) == (phase, event)
    else:
        assert canaries.apply(canary, event, now=NOW, reason="").phase == expected


@pytest.mark.parametrize(("phase", "event"), list(TRANSITIONS))
def test_every_transition_is_a_new_version_with_its_reason(phase: Phase, event: Event) -> None:
    """The version is what refuses a stale writer."""
    before = build.canary(phase=phase, version=7)
    after = canaries.apply(before, event, now=NOW, reason="because")
    assert (after.version, after.reason) == (8, "because")
    assert (before.version, before.phase) == (7, phase)


@pytest.mark.parametrize(("phase", "event"), list(TRANSITIONS))
def test_the_phase_begins_now_only_if_it_changes(phase: Phase, event: Event) -> None:
    before = build.canary(phase=phase)
    after = canaries.apply(before, event, now=NOW, reason="")
    assert after.phase_since == (before.phase_since if after.phase is phase else NOW)


@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_nothing_leads_out_of_a_terminal_phase(phase: Phase) -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] is phase]


@pytest.mark.parametrize(("phase", "event"), list(TRANSITIONS))
def test_no_lease_outlives_a_terminal_phase(phase: Phase, event: Event) -> None:
    after = canaries.apply(build.canary(phase=phase), event, now=NOW, reason="")
    assert after.phase not in TERMINAL or after.lease_until is None


def test_every_phase_can_be_reached_from_pending() -> None:
    reached = {Phase.PENDING}
    for _ in Phase:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(Phase)


def test_promotion_is_only_reached_by_a_pass_or_a_person() -> None:
    events = {event for (_, event), after in TRANSITIONS.items() if after is Phase.PROMOTED}
    assert events == {Event.BAKE_PASSED, Event.PROMOTE_REQUESTED}


def test_a_passed_step_starts_the_next_one_with_an_empty_bake() -> None:
    canary = build.canary(step=1, bake=timedelta(hours=2), baked_until=NOW)
    after = canaries.apply(canary, Event.STEP_PASSED, now=NOW, reason="")
    assert (after.step, after.bake, after.baked_until) == (2, timedelta(0), None)
    assert after.step_since == NOW


@pytest.mark.parametrize(
    ("phase", "event"),
    [pair for pair in TRANSITIONS if pair[1] not in (Event.STEP_PASSED, Event.PREFLIGHT_PASSED)],
)
def test_no_other_event_moves_the_step_or_its_bake(phase: Phase, event: Event) -> None:
    before = build.canary(phase=phase, step=2, bake=timedelta(hours=3), baked_until=NOW)
    after = canaries.apply(before, event, now=NOW, reason="")
    assert (after.step, after.bake, after.baked_until, after.step_since) == (
        before.step,
        before.bake,
        before.baked_until,
        before.step_since,
    )


def test_a_bake_is_kept_over_a_hold() -> None:
    canary = build.canary(phase=Phase.PROGRESSING, step=1, bake=timedelta(hours=3))
    held = canaries.apply(canary, Event.PAUSED, now=NOW, reason="")
    resumed = canaries.apply(held, Event.RESUMED, now=NOW + timedelta(hours=9), reason="")
    assert (resumed.step, resumed.bake) == (1, timedelta(hours=3))


def test_only_a_lapse_is_counted_as_one() -> None:
    for phase, event in TRANSITIONS:
        after = canaries.apply(build.canary(phase=phase), event, now=NOW, reason="")
        assert after.num_lease_lapses == (1 if event is Event.LEASE_LAPSED else 0)


@pytest.mark.parametrize(
    "broken",
    [
        {"step": -1},
        {"bake": timedelta(seconds=-1)},
        {"phase_since": NOW - timedelta(days=1)},
        {"num_lease_lapses": canaries.MAX_LEASE_LAPSES + 1},
        {"baseline": build.FUSED},
    ],
)
def test_a_state_that_no_event_leads_to_is_told(broken: dict[str, object]) -> None:
    with pytest.raises(AssertionError, match=r"fused-allreduce-1|step|bake"):
        canaries.check_invariants(build.canary(**broken))


@given(st.lists(st.sampled_from(Event), max_size=40))
def test_no_sequence_of_events_breaks_an_invariant(events: list[Event]) -> None:
    """Illegal events are refused and change nothing; the plan stops at the bound of lapses."""
    canary = build.canary(phase=Phase.PENDING)
    now = NOW
    for event in events:
        now += timedelta(seconds=1)
        if event is Event.LEASE_LAPSED and canary.num_lease_lapses == canaries.MAX_LEASE_LAPSES:
            continue
        try:
            after = canaries.apply(canary, event, now=now, reason="")
        except canaries.IllegalTransitionError:
            continue
        canaries.check_invariants(after)
        assert after.step >= canary.step
        canary = after
