"""`make soak`: the demo's workers on their fallback under viewers, for as long as asked.

Passes if no session fails or falls below the floor and memory does not grow; prints what it saw.
"""

import argparse
import sys
from datetime import UTC, datetime

from controlplane.cli.demo import footprint, scenes, stage, story
from controlplane.cli.demo.screen import PlainScreen
from controlplane.cli.demo.show import Show
from controlplane.cli.demo.watching import FLEET

# A healthy worker was seen to drift by 6 to 20 MB in two minutes of warming up.
MAX_GROWTH_BYTES = 64 * 1024 * 1024
WARM_UP_S = 30.0


def main() -> None:
    """Run; exit 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    seconds = parser.parse_args().seconds
    with stage.opened() as opened:
        show = Show(opened, PlainScreen(now=lambda: datetime.now(UTC)))
        opened.start_server(wait=show.wait)
        scenes.adopted(show)
        show.hold(WARM_UP_S)
        before = _memory(show)
        show.hold(seconds)
        growth = {name: after - before[name] for name, after in _memory(show).items()}
        problems = scenes.healthy_problems(show.sessions)
    problems += [
        f"{name} grew by {grown / 2**20:.0f} MiB"
        for name, grown in growth.items()
        if grown > MAX_GROWTH_BYTES
    ]
    lowest = story.fps_text(story.lowest_fps(show.sessions))
    print(f"{len(show.sessions)} sessions, lowest {lowest} fps, growth in bytes {growth}")  # noqa: T201
    for problem in problems:
        print(f"WRONG: {problem}")  # noqa: T201
    sys.exit(1 if problems else 0)


def _memory(show: Show) -> dict[str, int]:
    pids = {
        worker.name: show.stage.cluster.pid(fleet=FLEET, worker=worker.name)
        for worker in show.snapshot.workers
    }
    return {name: footprint.of(pid).memory_bytes for name, pid in pids.items() if pid is not None}


if __name__ == "__main__":
    main()
