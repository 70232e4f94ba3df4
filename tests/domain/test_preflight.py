"""Whether a variant may meet a viewer: nothing missing passes, and a refusal names its numbers."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controlplane.contract.vocabulary import Reason
from controlplane.domain import preflight
from controlplane.domain.canary import Event, Phase
from controlplane.domain.containment import Exposure
from controlplane.domain.evidence import Evidence, ProbeEvidence, QualityEvidence
from controlplane.domain.fleet import Mode
from controlplane.domain.observation import Observation, Request, RequestKind
from controlplane.domain.plan import plan
from controlplane.domain.verdict import Verdict
from tests.domain import build
from tests.domain.build import FLAG, NOW, seconds, worker

MIB = 2**20
ASKED = {
    "lengths": {"from": 8, "to": 120, "number": 8},
    "retained_at_most": "1MiB",
    "rollback_within": "2s",
    "within": "30s",
}
LENGTHS = (8, 24, 40, 56, 72, 88, 104, 120)
EXPOSURE = Exposure(
    worker_id="id-worker-1",
    worker="worker-1",
    incarnation="incarnation-worker-1",
    exposed_at=NOW - seconds(10),
    flag_bytes_before=0,
)


def probe(**changes: Any) -> ProbeEvidence:
    """Every length run, a single buffer of 8 MiB for all of them, back in 40 ms."""
    base = ProbeEvidence(
        id="canary-1-3",
        worker="worker-1",
        incarnation="incarnation-worker-1",
        received_at=NOW - seconds(1),
        lengths=dict.fromkeys(LENGTHS, 0) | {8: 8 * MIB},
        flag_bytes_before=0,
        rollback_ms=40.0,
        flag_bytes_left=0,
        fault=None,
        detail="",
    )
    return replace(base, **changes)


def seen(*probes: ProbeEvidence, phase: Phase = Phase.PREFLIGHT, **changes: Any) -> Observation:
    """A canary ten seconds into its preflight on one of four workers."""
    fields: dict[str, Any] = {
        "canary": build.canary(phase=phase, phase_since=NOW - seconds(10), lease_until=None),
        "policy": build.policy(preflight=ASKED),
        "catalogue": build.catalogue(),
        "fleet": build.fleet(),
        "workers": tuple(worker(f"worker-{n}") for n in (1, 2, 3, 4)),
        "exposures": (EXPOSURE,),
        "evidence": Evidence(
            sessions=(), memories=(), trips=(), newest_record_at={}, probes=probes
        ),
        "requests": (),
        "is_next": True,
        "tick": seconds(1),
    }
    return Observation(**{**fields, **changes})


def request(kind: RequestKind) -> Request:
    return Request(id="request-1", kind=kind, actor="ada", reason="because")


def test_without_a_report_it_waits_and_then_is_held_as_unmeasured() -> None:
    assert plan(seen(), now=NOW).event is None
    late = plan(seen(), now=NOW + seconds(21))
    assert (late.event, late.canary.phase) == (Event.INCONCLUSIVE, Phase.HELD)
    assert "no result within 30 s" in late.reason
    assert not late.expose


def test_a_report_that_passes_exposes_the_first_step() -> None:
    passed = plan(seen(probe()), now=NOW)
    assert (passed.event, passed.canary.phase) == (Event.PREFLIGHT_PASSED, Phase.PROGRESSING)
    assert passed.expose == ("worker-1",)
    assert passed.canary.lease_until is not None
    assert "back in 40 ms" in passed.reason


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"lengths": dict.fromkeys(LENGTHS, 16 * MIB)},
            "keeps 16.0 MiB for first-forward length 8, 1MiB allowed; 8 of 8 lengths are above",
        ),
        ({"rollback_ms": 2000.5}, "took 2000 ms to the fallback, 2000 ms allowed"),
        ({"flag_bytes_left": 1}, "1 bytes left on the fallback after the drill, 0 before it"),
        ({"fault": Reason.NAN, "detail": "block 2"}, "nan after 8 lengths: block 2"),
        (
            {"fault": Reason.OUT_OF_MEMORY, "lengths": {8: 1}, "rollback_ms": None},
            "out_of_memory after 1 lengths",
        ),
    ],
)
def test_a_report_that_fails_sends_it_back_and_names_the_numbers(
    changes: dict[str, Any], told: str
) -> None:
    failed = plan(seen(probe(**changes)), now=NOW)
    assert (failed.event, failed.canary.phase) == (Event.GATE_FAILED, Phase.ROLLING_BACK)
    assert told in failed.reason
    assert failed.judgement is not None
    assert failed.judgement.result("preflight").failed_at == NOW - seconds(1)


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": dict.fromkeys(LENGTHS[:-1], 0)},
        {"lengths": {}},
        {"rollback_ms": None},
        {"flag_bytes_left": None},
        {"detail": "the engine refused", "lengths": {}},
    ],
)
def test_half_a_report_is_no_pass(changes: dict[str, Any]) -> None:
    """A worker that was stopped in the middle has measured nothing that could be signed off."""
    half = seen(probe(**changes))
    assert plan(half, now=NOW).event is None
    asked = half.policy.preflight
    assert asked is not None
    assert preflight.result(asked, half.case).verdict is Verdict.UNMEASURED
    assert plan(half, now=NOW + seconds(21)).event is Event.INCONCLUSIVE


def test_exactly_the_bounds_are_allowed() -> None:
    lengths = dict.fromkeys(LENGTHS, MIB)
    at_bound = probe(lengths=lengths, rollback_ms=2000.0, flag_bytes_before=7, flag_bytes_left=7)
    assert plan(seen(at_bound), now=NOW).event is Event.PREFLIGHT_PASSED


def test_a_trip_while_it_is_probed_is_a_hard_stop() -> None:
    """The report of a group that died may be longer under way than its trip."""
    evidence = replace(seen().evidence, trips=(build.trip(),))
    stopped = plan(seen(evidence=evidence), now=NOW)
    assert (stopped.event, stopped.canary.phase) == (Event.HARD_STOPPED, Phase.ROLLING_BACK)


@pytest.mark.parametrize(
    ("changes", "event"),
    [
        ({"requests": (request(RequestKind.ABORT),)}, Event.ABORT_REQUESTED),
        ({"fleet": build.fleet(stopped_reason="fire")}, Event.ABORT_REQUESTED),
        ({"fleet": build.fleet(mode=Mode.OBSERVE)}, Event.CONTROL_LOST),
    ],
)
def test_whoever_ends_a_preflight_still_waits_for_the_worker_to_be_back(
    changes: dict[str, Any], event: Event
) -> None:
    ended = plan(seen(probe(), **changes), now=NOW)
    assert (ended.event, ended.canary.phase) == (event, Phase.ROLLING_BACK)
    on_variant = worker("worker-1", effective_flags={FLAG: build.FUSED}, desired_generation=2)
    back = seen(phase=Phase.ROLLING_BACK, workers=(on_variant,))
    assert plan(back, now=NOW).event is None


def test_a_paused_preflight_is_held_and_resumed_by_starting_it_again() -> None:
    paused = plan(seen(requests=(request(RequestKind.PAUSE),)), now=NOW)
    assert (paused.event, paused.canary.phase) == (Event.PAUSED, Phase.HELD)
    held = seen(canary=paused.canary, requests=(request(RequestKind.RESUME),))
    resumed = plan(held, now=NOW)
    assert (resumed.event, resumed.canary.phase) == (Event.STARTED, Phase.PREFLIGHT)
    assert resumed.expose == ("worker-1",)
    assert resumed.canary.lease_until is None
    assert preflight.probe_id(resumed.canary) != preflight.probe_id(seen().canary)


def test_a_late_report_counts_for_a_canary_that_was_held_for_want_of_it() -> None:
    held: dict[str, Any] = {"phase": Phase.HELD, "requests": (request(RequestKind.RESUME),)}
    passed = plan(seen(probe(), **held), now=NOW)
    assert (passed.event, passed.canary.phase) == (Event.RESUMED, Phase.PROGRESSING)
    failed = plan(seen(probe(flag_bytes_left=1), **held), now=NOW)
    assert (failed.event, failed.canary.phase) == (Event.GATE_FAILED, Phase.ROLLING_BACK)


def test_a_preflight_starts_on_one_worker_however_many_the_first_step_wants() -> None:
    steps = [{"name": "one", "workers": "50%", "bake": "10s", "least_sessions": 2}]
    policy = build.policy(preflight=ASKED, steps=steps)
    pending = seen(phase=Phase.PENDING, policy=policy, exposures=())
    pending = replace(pending, canary=replace(pending.canary, created_at=NOW - timedelta(hours=1)))
    assert plan(pending, now=NOW).expose == ("worker-1",)
    skipped = replace(pending, policy=build.policy(steps=steps))
    assert plan(skipped, now=NOW).expose == ()


@pytest.mark.parametrize(
    ("name", "is_asked"),
    [
        ("canary-1-3", True),
        ("canary-1-2", True),
        ("canary-1-4", False),
        ("canary-2-3", False),
        ("canary-1-x", False),
        ("canary-1", False),
        ("", False),
    ],
)
def test_only_a_probe_that_the_canary_asked_for_is_its_own(name: str, is_asked: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert preflight.has_asked(build.canary(version=3), name) is is_asked


def test_a_picture_that_is_known_to_be_wrong_is_shown_to_nobody() -> None:
    gates = [*build.document()["gates"], QUALITY]
    for value, event in ((0.8999999, Event.GATE_FAILED), (0.9, Event.PREFLIGHT_PASSED)):
        report = QualityEvidence(
            id="q", measure="vmaf", value=value, num_samples=10, received_at=NOW - seconds(2)
        )
        known = replace(seen(probe()).evidence, qualities=(report,))
        policy = build.policy(preflight=ASKED, gates=gates)
        planned = plan(seen(policy=policy, evidence=known), now=NOW)
        assert planned.event is event
    unknown = plan(seen(probe(), policy=policy), now=NOW)
    assert unknown.event is Event.PREFLIGHT_PASSED, "it is asked about later"


QUALITY = {"gate": "quality", "metric": "quality", "measure": "vmaf", "at_least": 0.9}
