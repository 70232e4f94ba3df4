"""What a simulated worker can say to the control plane, and who it says it is."""

from dataclasses import dataclass
from typing import Protocol

from controlplane.contract.messages import (
    BreakerTrip,
    DesiredState,
    EffectiveReport,
    ProbeReport,
    Registration,
)
from controlplane.contract.records import Record
from controlplane.contract.vocabulary import EventName


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who reports: one life of one worker."""

    fleet: str
    worker: str
    hardware: str
    stack: str
    incarnation: str


class Network(Protocol):
    """What a worker can say to the control plane; any of it may be lost on the way."""

    def register(self, registration: Registration) -> DesiredState:
        """A life begins."""
        ...

    def desired(self, identity: Identity) -> DesiredState:
        """What the control plane wants now."""
        ...

    def report(self, identity: Identity, report: EffectiveReport) -> None:
        """What all ranks run."""
        ...

    def trip(self, identity: Identity, trip: BreakerTrip) -> None:
        """A breaker opened."""
        ...

    def probe(self, identity: Identity, report: ProbeReport) -> None:
        """What came of a probe."""
        ...

    def record(self, identity: Identity, event: EventName, record: Record) -> None:
        """One evidence record."""
        ...
