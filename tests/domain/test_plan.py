"""What happens next to a canary: bad news acts from every phase, nothing missing ever passes."""

from collections.abc import Mapping
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.contract.vocabulary import Outcome, Reason
from controlplane.domain import canary as lifecycle
from controlplane.domain.canary import TERMINAL, TRANSITIONS, Event, Phase
from controlplane.domain.containment import Exposure
from controlplane.domain.evidence import Evidence
from controlplane.domain.fleet import Mode
from controlplane.domain.observation import Answer, Observation, Plan, Request, RequestKind
from controlplane.domain.plan import plan
from controlplane.domain.verdict import Verdict
from tests.domain import build
from tests.domain.build import FLAG, FUSED, NOW, memory, seconds, session, trip, worker

RUNNING = (Phase.PROGRESSING, Phase.BAKING)
EXPOSED = (*RUNNING, Phase.HELD)
BAKED = timedelta(days=1)
STEPS = [
    {"name": "one", "workers": 1, "bake": "10s", "least_sessions": 2},
    {"name": "two", "workers": "50%", "bake": "10s", "least_sessions": 2},
]
BOTH_ARMS = {"worker-1": NOW - seconds(1), "worker-2": NOW - seconds(1)}


def request(kind: RequestKind) -> Request:
    return Request(id=f"request-{kind}", kind=kind, actor="ada", reason=f"please {kind}")


def exposure(name: str = "worker-1") -> Exposure:
    return Exposure(
        worker_id=f"id-{name}",
        worker=name,
        incarnation=f"incarnation-{name}",
        exposed_at=NOW - timedelta(minutes=5),
        flag_bytes_before=0,
    )


def seen(
    *,
    canary: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Observation:
    """A canary of two steps on one of four workers, with healthy evidence of both arms."""
    fields: dict[str, Any] = {
        "canary": build.canary(**{"policy_digest": "", **(canary or {})}),
        "policy": build.policy(**{"steps": STEPS, **(policy or {})}),
        "catalogue": build.catalogue(),
        "fleet": build.fleet(),
        "workers": tuple(worker(f"worker-{n}") for n in (1, 2, 3, 4)),
        "exposures": (exposure(),),
        "evidence": build.evidence(newest_record_at=BOTH_ARMS),
        "requests": (),
        "is_next": True,
        "tick": seconds(1),
    }
    return Observation(**{**fields, **changes})


def asked(*kinds: RequestKind) -> tuple[Request, ...]:
    return tuple(request(kind) for kind in kinds)


NOTHING = Evidence(sessions=(), memories=(), trips=(), newest_record_at={})
UNHEALTHY: dict[str, tuple[Evidence, Event]] = {
    "a slow session": (
        build.evidence(sessions=(session(fps=23.9),)),
        Event.GATE_FAILED,
    ),
    "a failed session": (
        build.evidence(sessions=(session(outcome=Outcome.LOST, streamed_s=0.0, fps=None),)),
        Event.GATE_FAILED,
    ),
    "growth": (
        build.evidence(memories=(memory(lengths={n: n * 2**24 for n in (1, 2, 3)}),)),
        Event.GATE_FAILED,
    ),
    "an out of memory": (build.evidence(trips=(trip(),)), Event.HARD_STOPPED),
    "a slow session of a worker gone silent": (
        Evidence(sessions=(session(fps=23.9),), memories=(), trips=(), newest_record_at={}),
        Event.GATE_FAILED,
    ),
}


@pytest.mark.parametrize("phase", EXPOSED)
@pytest.mark.parametrize("what", UNHEALTHY)
def test_failing_evidence_rolls_back_from_every_exposed_phase(phase: Phase, what: str) -> None:
    """Held too: its sessions may still be on the variant."""
    evidence, event = UNHEALTHY[what]
    planned = plan(seen(canary={"phase": phase}, evidence=evidence), now=NOW)
    assert (planned.event, planned.canary.phase) == (event, Phase.ROLLING_BACK)


@pytest.mark.parametrize("phase", EXPOSED)
@pytest.mark.parametrize("what", UNHEALTHY)
def test_no_request_of_a_person_outweighs_failing_evidence(phase: Phase, what: str) -> None:
    evidence, event = UNHEALTHY[what]
    requests = asked(RequestKind.PROMOTE, RequestKind.PAUSE, RequestKind.RESUME)
    planned = plan(seen(canary={"phase": phase}, evidence=evidence, requests=requests), now=NOW)
    assert planned.event is event
    assert {answer.answer for answer in planned.answers} == {Answer.REFUSED}


MISSING: dict[str, Evidence] = {
    "nothing": NOTHING,
    "records of the canary": build.evidence(newest_record_at={"worker-2": NOW}),
    "fresh records": build.evidence(
        newest_record_at={"worker-1": NOW - seconds(16), "worker-2": NOW}
    ),
    "records that are not of the future": build.evidence(
        newest_record_at={"worker-1": NOW + seconds(16), "worker-2": NOW}
    ),
    "sessions": build.evidence(sessions=(), newest_record_at=BOTH_ARMS),
    "rates": build.evidence(
        sessions=tuple(session(f"s{n}", first_forward_length=n, fps=None) for n in (1, 2, 3)),
        newest_record_at=BOTH_ARMS,
    ),
    "rates that are numbers": build.evidence(
        sessions=tuple(
            session(f"s{n}", first_forward_length=n, fps=float("nan")) for n in (1, 2, 3)
        ),
        newest_record_at=BOTH_ARMS,
    ),
    "memory": build.evidence(memories=(), newest_record_at=BOTH_ARMS),
    "enough sessions": build.evidence(
        sessions=(session(first_forward_length=1),), newest_record_at=BOTH_ARMS
    ),
}


@pytest.mark.parametrize("requests", [(), asked(RequestKind.PROMOTE)], ids=["", "promote"])
@pytest.mark.parametrize("phase", RUNNING)
@pytest.mark.parametrize("what", MISSING)
def test_without_what_a_gate_asks_for_nothing_advances(
    phase: Phase, what: str, requests: tuple[Request, ...]
) -> None:
    """However long it has baked, and whoever asks."""
    observed = seen(
        canary={"phase": phase, "bake": BAKED}, evidence=MISSING[what], requests=requests
    )
    planned = plan(observed, now=NOW)
    assert planned.event is None
    assert planned.canary.phase is phase
    assert [answer.answer for answer in planned.answers] == [Answer.REFUSED] * len(requests)


def test_a_step_passes_when_its_gates_pass_and_its_bake_is_over() -> None:
    planned = plan(seen(canary={"bake": seconds(10)}), now=NOW)
    assert planned.event is Event.STEP_PASSED
    assert (planned.canary.step, planned.canary.bake) == (1, timedelta(0))
    assert planned.expose == ("worker-1", "worker-2")


def test_a_step_does_not_pass_a_moment_before_its_bake_is_over() -> None:
    planned = plan(seen(canary={"bake": seconds(10) - timedelta(microseconds=1)}), now=NOW)
    assert planned.event is None


def test_the_last_step_bakes_before_promotion() -> None:
    baking = plan(seen(canary={"step": 1}), now=NOW)
    assert (baking.event, baking.canary.phase) == (Event.LAST_STEP_PASSED, Phase.BAKING)
    early = plan(seen(canary={"step": 1, "phase": Phase.BAKING}), now=NOW)
    assert early.event is None
    over = plan(seen(canary={"step": 1, "phase": Phase.BAKING, "bake": seconds(10)}), now=NOW)
    assert (over.event, over.canary.phase) == (Event.BAKE_PASSED, Phase.PROMOTED)


@pytest.mark.parametrize("variant", ["fused_all", "fused_small_tiles"])
def test_a_variant_that_exists_to_be_caught_is_never_promoted(variant: str) -> None:
    healthy = {"variant": variant, "step": 1, "phase": Phase.BAKING, "bake": BAKED}
    planned = plan(seen(canary=healthy), now=NOW)
    assert planned.canary.phase is Phase.HELD
    forced = plan(seen(canary=healthy, requests=asked(RequestKind.PROMOTE)), now=NOW)
    assert forced.canary.phase is not Phase.PROMOTED
    assert [answer.answer for answer in forced.answers] == [Answer.REFUSED]


def test_a_person_may_shorten_the_bake_of_a_canary_whose_every_gate_passes() -> None:
    planned = plan(seen(requests=asked(RequestKind.PROMOTE)), now=NOW)
    assert (planned.event, planned.actor) == (Event.PROMOTE_REQUESTED, "ada")
    assert [answer.answer for answer in planned.answers] == [Answer.DONE]


def test_abort_beats_promote() -> None:
    planned = plan(seen(requests=asked(RequestKind.PROMOTE, RequestKind.ABORT)), now=NOW)
    assert planned.event is Event.ABORT_REQUESTED
    assert {a.request.kind: a.answer for a in planned.answers} == {
        RequestKind.ABORT: Answer.DONE,
        RequestKind.PROMOTE: Answer.REFUSED,
    }


# --- bake: time under fresh evidence of both arms ---


def ticked(canary: lifecycle.Canary, *, now_s: float, newest_s: float | None) -> Plan:
    """One look at `now_s`, when the newest record of both arms was received at `newest_s`."""
    at = NOW + seconds(now_s)
    shift = {} if newest_s is None else dict.fromkeys(BOTH_ARMS, NOW + seconds(newest_s))
    fresh = (memory(received_at=NOW + seconds(newest_s or 0)),)
    evidence = build.evidence(newest_record_at=shift, memories=fresh)
    observed = seen(evidence=evidence, policy={"steps": [{**STEPS[0], "bake": "1h"}, STEPS[1]]})
    return plan(
        Observation(
            **{
                **{name: getattr(observed, name) for name in Observation.__slots__},
                "canary": canary,
            }
        ),
        now=at,
    )


def test_a_restart_of_the_controller_never_advances_a_step() -> None:
    """The same records looked at again, a second or an hour later, are worth nothing."""
    canary = ticked(build.canary(), now_s=0, newest_s=0).canary
    canary = ticked(canary, now_s=1, newest_s=1).canary
    assert canary.bake == seconds(1)
    for later_s in (1, 2, 10):
        assert ticked(canary, now_s=later_s, newest_s=1).canary.bake == seconds(1)


def test_a_gap_in_looking_is_worth_two_ticks_at_most() -> None:
    canary = ticked(build.canary(), now_s=0, newest_s=0).canary
    assert ticked(canary, now_s=50, newest_s=50).canary.bake == seconds(2)


def test_the_first_look_of_a_step_is_worth_nothing() -> None:
    planned = ticked(build.canary(), now_s=0, newest_s=0)
    assert (planned.canary.bake, planned.canary.baked_until) == (timedelta(0), NOW)


@pytest.mark.parametrize(
    "newest",
    [
        {"worker-1": NOW},
        {"worker-2": NOW},
        {"worker-1": NOW - seconds(15), "worker-2": NOW},
        {"worker-1": NOW, "worker-2": NOW - seconds(15)},
        {"worker-1": NOW + seconds(1), "worker-2": NOW + seconds(1)},
        {},
    ],
)
def test_nothing_bakes_while_one_arm_is_silent(newest: dict[str, Any]) -> None:
    canary = {"baked_until": NOW - seconds(10), "bake": seconds(3)}
    planned = plan(seen(canary=canary, evidence=build.evidence(newest_record_at=newest)), now=NOW)
    assert planned.canary.bake == seconds(3)


def test_a_held_canary_does_not_bake() -> None:
    canary = {"phase": Phase.HELD, "baked_until": NOW - seconds(10), "bake": seconds(3)}
    assert plan(seen(canary=canary), now=NOW).canary.bake == seconds(3)


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 30)), max_size=15))
def test_bake_never_runs_ahead_of_the_records(gaps: list[tuple[float, float]]) -> None:
    """Whatever the looks and the records do, bake is at most the event time that went by."""
    canary, now_s, newest_s = build.canary(lease_until=NOW + timedelta(days=1)), 0.0, 0.0
    for look_s, record_s in gaps:
        now_s += look_s
        newest_s = min(now_s, newest_s + record_s)
        planned = ticked(canary, now_s=now_s, newest_s=newest_s)
        if planned.event is not None:
            break
        canary = planned.canary
        assert canary.bake <= seconds(newest_s) + timedelta(microseconds=len(gaps))


# --- leases and holds ---


def test_a_lease_is_renewed_on_fresh_evidence_only() -> None:
    lease = build.policy().limits.lease
    assert plan(seen(), now=NOW).canary.lease_until == NOW + lease
    old = {"lease_until": NOW + seconds(5)}
    stale = plan(seen(canary=old, evidence=NOTHING), now=NOW)
    assert stale.canary.lease_until == NOW + seconds(5)


def test_a_new_exposure_has_a_moment_to_send_its_first_record() -> None:
    fresh = {"step_since": NOW - seconds(15), "lease_until": NOW + seconds(5)}
    planned = plan(seen(canary=fresh, evidence=NOTHING), now=NOW)
    assert planned.canary.lease_until == NOW + build.policy().limits.lease


@pytest.mark.parametrize("phase", RUNNING)
def test_a_lapsed_lease_holds_once_and_rolls_back_the_second_time(phase: Phase) -> None:
    lapsed = {"phase": phase, "lease_until": NOW - seconds(1)}
    first = plan(seen(canary=lapsed), now=NOW)
    assert (first.event, first.canary.num_lease_lapses) == (Event.LEASE_LAPSED, 1)
    second = plan(seen(canary={**lapsed, "num_lease_lapses": 1}), now=NOW)
    assert (second.event, second.canary.phase) == (Event.CONTROL_LOST, Phase.ROLLING_BACK)


def test_fresh_evidence_does_not_revive_a_lapsed_lease() -> None:
    """The worker has left the variant by itself: what comes now is evidence of the fallback."""
    lapsed = plan(seen(canary={"lease_until": NOW - seconds(1)}), now=NOW)
    assert lapsed.canary.phase is Phase.HELD
    assert lapsed.canary.lease_until == NOW - seconds(1)


@pytest.mark.parametrize("phase", RUNNING)
def test_a_canary_that_stays_unmeasured_is_held(phase: Phase) -> None:
    limits = {"limits": {"hold_after": "1m", "lease": "1h"}}
    old = {"phase": phase, "lease_until": NOW + seconds(99), "bake": seconds(1)}
    blind = build.evidence(sessions=(), newest_record_at=BOTH_ARMS)
    for since_s, event in ((60, None), (60.001, Event.INCONCLUSIVE)):
        since = NOW - seconds(since_s)
        canary = {**old, "step_since": since, "phase_since": since, "baked_until": None}
        assert plan(seen(canary=canary, policy=limits, evidence=blind), now=NOW).event is event


def test_a_canary_held_for_being_unmeasured_gets_its_time_again_when_resumed() -> None:
    long_ago = NOW - timedelta(minutes=50)
    held = {
        "phase": Phase.HELD,
        "phase_since": NOW - timedelta(minutes=30),
        "step_since": long_ago,
        "baked_until": long_ago,
    }
    blind = build.evidence(sessions=(), newest_record_at=BOTH_ARMS)
    resumed = plan(seen(canary=held, evidence=blind, requests=asked(RequestKind.RESUME)), now=NOW)
    assert resumed.event is Event.RESUMED
    again = Observation(
        **{
            **{name: getattr(seen(evidence=blind), name) for name in Observation.__slots__},
            "canary": resumed.canary,
        }
    )
    assert plan(again, now=NOW + seconds(1)).event is None


def test_resuming_starts_a_new_lease_and_exposes_the_same_workers() -> None:
    held = {"phase": Phase.HELD, "lease_until": NOW - timedelta(hours=1), "num_lease_lapses": 1}
    planned = plan(seen(canary=held, requests=asked(RequestKind.RESUME)), now=NOW)
    assert planned.event is Event.RESUMED
    assert planned.canary.lease_until == NOW + build.policy().limits.lease
    assert planned.expose == ("worker-1",)


def test_a_held_canary_stays_held_however_healthy() -> None:
    assert plan(seen(canary={"phase": Phase.HELD, "bake": BAKED}), now=NOW).event is None


# --- before and after exposure ---


def test_a_canary_starts_when_it_is_its_turn_with_workers_to_compare() -> None:
    pending = {"phase": Phase.PENDING, "lease_until": None}
    assert plan(seen(canary=pending), now=NOW).event is Event.STARTED
    observing = build.fleet(mode=Mode.OBSERVE)
    lone = (worker("worker-1"),)
    foreign = (worker("worker-1"), worker("worker-2", stack="0" * 16))
    for changes in (
        {"is_next": False},
        {"fleet": observing},
        {"workers": lone},
        {"workers": foreign},
        {"workers": ()},
    ):
        assert plan(seen(canary=pending, **changes), now=NOW).event is None


def test_a_pending_canary_expires() -> None:
    pending = {"phase": Phase.PENDING, "created_at": NOW - timedelta(hours=24, seconds=1)}
    assert plan(seen(canary=pending), now=NOW).event is Event.START_EXPIRED


@pytest.mark.parametrize(
    ("phase", "after"),
    [(Phase.PENDING, Phase.CANCELLED), (Phase.PREFLIGHT, Phase.ROLLING_BACK)],
)
def test_a_stopped_fleet_or_a_person_ends_it_before_anything_is_exposed(
    phase: Phase, after: Phase
) -> None:
    stopped = plan(seen(canary={"phase": phase}, fleet=build.fleet(stopped_reason="fire")), now=NOW)
    assert stopped.canary.phase is after
    assert not stopped.expose
    aborted = plan(seen(canary={"phase": phase}, requests=asked(RequestKind.ABORT)), now=NOW)
    assert aborted.canary.phase is after


def test_a_rollback_that_no_worker_needs_is_over_in_two_looks() -> None:
    back = plan(seen(canary={"phase": Phase.ROLLING_BACK}, exposures=()), now=NOW)
    assert (back.event, "no worker ran it" in back.reason) == (Event.CONTAINMENT_SEEN, True)
    done = plan(seen(canary={"phase": Phase.CONTAINED}, exposures=()), now=NOW)
    assert done.canary.phase is Phase.ROLLED_BACK


def test_an_observing_fleet_is_not_exposed_after_preflight() -> None:
    observing = build.fleet(mode=Mode.OBSERVE)
    planned = plan(seen(canary={"phase": Phase.PREFLIGHT}, fleet=observing), now=NOW)
    assert (planned.event, planned.expose) == (None, ())


def test_a_skipped_preflight_says_so_and_exposes_the_first_step() -> None:
    planned = plan(seen(canary={"phase": Phase.PREFLIGHT}, exposures=()), now=NOW)
    assert planned.event is Event.PREFLIGHT_PASSED
    assert "skipped" in planned.reason
    assert planned.expose == ("worker-1",)
    assert planned.canary.lease_until == NOW + build.policy().limits.lease


@pytest.mark.parametrize("phase", EXPOSED)
@pytest.mark.parametrize(
    ("fleet", "event"),
    [
        (build.fleet(stopped_reason="fire"), Event.ABORT_REQUESTED),
        (build.fleet(mode=Mode.OBSERVE), Event.CONTROL_LOST),
    ],
)
def test_a_fleet_that_stops_or_only_observes_takes_its_canary_back(
    phase: Phase, fleet: Any, event: Event
) -> None:
    planned = plan(seen(canary={"phase": phase}, fleet=fleet), now=NOW)
    assert (planned.event, planned.canary.phase) == (event, Phase.ROLLING_BACK)


def test_a_rollback_is_contained_then_verified_by_what_the_workers_say() -> None:
    back = worker(
        "worker-1",
        desired_generation=5,
        effective_generation=5,
        flag_bytes={FLAG: 0},
        flag_bytes_at=NOW,
    )
    rolling = {"phase": Phase.ROLLING_BACK, "phase_since": NOW - seconds(1)}
    planned = plan(seen(canary=rolling, workers=(back,)), now=NOW)
    assert planned.event is Event.CONTAINMENT_SEEN
    contained = {"phase": Phase.CONTAINED, "phase_since": NOW - seconds(1)}
    done = plan(seen(canary=contained, workers=(back,), exposures=planned.exposures), now=NOW)
    assert (done.event, done.canary.phase) == (Event.VERIFICATION_SEEN, Phase.ROLLED_BACK)


def test_a_rollback_waits_for_every_worker() -> None:
    rolling = {"phase": Phase.ROLLING_BACK, "phase_since": NOW - seconds(1)}
    both = (exposure(), exposure("worker-2"))
    workers = (worker("worker-1"), worker("worker-2", desired_generation=2))
    planned = plan(seen(canary=rolling, exposures=both, workers=workers), now=NOW)
    assert [each.contained_at for each in planned.exposures] == [NOW, None]
    assert (planned.event, planned.canary.phase) == (None, Phase.ROLLING_BACK)


# --- whatever is seen ---


@pytest.mark.parametrize(("phase", "kind"), list(product(Phase, RequestKind)))
def test_every_request_is_answered_in_one_tick(phase: Phase, kind: RequestKind) -> None:
    """An operator is never left without an answer."""
    planned = plan(seen(canary={"phase": phase}, requests=asked(kind, kind)), now=NOW)
    assert [answer.request.kind for answer in planned.answers] == [kind, kind]
    assert all(answer.detail for answer in planned.answers)


EVIDENCE = st.builds(
    build.evidence,
    sessions=st.lists(
        st.builds(
            session,
            id=st.uuids().map(str),
            fps=st.one_of(st.none(), st.floats(), st.just(24.5)),
            outcome=st.sampled_from([None, *Outcome]),
            streamed_s=st.one_of(st.just(20.0), st.floats()),
            first_forward_length=st.integers(0, 5),
        ),
        max_size=5,
    ).map(tuple),
    trips=st.lists(st.builds(trip, reason=st.sampled_from(Reason)), max_size=1).map(tuple),
    newest_record_at=st.dictionaries(
        st.sampled_from(["worker-1", "worker-2"]),
        st.integers(-90, 20).map(lambda s: NOW + seconds(s)),
    ),
)


@given(
    st.sampled_from(Phase),
    EVIDENCE,
    st.lists(st.sampled_from(RequestKind), max_size=3),
    st.sampled_from([None, "fire"]),
    st.sampled_from(Mode),
    st.sampled_from([FUSED, "fused_all"]),
    st.integers(0, 30),
)
def test_whatever_is_seen_the_plan_is_legal(  # noqa: PLR0913 - one per thing that varies
    phase: Phase,
    evidence: Evidence,
    kinds: list[RequestKind],
    stopped: str | None,
    mode: Mode,
    variant: str,
    bake_s: int,
) -> None:
    observed = seen(
        canary={"phase": phase, "variant": variant, "bake": seconds(bake_s)},
        evidence=evidence,
        requests=asked(*kinds),
        fleet=build.fleet(stopped_reason=stopped, mode=mode),
    )
    planned = plan(observed, now=NOW)
    lifecycle.check_invariants(planned.canary)
    if planned.event is None:
        assert planned.canary.phase is phase
    else:
        assert TRANSITIONS[phase, planned.event] is planned.canary.phase
        assert planned.reason
    assert len(planned.answers) == len(kinds)
    if planned.canary.phase is Phase.PROMOTED and phase is not Phase.PROMOTED:
        assert variant == FUSED
        assert planned.judgement is not None
        assert planned.judgement.verdict is Verdict.PASSING
        assert stopped is None
    if phase in TERMINAL:
        assert planned.canary == observed.canary


def test_a_lease_that_lapsed_on_the_worker_holds_the_canary() -> None:
    """Its clock may run out while ours was renewed: then only a new generation leads back.

    Seen with a control plane that was killed again and again: the canary waited for sessions
    that no worker would ever give it.
    """
    left = worker("worker-1", is_lease_lapsed=True)
    others = tuple(worker(f"worker-{n}") for n in (2, 3, 4))
    planned = plan(seen(workers=(left, *others)), now=NOW)
    assert planned.event is Event.LEASE_LAPSED
    assert "worker-1" in planned.canary.reason
    behind = worker("worker-1", is_lease_lapsed=True, desired_generation=99)
    assert plan(seen(workers=(behind, *others)), now=NOW).event is not Event.LEASE_LAPSED


@pytest.mark.parametrize("phase", RUNNING)
def test_a_canary_that_does_not_come_to_pass_is_held_and_says_what_is_missing(phase: Phase) -> None:
    """Nothing goes on for ever, and a person should not have to guess what it waits for."""
    few = build.evidence(sessions=(session(),), newest_record_at=BOTH_ARMS)
    canary = {"phase": phase, "phase_since": NOW - seconds(60), "step_since": NOW - seconds(60)}
    waiting: dict[str, Any] = {"canary": canary, "evidence": few}
    not_yet = seen(policy={"limits": {"decide_within": "60s"}}, **waiting)
    assert plan(not_yet, now=NOW).event is None
    held = plan(seen(policy={"limits": {"decide_within": "59s"}}, **waiting), now=NOW)
    assert (held.event, held.canary.phase) == (Event.INCONCLUSIVE, Phase.HELD)
    assert held.reason.startswith("still not passing after 59s: memory: 1 distinct")
    assert "sample: 1 sessions of the canary arm judged, 2 asked for" in held.reason


def test_a_bake_that_passes_may_take_longer_than_deciding_may() -> None:
    canary = {"step_since": NOW - timedelta(hours=30), "phase_since": NOW - timedelta(hours=30)}
    long = [{"name": "one", "workers": 1, "bake": "15h", "least_sessions": 2}]
    passing = seen(
        canary={**canary, "phase": Phase.BAKING},
        policy={"steps": long, "limits": {"decide_within": "1h"}},
    )
    assert plan(passing, now=NOW).event is None


def test_a_canary_that_was_held_for_long_and_is_not_resumed_is_withdrawn() -> None:
    """No decision is not healthy, and it must not keep the next canary waiting for ever."""
    limit = build.policy().limits.decide_within
    for since, event in ((limit, None), (limit + seconds(1), Event.WITHDRAWN)):
        planned = plan(
            seen(canary={"phase": Phase.HELD, "phase_since": NOW - since}),
            now=NOW,
        )
        assert planned.event is event
    assert planned.canary.phase is Phase.ROLLING_BACK
    assert planned.reason.startswith("inconclusive: held for over 1d and not resumed")


def test_whoever_resumes_at_the_last_moment_comes_before_the_withdrawal() -> None:
    limit = build.policy().limits.decide_within
    planned = plan(
        seen(
            canary={"phase": Phase.HELD, "phase_since": NOW - limit - seconds(1)},
            requests=asked(RequestKind.RESUME),
        ),
        now=NOW,
    )
    assert planned.event is Event.RESUMED
