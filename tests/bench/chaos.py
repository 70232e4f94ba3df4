"""`make chaos`: kills the control plane and a worker at random moments of real canaries.

First a worker on the variant is killed mid-session: the canary must be sent back. Then the
control plane is killed ten times while a sound canary runs: it must be promoted all the same, after
a person resumes it if its lease lapsed meanwhile, and no worker's generation may ever fall.
"""

import argparse
import os
import random
import signal
import sys
from datetime import UTC, datetime

from controlplane.cli.demo import scenes, stage
from controlplane.cli.demo.screen import PlainScreen
from controlplane.cli.demo.show import SceneFailedError, Show
from controlplane.cli.demo.story import Snapshot
from controlplane.cli.demo.watching import FLAG, FLEET

NUM_KILLS = 10
ENDS_WITHIN_S = 150.0
# Of one control plane: as long as the lease of the policy, so that some lapse and some do not.
LONGEST_LIFE_S = 10.0


def main() -> None:
    """Run; exit 1 if something was wrong. The seed repeats the moments, not the timing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    randomness = random.Random(parser.parse_args().seed)
    with stage.opened() as opened:
        show = Show(opened, PlainScreen(now=lambda: datetime.now(UTC)))
        opened.start_server(wait=show.wait)
        scenes.adopted(show)
        try:
            problems = [*_worker_killed(show), *_control_plane_killed(show, randomness)]
        except SceneFailedError as error:
            problems = [str(error)]
    for problem in problems:
        print(f"WRONG: {problem}")  # noqa: T201 - a script that reports
    sys.exit(1 if problems else 0)


def _worker_killed(show: Show) -> list[str]:
    show.start_canary(variant="fused_steady", policy="as-in-august")
    # Exposed is not enough: a session must have drawn the canary's arm, and stream under it.
    show.until(_has_canary_session, within_s=60, what="a session runs the variant")
    show.hold(2)
    exposed = min(show.canary().exposed_names)
    pid = show.stage.cluster.pid(fleet=FLEET, worker=exposed)
    assert pid is not None, f"{exposed} runs"
    show.say(f"killing {exposed}")
    os.kill(pid, signal.SIGKILL)
    show.until(scenes.has_ended, within_s=ENDS_WITHIN_S, what="the canary is sent back")
    phase = show.canary().phase
    return [] if phase == "rolled_back" else [f"after the worker's death the canary is {phase}"]


def _has_canary_session(seen: Snapshot) -> bool:
    return any(worker.flags.get(FLAG) == "fused_steady" for worker in seen.workers)


def _control_plane_killed(show: Show, randomness: random.Random) -> list[str]:
    problems = []
    show.start_canary(variant="fused_steady", policy="demo")
    for number in range(1, NUM_KILLS + 1):
        before = {worker.name: worker.generation for worker in show.snapshot.workers}
        show.hold(randomness.uniform(0.2, LONGEST_LIFE_S))
        show.say(f"killing the control plane, {number} of {NUM_KILLS}")
        show.stage.kill_server()
        show.stage.start_server(wait=show.wait)
        show.look()
        problems += [
            f"{worker.name} fell from generation {before[worker.name]} to {worker.generation}"
            for worker in show.snapshot.workers
            if worker.generation < before.get(worker.name, 0)
        ]
    phase = _resumed_to_its_end(show)
    return [*problems, *([] if phase == "promoted" else [f"the canary is {phase}, not promoted"])]


def _resumed_to_its_end(show: Show) -> str:
    """Wait for the canary's end, resuming it once if it is held. Returns: its phase."""
    for _ in range(2):
        show.until(
            lambda seen: scenes.has_ended(seen) or _is_held(seen),
            within_s=ENDS_WITHIN_S,
            what="the canary is promoted or held",
        )
        if not _is_held(show.snapshot):
            break
        name = show.canary().name
        show.say(f"{name} is held ({show.canary().reason}): resuming it")
        show.change(f"/v1/canaries/{name}/requests", {"kind": "resume"})
        show.until(lambda seen: not _is_held(seen), within_s=30, what="the canary goes on")
    return show.canary().phase


def _is_held(seen: Snapshot) -> bool:
    return seen.canary is not None and seen.canary.phase == "held"


if __name__ == "__main__":
    main()
