"""Whether the number of compiled graphs stays what it was after warm-up, whatever a session brings.

A graph a prompt length, a step or a flip costs seconds in front of a viewer, until torch gives up
and runs eager without a word.
"""

from worker import flags as flag_registry
from worker.probes import check
from worker.probes.check import Check, Verdict
from worker.probes.subject import Drive, Subject

NUM_LENGTHS = 50
_SHORT_STEPS = 2
_CYCLE_EVERY = 10  # so many lengths run a whole cycle with its reset; the others two steps


def run(subject: Subject, *, name: str, seed: int) -> Check:
    """The growth over 50 prompt lengths, with resets and flips."""
    execution = subject.execution
    low, high = subject.model.first_forward_bounds
    lengths = [low + number * (high - low) // (NUM_LENGTHS - 1) for number in range(NUM_LENGTHS)]
    check_name = f"graphs/{name}"
    try:
        _session(subject, length=lengths[len(lengths) // 2], seed=seed, is_whole=True)
        num_warm = execution.num_graphs
        for number, length in enumerate(lengths):
            is_whole = number % _CYCLE_EVERY == 0
            _session(subject, length=length, seed=seed, is_whole=is_whole)
    except RuntimeError as error:
        detail = f"ended by {type(error).__name__}: {error}"[:500]
        return Check(name=check_name, verdict=Verdict.FAIL, detail=detail)
    grown = execution.num_graphs - num_warm
    detail = f"more than the {num_warm} after warm-up, over {len(set(lengths))} prompt lengths"
    return check.held(check_name, grown, bound=0, detail=detail)


def _session(subject: Subject, *, length: int, seed: int, is_whole: bool) -> None:
    """Begin on the flags, go to the fallback and back, and go on."""
    drive = Drive(subject, seed=seed, length=length)
    drive.step()
    drive.take(flag_registry.fallback())
    drive.step()
    drive.take(subject.flags)
    cycle = subject.model.reset_period + subject.model.window + 1
    for _ in range(cycle if is_whole else _SHORT_STEPS):
        drive.step()
