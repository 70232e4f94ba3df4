"""What one worker should run: layers from the hardware fallback up, and which of them won.

Observed facts come in as values; the answer carries a reason for each flag, since the first
question at 3 a.m. is why a worker runs what it runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from controlplane.domain.flag import Flag
from controlplane.domain.fleet import Fleet, Mode, Worker


class Layer(StrEnum):
    """Who may say what a worker runs, lowest first; a higher one wins."""

    FALLBACK = "fallback"
    PROMOTED = "promoted"
    PIN = "pin"
    CANARY = "canary"
    BREAKER = "breaker"
    PIN_TO_FALLBACK = "pin_to_fallback"
    BREAK_GLASS = "break_glass"
    STOP_THE_LINE = "stop_the_line"
    OBSERVED = "observed"  # the fleet is in `observe`: what it runs is left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualification:
    """A variant that passed a canary, or was attested, on one hardware and stack."""

    flag: str
    variant: str
    hardware: str
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What preflight asks of a worker without viewers."""

    id: str
    flag: str
    lengths: tuple[int, ...]
    seed: int
    retained_at_most: int  # bytes, for each length


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A running canary that this worker is exposed to, or one in preflight."""

    canary: str  # id
    name: str
    salt: str
    variants: Mapping[str, str]  # on trial there: flag -> variant
    arm_share: float
    traffic: str
    trial: Trial | None = None  # of preflight: no session takes part, no viewer meets the variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The variant of one flag, and why."""

    flag: str
    variant: str
    layer: Layer
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a worker should run outside the canary arm, and the experiment it takes part in."""

    choices: tuple[Choice, ...]
    experiment: Assignment | None

    @property
    def flags(self) -> dict[str, str]:
        """The chosen variants by flag."""
        return {choice.flag: choice.variant for choice in self.choices}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Everything above the hardware fallback that may speak for one worker."""

    fleet: Fleet
    qualifications: frozenset[Qualification]
    assignment: Assignment | None
    disqualifications: frozenset[Qualification] = frozenset()  # failed in a canary, and not since


def resolve(
    worker: Worker, *, catalogue: Sequence[Flag], layers: Layers, now: datetime
) -> Resolution:
    """What `worker` should run now.

    An assignment takes effect only while no higher layer speaks for its flag. In a fleet that only
    observes, every flag stays as the worker has it.
    """
    if layers.fleet.mode is Mode.OBSERVE and layers.fleet.stopped_reason is None:
        return Resolution(choices=tuple(_left_alone(worker, catalogue)), experiment=None)
    choices = would_resolve(worker, catalogue=catalogue, layers=layers, now=now)
    assigned = layers.assignment
    heard = {choice.flag for choice in choices if choice.layer is Layer.CANARY}
    # The variants of a stack are tried together, or not at all.
    if assigned is None or not assigned.variants or not heard.issuperset(assigned.variants):
        return Resolution(choices=choices, experiment=None)
    return Resolution(choices=choices, experiment=assigned)


def would_resolve(
    worker: Worker, *, catalogue: Sequence[Flag], layers: Layers, now: datetime
) -> tuple[Choice, ...]:
    """What an enforcing fleet would run, for the record of one that only observes."""
    return tuple(_choose(worker, flag, layers=layers, now=now) for flag in catalogue)


def _choose(worker: Worker, flag: Flag, *, layers: Layers, now: datetime) -> Choice:
    # The last that speaks wins, so the order here is the order of `Layer`.
    spoken = [choice for choice in _voices(worker, flag, layers=layers, now=now) if choice]
    assert spoken, f"nobody speaks for {flag.name}"
    return spoken[-1]


def _voices(
    worker: Worker, flag: Flag, *, layers: Layers, now: datetime
) -> Iterable[Choice | None]:
    fallback = flag.fallback_on(worker.hardware)
    yield _choice(flag, fallback, Layer.FALLBACK, f"fallback on {worker.hardware}")
    yield _promoted(worker, flag, layers=layers)
    yield _pin(worker, flag, to_fallback=False, now=now)
    yield _assigned(worker, flag, layers=layers)
    if worker.trip is not None:
        reason = f"breaker open since {worker.trip.at:%H:%M:%S}: {worker.trip.reason}"
        yield _choice(flag, fallback, Layer.BREAKER, reason)
    yield _pin(worker, flag, to_fallback=True, now=now)
    if worker.is_break_glass:
        yield _choice(flag, fallback, Layer.BREAK_GLASS, "forced on the worker itself")
    if layers.fleet.stopped_reason is not None:
        reason = f"stop-the-line: {layers.fleet.stopped_reason}"
        yield _choice(flag, fallback, Layer.STOP_THE_LINE, reason)


def _promoted(worker: Worker, flag: Flag, *, layers: Layers) -> Choice | None:
    variant = layers.fleet.promoted.get(flag.name)
    if variant is None:
        return None
    qualified = Qualification(
        flag=flag.name, variant=variant, hardware=worker.hardware, stack=worker.stack
    )
    # Proven on one stack is not proven on the next: without the record, the fallback stands.
    if qualified not in layers.qualifications:
        is_failed = qualified in layers.disqualifications
        missing = "disqualified" if is_failed else "not qualified"
        reason = f"{variant} is promoted, but {missing} on stack {worker.stack}"
        return _choice(flag, flag.fallback_on(worker.hardware), Layer.FALLBACK, reason)
    return _choice(flag, variant, Layer.PROMOTED, f"promoted in {layers.fleet.name}")


def _assigned(worker: Worker, flag: Flag, *, layers: Layers) -> Choice | None:
    assigned = layers.assignment
    if assigned is None or flag.name not in assigned.variants:
        return None
    variant = assigned.variants[flag.name]
    # Outside its arm the worker runs what its controls run; the experiment carries the variant.
    beneath = _promoted(worker, flag, layers=layers)
    base = beneath.variant if beneath else flag.fallback_on(worker.hardware)
    if assigned.trial is not None:
        reason = f"canary {assigned.name} is in preflight: {variant} without viewers"
        return _choice(flag, base, Layer.CANARY, reason)
    reason = (
        f"canary {assigned.name} gives {variant} to {assigned.arm_share:.0%} of sessions;"
        " any other runs this"
    )
    return _choice(flag, base, Layer.CANARY, reason)


def _pin(worker: Worker, flag: Flag, *, to_fallback: bool, now: datetime) -> Choice | None:
    fallback = flag.fallback_on(worker.hardware)
    for pin in worker.pins:
        is_live = pin.flag == flag.name and pin.expires_at > now
        if is_live and (pin.variant == fallback) is to_fallback:
            layer = Layer.PIN_TO_FALLBACK if to_fallback else Layer.PIN
            reason = f"pinned by {pin.actor} until {pin.expires_at:%Y-%m-%d %H:%M}Z: {pin.reason}"
            return _choice(flag, pin.variant, layer, reason)
    return None


def _left_alone(worker: Worker, catalogue: Sequence[Flag]) -> Iterable[Choice]:
    for flag in catalogue:
        variant = worker.effective_flags.get(flag.name, flag.fallback_on(worker.hardware))
        yield _choice(flag, variant, Layer.OBSERVED, "the fleet only observes; nothing is flipped")


def _choice(flag: Flag, variant: str, layer: Layer, reason: str) -> Choice:
    return Choice(flag=flag.name, variant=variant, layer=layer, reason=reason)
