"""How the demo judges what it saw: pure, so that a wrong end cannot pass for a right one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from controlplane.cli.demo import scenes, show, story, watching
from controlplane.cli.demo.story import (
    CanarySeen,
    ExposedSeen,
    GateSeen,
    SceneResult,
    Snapshot,
    ViewerSession,
    WorkerSeen,
)
from controlplane.cli.demo.summary import Summary

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SESSION = ViewerSession(
    worker="worker-a",
    outcome="left",
    fps=24.9,
    streamed_s=5.0,
    first_forward_length=16,
    longest_gap_ms=45.0,
    ended_at=AT,
)
WORKER = WorkerSeen(
    name="worker-a",
    flags={"fused_allreduce": "nccl"},
    generation=1,
    desired_generation=1,
    is_effective=True,
    is_healthy=True,
)
RESULT = SceneResult(title="1 adopt", is_as_expected=True, outcome="holds", reason="", took_s=1.0)


def canary(*, phase: str = "rolled_back", gate: str = "memory") -> CanarySeen:
    """Sent back by `gate`; contained after one second, verified after three."""
    return CanarySeen(
        name="fused-allreduce-2",
        variant="fused_all",
        phase=phase,
        step=0,
        reason="",
        gates=(GateSeen(gate=gate, verdict="failing", reason="", failed_at=AT),),
        exposed=(
            ExposedSeen(
                worker="worker-a",
                contained_at=AT + timedelta(seconds=1),
                verified_at=AT + timedelta(seconds=3),
            ),
        ),
    )


def test_a_failed_or_slow_session_is_harmed_and_a_short_one_is_not_judged() -> None:
    """The control plane's bounds: the floor itself is met, under a second says nothing."""
    assert not SESSION.is_harmed
    assert replace(SESSION, fps=23.99).is_harmed
    assert not replace(SESSION, fps=24.0).is_harmed
    assert not replace(SESSION, fps=10.0, streamed_s=0.5).is_harmed
    assert replace(SESSION, fps=None, outcome="failed").is_harmed
    assert replace(SESSION, fps=None, outcome="cut_off").is_harmed


def test_seconds_count_from_the_first_failing_record_to_the_last_worker() -> None:
    """A mean would hide the worker that took longest."""
    late = ExposedSeen(worker="worker-b", contained_at=AT + timedelta(seconds=2), verified_at=None)
    seen = canary()
    assert story.seconds_to_contained(seen) == 1.0
    assert story.seconds_to_verified(seen) == 3.0
    both = replace(seen, exposed=(*seen.exposed, late))
    assert story.seconds_to_contained(both) == 2.0
    assert story.seconds_to_verified(both) is None


def test_a_rollback_for_another_reason_is_not_the_expected_end() -> None:
    """A canary of the August kernel that is sent back for its frame rate has shown nothing."""
    assert scenes._gate_problems(canary(), ("memory",)) == []
    assert "floor" in scenes._gate_problems(canary(gate="floor"), ("memory",))[0]
    assert scenes._gate_problems(replace(canary(), gates=()), ("memory",)) != []
    assert scenes._phase_problems(canary(phase="held"), expected="rolled_back") != []


def test_a_rollback_that_is_not_verified_is_not_the_expected_end() -> None:
    """Quarantine ends a canary too, but nobody has seen its memory given back."""
    unverified = replace(canary().exposed[0], verified_at=None)
    assert scenes._gate_problems(replace(canary(), exposed=(unverified,)), ("memory",)) != []


def test_harm_to_a_healthy_worker_is_told() -> None:
    """Viewers of the others must not notice that a canary runs."""
    told = scenes.healthy_problems([SESSION, replace(SESSION, fps=23.0)])
    assert len(told) == 1
    assert "23.00" in told[0]


def test_every_worker_must_be_effective_on_the_variant() -> None:
    """A worker that has not acknowledged never counts as flipped."""
    is_on = scenes.is_on("nccl")
    assert is_on(Snapshot(workers=(WORKER,)))
    assert not is_on(Snapshot())
    assert not is_on(Snapshot(workers=(WORKER, replace(WORKER, is_effective=False))))
    assert not scenes.is_on("fused_steady")(Snapshot(workers=(WORKER,)))


def test_only_what_is_new_is_told() -> None:
    """A line for each change, none for each look."""
    flipped = replace(WORKER, flags={"fused_allreduce": "fused_all"}, generation=2)
    before = Snapshot(workers=(WORKER,), canary=canary(phase="progressing"))
    after = Snapshot(workers=(flipped,), canary=canary(phase="rolling_back"))
    assert show.news(before, before) == []
    assert [text.split(",")[0] for text in show.news(before, after)] == [
        "worker-a runs fused_allreduce=fused_all",
        "fused-allreduce-2: rolling_back",
    ]


def test_a_scene_that_was_not_played_fails_the_demo() -> None:
    """Three good scenes of four are not a good demo."""
    summary = Summary(
        scenes=(RESULT,),
        num_scenes=1,
        took_s=1.0,
        peak_memory_bytes=0,
        lowest_healthy_fps=None,
        num_sessions=0,
        worker_cpu_percent=None,
    )
    assert summary.is_as_expected
    assert not replace(summary, num_scenes=4).is_as_expected
    assert not replace(summary, scenes=(replace(RESULT, is_as_expected=False),)).is_as_expected


def test_the_api_s_answer_becomes_a_canary_with_gates_and_workers() -> None:
    """The one place that knows the keys of the API's answers."""
    seen = watching.canary_of(
        {
            "canary": {
                "name": "c-1",
                "variant": "fused_all",
                "phase": "contained",
                "step": 0,
                "reason": "memory",
            },
            "gates": [
                {
                    "gate": "memory",
                    "verdict": "failing",
                    "reason": "8 MiB",
                    "failed_at": "2026-11-30T12:00:00+00:00",
                }
            ],
            "workers": [{"worker": "worker-a", "contained_at": "2026-11-30T12:00:01Z"}],
        }
    )
    failing = seen.first_failing()
    assert failing is not None
    assert failing.failed_at == AT
    assert seen.exposed_names == {"worker-a"}
    assert seen.exposed[0].verified_at is None


def test_a_scene_is_played_again_only_if_those_who_took_no_part_were_harmed() -> None:
    """A variant that harms its own sessions must fail; a machine that stalls shows nothing."""
    failed = replace(RESULT, is_as_expected=False)
    assert not RESULT.is_disturbed
    assert not replace(failed, num_sessions_harmed=3).is_disturbed
    assert replace(failed, num_healthy_harmed=1).is_disturbed
    assert not replace(RESULT, num_healthy_harmed=1).is_disturbed
