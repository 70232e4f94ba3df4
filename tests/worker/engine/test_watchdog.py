"""Which process is said to hang."""

import os
import subprocess
import sys

from worker.engine import watchdog
from worker.parallel.board import Progress

_NOW_NS = 100_000_000_000


def _line(*, silent_s: float, num_collectives: int = 0, step: int = 5) -> Progress:
    return Progress(
        beat_at_ns=int(_NOW_NS - silent_s * 1e9), num_collectives=num_collectives, step=step
    )


def _found(*lines: Progress, stopped: tuple[int, ...] = ()) -> int | None:
    hang = watchdog.found(lines, now_ns=_NOW_NS, limit_s=1.0, stopped=dict.fromkeys(stopped, True))
    return None if hang is None else hang.index


def test_nobody_hangs_while_everybody_shows_life() -> None:
    """A beat within the limit is enough, whatever the step."""
    assert _found(_line(silent_s=0.9), _line(silent_s=0.2)) is None


def test_the_rank_that_has_not_entered_the_collective_holds_the_others_up() -> None:
    """All fall silent: the one that waits in the all-reduce is not the culprit."""
    waiting = _line(silent_s=3.0, num_collectives=41)
    lagging = _line(silent_s=2.9, num_collectives=40)
    assert _found(waiting, lagging) == 1


def test_a_stopped_process_is_the_culprit_wherever_it_stands() -> None:
    """It may have entered as many collectives as the rank that waits for it."""
    lines = (_line(silent_s=3.0, num_collectives=41), _line(silent_s=3.0, num_collectives=41))
    assert _found(*lines, stopped=(1,)) == 1


def test_a_process_that_has_ended_is_gone_before_anybody_waits_for_it() -> None:
    """A rank that only lost its peer must not be blamed while the dead one is a zombie."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    with child.stdin:
        assert not watchdog.is_gone(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert watchdog.is_gone(child.pid)
    child.wait()
    assert watchdog.is_gone(child.pid)
