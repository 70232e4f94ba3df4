"""An explanation says what is true in every phase, and its what-ifs hold when they are tried."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controlplane.contract.vocabulary import ARM_CANARY, ARM_CONTROL, Outcome
from controlplane.domain import counterfactual, explanation, judge
from controlplane.domain.blocks import SLOW, Block
from controlplane.domain.canary import EXPOSED, Event, Phase
from controlplane.domain.containment import Exposure
from controlplane.domain.explanation import Decided, Explanation, Subject
from controlplane.domain.policy import RegressionGate
from controlplane.domain.verdict import Case, Verdict
from tests.domain import build
from tests.domain.build import FUSED, NOW, session, trip
from tests.domain.test_compared_gates import GATES, STEP, block

ABSOLUTE = build.document()["gates"]
STALL = {"gate": "stall", "metric": "longest_stall", "at_most": "2s"}


def case(blocks: Sequence[Block] = (), **changes: Any) -> Case:
    """Everything absolute is asked, and what compares arms where there are blocks."""
    compared = [one for one in GATES if one["gate"] != "freshness"] if blocks else []
    step = {**STEP, **({"margin": "3%"} if blocks else {})}
    policy = build.policy(gates=[*ABSOLUTE, STALL, *compared], steps=[step])
    base = Case(
        policy=policy,
        step=policy.steps[0],
        variant=FUSED,
        exposed=frozenset({"worker-1"}),
        exposed_since=NOW - timedelta(hours=1),
        step_since=NOW - timedelta(minutes=5),
        evidence=build.evidence(),
        blocks=tuple(blocks),
    )
    return replace(base, **changes)


def decided(event: Event, *, actor: str = "steadyframe") -> Decided:
    return Decided(event=event, at=NOW, actor=actor, reason="as it is")


def explain(
    phase: Phase, case: Case | None = None, *, event: Event | None = None, **changes: Any
) -> Explanation:
    judgement = judge.judge(case, now=NOW) if case else None
    base = Subject(
        canary=build.canary(phase=phase),
        policy=case.policy if case else build.policy(),
        exposures=(
            Exposure(
                worker_id="id-worker-1",
                worker="worker-1",
                incarnation="life",
                exposed_at=NOW,
                flag_bytes_before=0,
            ),
        ),
        decided=decided(event) if event else None,
        ahead=(),
        judgement=judgement,
        judged_at=NOW if judgement else None,
        case=case,
    )
    return explanation.explain(replace(base, **changes))


def with_sessions(*sessions: Any, **changes: Any) -> Case:
    return case(evidence=build.evidence(sessions=sessions, **changes))


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("judged", [None, case(), case([block(0, (1, 0))]), with_sessions()])
def test_every_phase_has_an_answer_and_says_what_it_needs(
    phase: Phase, judged: Case | None
) -> None:
    """Whoever was woken reads the first line; it must be there whatever is known."""
    said = explain(phase, judged)
    assert said.answer.startswith("fused-allreduce-1 ")
    assert said.needs
    assert len(said.gates) == (len(judge.judge(judged, now=NOW).results) if judged else 0)
    assert all(sentence.strip() for sentence in (*said.needs, *said.what_if))


@pytest.mark.parametrize(
    ("sessions", "gate"),
    [
        ((session("bad", fps=22.5), session("fine")), "floor"),
        ((session("bad", longest_stall_ms=2500.0), session("fine")), "stall"),
        ((session("bad", outcome=Outcome.LOST, fps=None), session("fine")), "failures"),
    ],
)
def test_a_single_session_that_decided_is_named(sessions: Any, gate: str) -> None:
    judged = with_sessions(*sessions)
    said = explain(Phase.ROLLED_BACK, judged, event=Event.GATE_FAILED)
    assert [one.gate for one in said.gates if one.verdict is Verdict.FAILING] == [gate]
    assert said.what_if == ("without session bad on worker-1 no gate would have failed then",)


@pytest.mark.parametrize(
    "sessions",
    [
        (session("one", fps=22.5), session("two", fps=23.0)),
        tuple(session(f"s{n}", fps=20.0) for n in range(30)),
        (session("one", fps=22.5), session("two", outcome=Outcome.LOST, fps=None)),
    ],
)
def test_of_several_sessions_none_is_blamed_alone(sessions: Any) -> None:
    (said,) = explain(Phase.ROLLING_BACK, with_sessions(*sessions), event=Event.GATE_FAILED).what_if
    assert "no single session or trip decided it" in said


def test_a_trip_that_decided_is_named_and_memory_blames_no_session() -> None:
    tripped = with_sessions(session(), trips=(trip(),))
    assert explain(Phase.CONTAINED, tripped, event=Event.HARD_STOPPED).what_if == (
        "without the trip on worker-1 (out_of_memory) no gate would have failed then",
    )
    growing = build.memory(lengths={n: n * 2**24 for n in (1, 2, 3)})
    leaking = case(evidence=build.evidence(memories=(growing,)))
    (said,) = explain(Phase.CONTAINED, leaking, event=Event.GATE_FAILED).what_if
    assert said == "no single session or trip decided it: memory would have failed anyway"


@pytest.mark.parametrize("event", [Event.ABORT_REQUESTED, Event.CONTROL_LOST])
def test_what_a_person_or_lost_control_sent_back_is_laid_to_no_session(event: Event) -> None:
    """A gate may have failed in the same look; it is not what decided."""
    judged = with_sessions(session("bad", fps=22.5))
    said = explain(Phase.ROLLED_BACK, judged, decided=decided(event, actor="ada"))
    (what_if,) = said.what_if
    assert "no gate that sent it back: ada did" in what_if
    assert "admin" not in " ".join(said.needs)


def test_what_is_not_on_record_is_said_to_be_so() -> None:
    judged = with_sessions(session("bad", fps=22.5))
    said = explain(
        Phase.ROLLED_BACK,
        None,
        event=Event.GATE_FAILED,
        judgement=judge.judge(judged, now=NOW),
        judged_at=NOW,
    )
    assert "cannot be said" in said.what_if[0]
    assert said.evidence is None


@pytest.mark.parametrize("phase", EXPOSED)
def test_so_many_more_slow_sessions_as_it_says_send_it_back_and_no_fewer(phase: Phase) -> None:
    """Tried with blocks of the real gate, not with the function that foretold it."""
    judged = case([block(0, (1, 0)), block(1, (1, 0))])
    told = next(one for one in explain(phase, judged).what_if if "slow canary" in one)
    number = 1 if told.startswith("one more") else int(told.split()[0])
    for bad, expected in ((number, True), (number - 1, False)):
        more = (*judged.blocks, block(2, (bad, 0)))
        result = judge.judge(replace(judged, blocks=more), now=NOW).result("regression")
        assert (result.verdict is Verdict.FAILING) is expected, told


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_so_many_more_failed_sessions_as_it_says_send_it_back(allowed: int) -> None:
    gates = [{"gate": "failures", "metric": "failed_sessions", "at_most": allowed}]
    policy = build.policy(gates=[*gates, ABSOLUTE[-1]])
    lost = [session(f"lost-{n}", outcome=Outcome.LOST, fps=None) for n in range(allowed + 1)]
    judged = replace(with_sessions(session()), policy=policy)
    (told,) = [one for one in explain(Phase.PROGRESSING, judged).what_if if "failures" in one]
    number = 1 if told.startswith("one more") else int(told.split()[0])
    assert number == allowed + 1
    for count in (number - 1, number):
        some = replace(judged, evidence=build.evidence(sessions=(session(), *lost[:count])))
        is_failing = judge.judge(some, now=NOW).verdict is Verdict.FAILING
        assert is_failing is (count == number)


def test_one_failed_process_more_is_counted_against_those_that_did_not_fail() -> None:
    """1 of 10 against 0 of 40 is evidence of 2.584; a weight of 0.3 of it, and 1 for the rest.

    Source of 2.584: statistics.md, test oracles, "one block (a of 10, 0 of 40)".
    """
    exposed = frozenset(f"worker-{n}" for n in range(10))
    sessions = tuple(session(f"s{n}", worker=f"worker-{n}") for n in range(50))
    judged = case(exposed=exposed, evidence=build.evidence(sessions=sessions))
    value = counterfactual.with_failure(judged, RegressionGate(), now=NOW)
    assert value == pytest.approx(0.6 + 0.3 * 2.584 + 0.1, abs=1e-3)
    alone = replace(judged, exposed=frozenset(f"worker-{n}" for n in range(50)))
    assert counterfactual.with_failure(alone, RegressionGate(), now=NOW) is None


def test_the_p_value_is_of_the_highest_evidence_so_far() -> None:
    """(3, 0) of 10 and 40 alone is 34.346 (statistics.md); a good block after it takes nothing."""
    found = explain(Phase.PROGRESSING, case([block(0, (3, 0)), block(1, (0, 3))])).evidence
    assert found is not None
    assert found.value is not None
    assert found.highest is not None
    assert found.highest == pytest.approx(0.6 * 34.346 + 0.4, abs=1e-3)
    assert found.value < found.highest
    assert found.p_value == pytest.approx(1 / (0.6 * 34.346 + 0.4), rel=1e-4)
    assert found.attributed == SLOW


def test_without_harm_the_p_value_is_one() -> None:
    found = explain(Phase.PROGRESSING, case([block(0, (0, 3))])).evidence
    assert found is not None
    assert found.p_value == 1.0


def test_rates_of_both_arms_come_with_intervals_that_hold_at_every_look() -> None:
    """3 of 400: [.00024553, .027878023] (statistics.md, from confseq)."""
    found = explain(Phase.PROGRESSING, case([block(0, (3, 28), canary=400, control=400)])).evidence
    assert found is not None
    canary, control = (one for one in found.rates if one.of == "slow")
    assert (canary.arm, canary.num_bad, canary.num) == ("canary", 3, 400)
    assert (canary.low, canary.high) == pytest.approx((0.00024553, 0.027878023), abs=1e-6)
    assert (control.low, control.high) == pytest.approx((0.037045591, 0.114613491), abs=1e-6)


def test_with_one_slow_session_less_it_says_what_the_evidence_would_have_been() -> None:
    judged = case([block(0, (5, 0))])
    told = explain(Phase.ROLLED_BACK, judged, event=Event.GATE_FAILED).what_if[0]
    # (4, 0) of 10 and 40: 155.198, times 0.6, and 0.4.
    assert "would have been 93.5, below it" in told


def test_a_margin_is_above_zero_on_the_good_side_and_below_beyond_it() -> None:
    good = {one.gate: one for one in explain(Phase.PROGRESSING, case([block(0)])).gates}
    bad_sessions = (session("bad", fps=22.5), session("lost", outcome=Outcome.LOST, fps=None))
    bad = {one.gate: one for one in explain(Phase.HELD, with_sessions(*bad_sessions)).gates}
    assert good["floor"].margin == pytest.approx(0.5)
    assert bad["floor"].margin == pytest.approx(-1.5)
    assert (good["failures"].margin, bad["failures"].margin) == (0, -1)
    assert good["regression"].margin == 99
    assert good["non_inferiority"].margin is not None
    assert good["non_inferiority"].margin < 0


def test_what_is_missing_comes_with_its_number() -> None:
    """Clean sessions for a margin of 3 points from nothing: 11 blocks of 10 (statistics.md)."""
    few = case([block(0)], evidence=build.evidence(sessions=(session(),)))
    needs = " | ".join(explain(Phase.PROGRESSING, few).needs)
    assert "sample: 1 more" in needs
    assert "10 s more of bake" in needs
    found = re.search(r"non_inferiority: at least (\d+) more canary sessions", needs)
    assert found is not None
    assert int(found[1]) == 100


def test_a_pending_canary_names_those_in_front_of_it() -> None:
    assert (
        "fused-allreduce-0 to be over"
        in explain(Phase.PENDING, ahead=("fused-allreduce-0",)).needs[0]
    )


def test_a_held_canary_says_until_when_it_waits() -> None:
    """Held a minute ago, under a policy that waits for two hours."""
    policy = build.policy(limits={"decide_within": "2h"})
    needs = explain(Phase.HELD, policy=policy).needs
    assert "canary resume fused-allreduce-1" in needs[0]
    assert needs[1] == "it is withdrawn after 2026-10-08 13:59:00Z unless it is resumed"


def test_of_transitions_the_newest_that_decided_counts() -> None:
    """What was only seen afterwards is no decision."""
    events = (Event.VERIFICATION_SEEN, Event.CONTAINMENT_SEEN, Event.GATE_FAILED, Event.STARTED)
    found = explanation.deciding(iter([decided(event) for event in events]))
    assert found is not None
    assert found.event is Event.GATE_FAILED
    assert explanation.deciding(iter([])) is None


def test_a_promoted_canary_says_what_would_have_sent_it_back() -> None:
    said = explain(Phase.PROMOTED, case([block(0)])).what_if
    assert any("would have sent it back" in one for one in said)


def test_the_arms_are_not_mixed_up() -> None:
    """A slow control decides nothing."""
    slow = session("slow", fps=20.0, arm=ARM_CONTROL, worker="worker-2")
    judged = with_sessions(session("bad", fps=22.5, arm=ARM_CANARY), slow)
    said = explain(Phase.ROLLED_BACK, judged, event=Event.GATE_FAILED).what_if
    assert said == ("without session bad on worker-1 no gate would have failed then",)
