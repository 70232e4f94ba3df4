"""How a requested set of flags becomes effective: a pure state machine, run by rank 0 only.

To the fallback in one phase: always warm, so it is simply in the next plan. From it in two: every
rank prepares, and the commit comes two steps later at the earliest, or never.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from worker import flags as flag_registry
from worker.parallel.plan import Control

_STEPS_TO_COMMIT = 2


class Phase(StrEnum):
    """Where a request stands."""

    SETTLED = "settled"
    REQUESTED = "requested"
    PREPARING = "preparing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """The effective flags and at most one set on its way."""

    num_ranks: int
    effective: Mapping[str, str]
    generation: int  # of the newest request, effective or not
    phase: Phase = Phase.SETTLED
    wanted: Mapping[str, str] = field(default_factory=dict)
    prepared_step: int = -1
    answers: Mapping[int, str] = field(default_factory=dict)  # rank -> why not; "" if prepared

    @property
    def refusal(self) -> str:
        """Why the ranks do not take the flags; empty if none has said so."""
        return next((reason for reason in self.answers.values() if reason), "")


def requested(flip: Flip, flags: Mapping[str, str], *, generation: int) -> Flip:
    """After a request; one that is not newer changes nothing, a newer one replaces any other."""
    if generation <= flip.generation:
        return flip
    return replace(
        flip, generation=generation, wanted=dict(flags), phase=Phase.REQUESTED, answers={}
    )


def answered(flip: Flip, *, generation: int, rank: int, reason: str) -> Flip:
    """After the answer of a rank to PREPARE; an answer to an older request changes nothing."""
    if flip.phase is not Phase.PREPARING or generation != flip.generation:
        return flip
    return replace(flip, answers={**flip.answers, rank: reason})


def due(flip: Flip, *, step: int) -> Control:
    """What the plan numbered `step` must say about flags."""
    if flip.phase is Phase.SETTLED:
        return Control.NONE
    if flip.phase is Phase.REQUESTED:
        return Control.PREPARE if _needs_preparation(flip) else Control.COMMIT
    if len(flip.answers) < flip.num_ranks:
        return Control.NONE
    if flip.refusal:
        return Control.DISCARD
    return Control.COMMIT if step >= flip.prepared_step + _STEPS_TO_COMMIT else Control.NONE


def wants_plan(flip: Flip, *, step: int) -> bool:
    """True if a plan must be published for the flip's sake even while no session runs."""
    is_waiting_step = flip.phase is Phase.PREPARING and step < flip.prepared_step + _STEPS_TO_COMMIT
    return is_waiting_step or due(flip, step=step) is not Control.NONE


def published(flip: Flip, control: Control, *, step: int) -> Flip:
    """After the plan numbered `step` went out with `control`."""
    match control:
        case Control.NONE:
            return flip
        case Control.PREPARE:
            return replace(flip, phase=Phase.PREPARING, prepared_step=step)
        case Control.COMMIT:
            return replace(flip, phase=Phase.SETTLED, effective=flip.wanted)
        case Control.DISCARD:
            return replace(flip, phase=Phase.SETTLED)


def _needs_preparation(flip: Flip) -> bool:
    """True if any flag leaves for a variant that is not always warm."""
    fallback = flag_registry.fallback()
    return any(
        variant not in (flip.effective[name], fallback[name])
        for name, variant in flip.wanted.items()
    )
