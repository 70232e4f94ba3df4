"""Whether flags compute what the plain path computes, over fill, wrap, reset and flip.

Both sides are given the same noise for every frame, and each keeps a cache of its own. A latent is
not an input of the next frame; only keys and values are handed on. So the noise is all that there
is to force: an error that the cache keeps shows in every frame that reads it, one that it does not
is gone with its frame, and neither is hidden nor fed by an error of the input. To hand the plain
cache over as well would undo the very reset and write that are to be judged.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from worker import flags as flag_registry
from worker.cache.contents import Contents
from worker.cache.reset import PositionReset
from worker.probes import bounds, check
from worker.probes.bounds import Phase
from worker.probes.check import Check, Verdict
from worker.probes.subject import Drive, Subject

PROMPT_LENGTH = 9  # odd, and no multiple of the tokens of any frame
_FLIP_ROUNDS = 3  # a cycle of `tiny-edge` has 3 steps, so that each sees a flip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One step of a session and what flags it runs under."""

    phase: Phase
    flags: Mapping[str, str]


def run(subject: Subject, *, name: str, seed: int) -> list[Check]:
    """Hold `subject` to the plain path; `name` goes into the names of the checks."""
    worst: dict[Phase, tuple[float, int]] = {}
    try:
        for life in (_life(subject), _flipped_life(subject)):
            for phase, step, error in _errors(subject, life, seed=seed):
                if phase not in worst or error > worst[phase][0]:
                    worst[phase] = (error, step)
        found = [_phase_check(subject, phase, *worst[phase], name=name) for phase in Phase]
        return [*found, _kept(subject, name=name, seed=seed), _repeat(subject, name, seed)]
    except (RuntimeError, ValueError, AssertionError) as error:
        # Whatever ends a step of a probe would end one of a viewer.
        detail = f"ended by {type(error).__name__}: {error}"[:500]
        return [Check(name=f"numerics/{name}", verdict=Verdict.FAIL, detail=detail)]


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of `expected`; infinite if either has a NaN."""
    error = float((found - expected).norm() / expected.norm())
    return math.inf if math.isnan(error) else error


def _phase_check(subject: Subject, phase: Phase, error: float, step: int, *, name: str) -> Check:
    limit = bounds.bound(phase, subject.flags, subject.model)
    detail = f"{limit.error_class}, worst in step {step}"
    return check.held(f"numerics/{name}/{phase}", error, bound=limit.limit, detail=detail)


def _life(subject: Subject) -> list[_Step]:
    """A session under the flags: filled, wrapped, reset twice, and a window more."""
    window, period = subject.model.window, subject.model.reset_period
    lengths = {Phase.FILL: window, Phase.WRAP: period, Phase.RESET: period + window}
    return [
        _Step(phase=phase, flags=subject.flags)
        for phase, length in lengths.items()
        for _ in range(length)
    ]


def _flipped_life(subject: Subject) -> list[_Step]:
    """A session that goes from the fallback to the flags and back, each for a window and a step."""
    stay = subject.model.window + 1
    rounds = (flag_registry.fallback(), subject.flags) * _FLIP_ROUNDS + (flag_registry.fallback(),)
    return [_Step(phase=Phase.FLIP, flags=flags) for flags in rounds for _ in range(stay)]


def _errors(
    subject: Subject, life: list[_Step], *, seed: int
) -> Iterator[tuple[Phase, int, float]]:
    """Phase, number and relative error of each step."""
    flags = life[0].flags
    plain_subject = Subject(model=subject.model, flags=bounds.oracle(flags))
    tried = Drive(subject, seed=seed, length=PROMPT_LENGTH, flags=flags)
    plain = Drive(plain_subject, seed=seed, length=PROMPT_LENGTH)
    for number, step in enumerate(life):
        if step.flags is not flags:
            flags = step.flags
            tried.take(flags)
            # A rebuild makes another video than a turn: the plain side has to know which is due.
            plain.take(bounds.oracle(flags))
        yield step.phase, number, relative_error(tried.step(), plain.step())


def _repeat(subject: Subject, name: str, seed: int) -> Check:
    """E0: the same seed under the same flags, twice."""
    first, second = (Drive(subject, seed=seed, length=PROMPT_LENGTH) for _ in range(2))
    num_off = sum(int((first.step() != second.step()).sum()) for _ in _life(subject))
    detail = "E0, numbers that differ between two runs of one seed"
    return check.held(f"numerics/{name}/repeat", num_off, bound=0, detail=detail)


def _kept(subject: Subject, *, name: str, seed: int) -> Check:
    """E0: a step changes no kept value and no kept key; a turn changes their time channels only."""
    tried = Drive(subject, seed=seed, length=PROMPT_LENGTH)
    is_rebuilt = subject.flags[flag_registry.POSITION_RESET.name] == PositionReset.REBUILD
    num_off = num_held = 0
    before = tried.session.contents()
    for _ in _life(subject):
        is_reset, was = tried.cursor.shift > 0, tried.session.format
        tried.step()
        after = tried.session.contents()
        # A conversion and a rebuild promise bounds, not bits.
        if tried.session.format is was and not (is_reset and is_rebuilt):
            first_channel = subject.model.rope_split[0] if is_reset else 0
            num_off += _num_changed(before, after, first_channel=first_channel)
            num_held += 1
        before = after
    detail = f"E0, numbers of kept frames and of the prefix that changed in {num_held} steps"
    return check.held(f"numerics/{name}/kept", num_off, bound=0, detail=detail)


def _num_changed(before: Contents, after: Contents, *, first_channel: int) -> int:
    """A NaN counts as changed: it is equal to nothing."""
    kept = after.frames[:-1]
    pairs = [(before.prefix, after.prefix)]
    if kept:
        pairs.extend(zip(before.frames[-len(kept) :], kept, strict=True))
    return sum(
        int((old.v_BHTD != new.v_BHTD).sum())
        + int((old.k_BHTD[..., first_channel:] != new.k_BHTD[..., first_channel:]).sum())
        for old, new in pairs
    )
