"""The numbered plan of one step: what rank 0 has decided, for every rank to do alike.

Packed with a checksum and sent one step ahead. A rank that reads another number, or a broken
plan, must raise before it enters a collective: otherwise all ranks wait for the group's timeout.
No torch.
"""

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from worker import features


class Action(IntEnum):
    """What the ranks compute in this step."""

    NOOP = 0  # only the control part: a flip while no session runs
    START = 1  # first forward of a session, then its step 0
    STEP = 2
    END = 3  # free what the session holds
    RESUME = 4  # take over the session of a group that has died, then its next step


class Control(IntEnum):
    """What the ranks do with their flags before they compute."""

    NONE = 0
    PREPARE = 1
    COMMIT = 2
    DISCARD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step as every rank must run it."""

    launch: int
    step: int  # of the engine, from 0, without gaps
    action: Action = Action.NOOP
    control: Control = Control.NONE
    generation: int = 0  # of the flags that `control` speaks of
    word: bytes = bytes(8)  # those flags, see `worker.flags.word`
    session: int = 0  # number of the session in this launch
    session_step: int = 0
    first_forward_length: int = 0
    seed: int = 0
    prompt_seed: int = 0
    is_rebuilt: bool = False  # the cache is made anew for this prompt before the step
    frame: int = 0  # number of the frame to be written, since the cache was begun
    position: int = 0  # in time, of that frame
    shift: int = 0  # by how much the kept keys are turned back before this step
    features: bytes = features.NONE  # what drives this chunk: int8, audio then control


class PlanError(Exception):
    """This rank's view of the plan and rank 0's do not agree."""


_BODY = struct.Struct(f"<IQBBQ8sIIIQQ?III{features.NUM_BYTES}s")
_CHECKSUM = struct.Struct("<I")


def pack(plan: StepPlan) -> bytes:
    """The plan as one packet, checksum last."""
    body = _BODY.pack(
        plan.launch,
        plan.step,
        plan.action,
        plan.control,
        plan.generation,
        plan.word,
        plan.session,
        plan.session_step,
        plan.first_forward_length,
        plan.seed,
        plan.prompt_seed,
        plan.is_rebuilt,
        plan.frame,
        plan.position,
        plan.shift,
        plan.features,
    )
    return body + _CHECKSUM.pack(zlib.crc32(body))


def unpack(packet: bytes, *, launch: int, step: int) -> StepPlan:
    """The plan in `packet`, if it is the one that is due.

    Raises: PlanError for a wrong size, checksum, launch or number.
    """
    if len(packet) != _BODY.size + _CHECKSUM.size:
        message = f"a plan of {len(packet)} bytes; expected {_BODY.size + _CHECKSUM.size}"
        raise PlanError(message)
    body = packet[: _BODY.size]
    (checksum,) = _CHECKSUM.unpack_from(packet, _BODY.size)
    if zlib.crc32(body) != checksum:
        message = f"the checksum of the plan for step {step} is wrong"
        raise PlanError(message)
    plan = _plan(body)
    if (plan.launch, plan.step) != (launch, step):
        message = (
            f"got the plan of launch {plan.launch}, step {plan.step}; "
            f"expected launch {launch}, step {step}"
        )
        raise PlanError(message)
    return plan


def _plan(body: bytes) -> StepPlan:
    (
        launch,
        step,
        action,
        control,
        generation,
        word,
        session,
        session_step,
        first_forward_length,
        seed,
        prompt_seed,
        is_rebuilt,
        frame,
        position,
        shift,
        features,
    ) = _BODY.unpack(body)
    return StepPlan(
        launch=launch,
        step=step,
        action=Action(action),
        control=Control(control),
        generation=generation,
        word=word,
        session=session,
        session_step=session_step,
        first_forward_length=first_forward_length,
        seed=seed,
        prompt_seed=prompt_seed,
        is_rebuilt=is_rebuilt,
        frame=frame,
        position=position,
        shift=shift,
        features=features,
    )
