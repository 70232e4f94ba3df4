"""What is on record about a variant on one hardware and stack, and what follows from it.

Pure: the store keeps the records, and never takes one away. A variant stands as its newest record
says that is not revoked; one that failed in a canary is disqualified until another attempt of it
passes, whatever a person attests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from controlplane.domain import comparison
from controlplane.domain.blocks import FAILED_SESSIONS, SLOW, Block
from controlplane.domain.canary import Event
from controlplane.domain.desired import Qualification
from controlplane.domain.errors import ConflictError

# What says that the variant is bad. Whoever aborts a canary, or loses it, says nothing of that.
FAILURES = frozenset({Event.GATE_FAILED, Event.HARD_STOPPED})


class Standing(StrEnum):
    """What a record says of its variant."""

    QUALIFIED = "qualified"
    DISQUALIFIED = "disqualified"


class Origin(StrEnum):
    """How a record came."""

    CANARY = "canary"
    ATTESTED = "attested"  # by a person, of a fleet that runs the variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the canary's own arm did, over all its blocks.

    Counted in what arms were drawn for: sessions, or processes in one window where the whole worker
    was the arm.
    """

    num_rated: int  # with a frame rate, or failed
    num_slow: int  # of those
    num_sessions: int
    num_failed: int  # of those

    @property
    def slow_rate(self) -> float | None:
        """In [0, 1]; None where nothing was rated, which is no rate of zero."""
        return self.num_slow / self.num_rated if self.num_rated else None

    @property
    def failure_rate(self) -> float | None:
        """In [0, 1]; None without a session."""
        return self.num_failed / self.num_sessions if self.num_sessions else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of the ledger; all but the revocation is as it was written."""

    number: int  # rises with every record
    subject: Qualification
    standing: Standing
    fleet: str | None  # an attestation holds in its fleet alone; None: in every fleet
    canary: str | None  # name; None: attested by a person
    decision: str | None  # id of the decision it rests on
    evidence_digest: str | None  # of what that decision considered
    basis: Basis | None  # None: a person's word, or kept by a release that did not count
    actor: str
    reason: str
    created_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    revoked_reason: str | None

    @property
    def origin(self) -> Origin:
        """How it came."""
        return Origin.ATTESTED if self.canary is None else Origin.CANARY


class DisqualifiedError(ConflictError):
    """The variant failed there before, and who asks may not try it again."""

    def __init__(self, record: Record) -> None:
        subject = record.subject
        super().__init__(
            f"{subject.flag}={subject.variant} is disqualified on {subject.hardware}, stack"
            f" {subject.stack}, since {record.canary} was rolled back ({record.reason}): only an"
            " admin may run it again, with a reason that says what is different now"
        )
        self.record = record


def current(records: Iterable[Record], *, fleet: str) -> Record | None:
    """The record that says how the variant stands in `fleet`; None: nothing is on record.

    Args:
        records: of one subject, in any order.
        fleet: name.
    """
    speaking = [
        record for record in records if record.revoked_at is None and record.fleet in (None, fleet)
    ]
    return max(speaking, key=lambda record: record.number, default=None)


def attempt(records: Iterable[Record]) -> int:
    """The number of the next canary of a subject: 1 + how often one has failed, revoked or not."""
    return 1 + sum(record.standing is Standing.DISQUALIFIED for record in records)


def basis(blocks: Sequence[Block]) -> Basis:
    """What `blocks` of a canary say of its own arm."""
    slow = comparison.totals(blocks, SLOW)
    failed = comparison.totals(blocks, FAILED_SESSIONS)
    return Basis(
        num_rated=slow.canary,
        num_slow=slow.canary_bad,
        num_sessions=failed.canary,
        num_failed=failed.canary_bad,
    )
