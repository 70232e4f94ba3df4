"""The scenes of the demo, each with the end it must have."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from controlplane.cli.demo import story
from controlplane.cli.demo.show import Show
from controlplane.cli.demo.stage import WORKERS
from controlplane.cli.demo.story import CanarySeen, SceneResult, Snapshot, ViewerSession
from controlplane.cli.demo.watching import FLAG, FLEET
from controlplane.contract import vocabulary

FALLBACK: Final = "nccl"
# Within the demo model's bounds of 8 to 128 tokens, all different: a prompt's length is its own.
LENGTHS: Final = tuple(range(16, 128, 7))
# The worker that a canary exposes first, by name, and what its viewers bring in one scene.
CANARY_WORKER: Final = WORKERS[0]
ONE_LENGTH: Final = (64,)
PREFLIGHT: Final = "preflight"
START_WITHIN_S: Final = 60.0
FLIP_WITHIN_S: Final = 20.0
CANARY_WITHIN_S: Final = 90.0
# Two sessions of every worker.
HOLD_S: Final = 11.0
_ENDED: Final = frozenset({"promoted", "rolled_back", "cancelled"})


def adopted(show: Show) -> SceneResult:
    """The fleet is taken in on its fallback, first only watched, then in Steadyframe's hands."""
    if not show.snapshot.workers:
        show.change("/v1/fleets", {"name": FLEET})
        show.stage.start_workers()
        show.until(is_on(FALLBACK), within_s=START_WITHIN_S, what="every worker registered on nccl")
        show.stage.start_viewers(LENGTHS)
    began = Beginning(show)
    show.hold(HOLD_S / 2)
    show.change(f"/v1/fleets/{FLEET}/mode", {"mode": "enforce"})
    show.hold(HOLD_S / 2)
    mode = show.stage.client.get(f"/v1/fleets/{FLEET}")["mode"]
    problems = [] if mode == "enforce" else [f"the fleet's mode is {mode}, not enforce"]
    sessions = began.sessions()
    if not sessions:
        problems.append("no session ended")
    lowest = story.lowest_fps(sessions)
    reason = f"{len(sessions)} sessions, lowest {story.fps_text(lowest)} fps on {FALLBACK}"
    return began.result("1 adopt", outcome="holds", reason=reason, problems=problems, exposed=())


def refused_in_preflight(show: Show) -> SceneResult:
    """The August kernel meets no viewer: a drained worker shows what it keeps for each length."""
    result = _rolled_back(
        show,
        title="2 preflight",
        variant="fused_all",
        policy="preflight",
        gates=(PREFLIGHT,),
    )
    if not _has_met_viewers(show):
        return result
    problems = (*result.problems, "it went on from preflight, to viewers")
    return replace(result, is_as_expected=False, problems=problems)


def refused_for_coverage(show: Show) -> SceneResult:
    """Viewers who all bring one prompt length prove nothing about the others: held, then ended."""
    began = Beginning(show)
    show.stage.change_viewers(CANARY_WORKER, ONE_LENGTH)
    show.start_canary(variant="fused_steady", policy="coverage")
    show.until(is_held, within_s=CANARY_WITHIN_S, what="the canary is held for want of coverage")
    held = show.canary()
    show.change(f"/v1/canaries/{held.name}/requests", {"kind": "abort"})
    show.until(has_ended, within_s=CANARY_WITHIN_S, what="the canary is back")
    show.stage.change_viewers(CANARY_WORKER, LENGTHS)
    canary = show.canary()
    problems = _phase_problems(canary, expected="rolled_back")
    if "1 of 8 buckets" not in held.reason:
        problems.append(f"it was held for another reason: {held.reason}")
    if any(each.contained_at is None or each.verified_at is None for each in canary.exposed):
        problems.append("an exposed worker is not contained and verified")
    return began.result(
        "3 coverage",
        outcome=canary.phase,
        reason=f"held: {held.reason}; ended by hand: {canary.reason}",
        problems=problems,
        exposed=tuple(canary.exposed_names),
    )


def passes(show: Show) -> SceneResult:
    """The corrected fast path shows what its policy asks, and is promoted to every worker."""
    began = Beginning(show)
    if is_on("fused_steady")(show.snapshot):
        # Played again because others were late: promoted already, so only they are looked at.
        show.hold(HOLD_S)
    else:
        show.start_canary(variant="fused_steady", policy="demo")
        show.until(has_ended, within_s=CANARY_WITHIN_S, what="the canary is promoted")
    canary = show.canary()
    if canary.phase == "promoted":
        show.until(is_on("fused_steady"), within_s=FLIP_WITHIN_S, what="every worker promoted")
    return began.result(
        "4 fused_steady",
        outcome=canary.phase,
        reason=canary.reason,
        problems=_phase_problems(canary, expected="promoted"),
        exposed=tuple(canary.exposed_names),
    )


def runs_out_as_in_august(show: Show) -> SceneResult:
    """The August kernel, memory unwatched: it runs out of it, on one canary worker."""
    return _rolled_back(
        show,
        title="5a fused_all",
        variant="fused_all",
        policy="as-in-august",
        gates=("hard_stops", "failures"),
    )


def caught_by_memory(show: Show) -> SceneResult:
    """The same kernel, watched by distinct lengths: sent back before a viewer is harmed."""
    return _rolled_back(
        show,
        title="5b fused_all",
        variant="fused_all",
        policy="demo",
        gates=("memory",),
    )


def merely_slow(show: Show) -> SceneResult:
    """A kernel that is right but too slow is sent back on the frame rate."""
    return _rolled_back(
        show,
        title="6 fused_small_tiles",
        variant="fused_small_tiles",
        policy="demo",
        gates=("floor",),
    )


Scene = Callable[[Show], SceneResult]
SCENES: Final[Sequence[Scene]] = (
    adopted,
    refused_in_preflight,
    refused_for_coverage,
    passes,
    runs_out_as_in_august,
    caught_by_memory,
    merely_slow,
)


def settle(show: Show) -> None:
    """Bring every worker back into service before a scene is played again."""
    for worker in show.snapshot.workers:
        if not worker.is_healthy:
            show.change(f"/v1/fleets/{FLEET}/workers/{worker.name}/restore", {})
    show.until(
        lambda seen: all(worker.is_effective and worker.is_healthy for worker in seen.workers),
        within_s=FLIP_WITHIN_S,
        what="every worker is back in service",
    )


class Beginning:
    """When a scene began, so that its sessions and seconds can be told from the others'."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._at_s = show.now_s()
        self._num_sessions = len(show.sessions)

    def sessions(self) -> list[ViewerSession]:
        """Sessions that ended since."""
        return self._show.sessions[self._num_sessions :]

    def result(
        self,
        title: str,
        *,
        outcome: str,
        reason: str,
        problems: Sequence[str],
        exposed: Sequence[str],
    ) -> SceneResult:
        """The scene's result; workers that were never exposed must have held the floor."""
        healthy = [each for each in self.sessions() if each.worker not in exposed]
        told = [*problems, *healthy_problems(healthy)]
        return SceneResult(
            title=title,
            is_as_expected=not told,
            outcome=outcome,
            reason=reason,
            took_s=self._show.now_s() - self._at_s,
            num_sessions=len(self.sessions()),
            num_sessions_harmed=sum(each.is_harmed for each in self.sessions()),
            num_healthy_harmed=sum(each.is_harmed for each in healthy),
            lowest_healthy_fps=story.lowest_fps(healthy),
            problems=tuple(told),
        )


def is_on(variant: str) -> Callable[[Snapshot], bool]:
    """Whether every worker runs `variant` on all ranks and nothing else is wanted of it."""

    def holds(snapshot: Snapshot) -> bool:
        return len(snapshot.workers) > 0 and all(
            worker.is_effective and worker.flags.get(FLAG) == variant for worker in snapshot.workers
        )

    return holds


def has_ended(snapshot: Snapshot) -> bool:
    """Whether the canary has come to its end."""
    return snapshot.canary is not None and snapshot.canary.phase in _ENDED


def is_held(snapshot: Snapshot) -> bool:
    """Whether the canary waits for a person."""
    return snapshot.canary is not None and snapshot.canary.phase == "held"


def healthy_problems(healthy: Sequence[ViewerSession]) -> list[str]:
    """What went wrong with sessions that had no part in the canary."""
    failed = [each for each in healthy if each.has_failed]
    slow = [each for each in healthy if each.is_harmed and not each.has_failed]
    told = [f"a session of healthy {each.worker} ended {each.outcome}" for each in failed]
    told += [
        f"a session of healthy {each.worker} had {story.fps_text(each.fps)} fps,"
        f" below {vocabulary.FLOOR_FPS}"
        for each in slow
    ]
    return told


def _rolled_back(
    show: Show, *, title: str, variant: str, policy: str, gates: Sequence[str]
) -> SceneResult:
    """A canary that must be sent back because one of `gates` fails."""
    began = Beginning(show)
    show.start_canary(variant=variant, policy=policy)
    show.until(has_ended, within_s=CANARY_WITHIN_S, what=f"the canary of {variant} is sent back")
    canary = show.canary()
    exposed = tuple(canary.exposed_names)
    result = began.result(
        title,
        outcome=canary.phase,
        reason=canary.reason,
        problems=[*_phase_problems(canary, expected="rolled_back"), *_gate_problems(canary, gates)],
        exposed=exposed,
    )
    show.until(
        lambda seen: all(worker.flags.get(FLAG) != variant for worker in seen.workers),
        within_s=FLIP_WITHIN_S,
        what=f"no worker runs {variant}",
    )
    return _with_times(result, canary)


def _has_met_viewers(show: Show) -> bool:
    """Whether this scene's canary came further than its preflight."""
    path = f"/v1/canaries/{show.canary().name}/transitions"
    events = [each["event"] for each in show.stage.client.get(path)["items"]]
    return "started" not in events or "preflight_passed" in events


def _with_times(result: SceneResult, canary: CanarySeen) -> SceneResult:

    return replace(
        result,
        contained_after_s=story.seconds_to_contained(canary),
        verified_after_s=story.seconds_to_verified(canary),
    )


def _phase_problems(canary: CanarySeen, *, expected: str) -> list[str]:
    if canary.phase == expected:
        return []
    return [f"the canary is {canary.phase}, not {expected}: {canary.reason}"]


def _gate_problems(canary: CanarySeen, gates: Sequence[str]) -> list[str]:
    failing = canary.first_failing()
    if failing is None:
        return ["no gate says why it was sent back"]
    if failing.gate not in gates:
        return [f"it was sent back by {failing.gate}, not by {' or '.join(gates)}"]
    if any(each.contained_at is None or each.verified_at is None for each in canary.exposed):
        return ["an exposed worker is not contained and verified"]
    return []
