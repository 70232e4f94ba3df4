"""Control facts: what a worker and the control plane say to each other over plain JSON.

Unknown fields are ignored, so that either side may be a release older; unknown words are not.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import CONTRACT_VERSION, MAX_INT64, Reason


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        message = "a number, not true or false"
        raise ValueError(message)  # noqa: TRY004 - pydantic turns no other error into a refusal
    return value


# `true` would else be one frame, or one second.
Whole = Annotated[int, BeforeValidator(_no_truth)]
Real = Annotated[float, BeforeValidator(_no_truth)]
Version = Annotated[Whole, Field(ge=1, le=65_535)]
Name = Annotated[str, Field(pattern=vocabulary.NAME_PATTERN)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Count = Annotated[Whole, Field(ge=0, le=MAX_INT64)]
Seconds = Annotated[Real, Field(ge=0, le=1e9, allow_inf_nan=False)]
Flags = Annotated[dict[Name, Name], Field(max_length=64)]
Text = Annotated[str, Field(max_length=1000)]


class Message(BaseModel):
    """One JSON object of the contract; frozen, and tolerant of fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Registration(Message):
    """POST /v1/workers: one life of a worker's processes begins."""

    contract: Version = CONTRACT_VERSION
    fleet: Name
    worker: Name
    incarnation: Identifier
    hardware: Name
    stack: Annotated[dict[Name, Annotated[str, Field(max_length=200)]], Field(max_length=64)]
    generation: Count  # last generation the worker has accepted, 0 if none
    flags: Flags  # effective now
    capabilities: dict[Name, list[Name]]  # flag -> variants this build knows
    address: Annotated[str, Field(max_length=200)] = ""  # where viewers reach it, for display


class Arm(Message):
    """One side of an experiment."""

    name: Name
    share: Annotated[Real, Field(ge=0, le=1, allow_inf_nan=False)]
    flags: Flags


class Experiment(Message):
    """Sessions that start under this desired state draw an arm and run its flags."""

    canary: Identifier
    salt: Identifier
    # Sessions of the other kind of traffic take no part: they run `DesiredState.flags`.
    traffic: Literal["live", "synthetic"] = "live"
    arms: Annotated[list[Arm], Field(min_length=1, max_length=4)]

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> "Experiment":
        if abs(sum(arm.share for arm in self.arms) - 1) > 1e-9:  # noqa: PLR2004 - float tolerance
            message = "the shares of the arms must sum to 1"
            raise ValueError(message)
        return self


class Probe(Message):
    """What a worker without viewers is to try: the canary's flags, then the way back.

    Run once no session is open; a state without it, or with another, ends it.
    """

    id: Identifier
    canary: Identifier
    flag: Name  # under test
    flags: Flags  # to run while it lasts; `DesiredState.flags` before and after
    # First-forward lengths, each run for a few chunks, in this order.
    lengths: Annotated[list[Count], Field(min_length=1, max_length=64)]
    seed: Count
    # More kept for each of two lengths ends it early: what the next would show is an end of memory.
    retained_at_most: Count


class FlagReason(Message):
    """Which layer of the desired state won for a flag, and why, in words for a person."""

    flag: Name
    variant: Name
    layer: Name
    reason: Text


class DesiredState(Message):
    """GET /v1/workers/{worker}/desired: what the control plane wants of one worker."""

    contract: Version = CONTRACT_VERSION
    fleet: Name
    worker: Name
    generation: Count
    flags: Flags
    # Seconds from receipt during which an unproven variant may run; None: nothing here is unproven.
    lease_s: Seconds | None = None
    experiment: Experiment | None = None
    probe: Probe | None = None
    is_admitting: bool = True  # False: take no new session
    is_draining: bool = False  # True: end sessions, too
    reasons: list[FlagReason] = []


class RankReport(Message):
    """What one rank says it runs."""

    rank: Annotated[Whole, Field(ge=0, le=4096)]
    generation: Count
    digest: Digest
    step: Count
    flag_bytes: dict[Name, Count] = {}  # allocated by the flag's own code and not freed


class EffectiveReport(Message):
    """POST /v1/workers/{worker}/effective: every rank runs one set of flags since one step."""

    incarnation: Identifier
    generation: Count
    flags: Flags
    ranks: Annotated[list[RankReport], Field(min_length=1, max_length=4096)]
    is_lease_lapsed: bool = False  # the worker went to the fallback by itself
    is_break_glass: bool = False
    refused: Text = ""  # not empty: the flags of `generation` were not taken, and why

    @model_validator(mode="after")
    def _ranks_agree(self) -> "EffectiveReport":
        if len({rank.digest for rank in self.ranks}) != 1:
            message = "ranks report different digests: effective is posted only when they agree"
            raise ValueError(message)
        return self


class BreakerTrip(Message):
    """POST /v1/workers/{worker}/trips: the worker went to its fallback by itself."""

    incarnation: Identifier
    trip: Identifier  # id of this trip, so that a repeat is not a second one
    reason: Reason
    flags: Flags  # effective when it happened
    generation: Count
    rank: Annotated[Whole, Field(ge=0, le=4096)] | None = None
    session: Identifier | None = None
    canary: Identifier | None = None  # experiment it ran, if any
    detail: Text = ""


class LengthProbe(Message):
    """What the flag keeps for one first-forward length after it was run."""

    length: Count
    retained_bytes: Count


class ProbeReport(Message):
    """POST /v1/workers/{worker}/probes: what came of a probe; the same id again is a repeat."""

    incarnation: Identifier
    probe: Identifier
    canary: Identifier
    lengths: Annotated[list[LengthProbe], Field(max_length=64)]  # those that were run
    flag_bytes_before: Count  # kept by the flag's code before the probe
    # From asking for the flags of before until every rank ran them; None: it did not come to that.
    rollback_ms: Annotated[Real, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    flag_bytes_left: Count | None = None  # after it
    fault: Reason | None = None  # that ended it
    detail: Text = ""
