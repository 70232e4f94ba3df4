"""Records on their way to the spool: numbered, named by identity, and as bytes."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import JsonValue

from controlplane.contract import records
from controlplane.contract.records import Record
from controlplane.contract.vocabulary import EventName
from worker.agent.identity import Identity
from worker.agent.spool import Entry, Kind, Spool

KINDS = {
    EventName.SESSION_STARTED: Kind.STARTED,
    EventName.SESSION_WINDOW: Kind.WINDOW,
    EventName.SESSION_ENDED: Kind.ENDED,
    EventName.PROCESS_WINDOW: Kind.WINDOW,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One record with who reports it and the wall clock when it was written, for display."""

    identity: Identity
    event: EventName
    at_ns: int
    record: dict[str, JsonValue]

    @property
    def seq(self) -> int:
        """Number of the record in its incarnation."""
        seq = self.record["seq"]
        assert isinstance(seq, int), "a record that was written has a number"
        return seq


def encode(written: Written) -> bytes:
    """Bytes for the spool."""
    return json.dumps(asdict(written), separators=(",", ":")).encode()


def decode(payload: bytes) -> Written:
    """What `encode` was given.

    Raises: ValueError if the payload is not ours.
    """
    try:
        fields = json.loads(payload)
        return Written(
            identity=Identity(**fields["identity"]),
            event=EventName(fields["event"]),
            at_ns=fields["at_ns"],
            record=fields["record"],
        )
    except (KeyError, TypeError) as error:
        message = f"not a spooled record: {error}"
        raise ValueError(message) from error


def parse(written: Written) -> Record:
    """The record as a value of the contract."""
    return records.RECORD_TYPES[written.event].model_validate(written.record)


class Ledger:
    """Numbers the records of one incarnation and appends them in that order."""

    def __init__(
        self,
        spool: Spool,
        *,
        identity: Identity,
        wall_ns: Callable[[], int],
        on_append: Callable[[bool], None],
        last_seq: int = 0,
    ) -> None:
        """`on_append` is told of each record, and whether it is urgent."""
        self._spool = spool
        self._identity = identity
        self._wall_ns = wall_ns
        self._on_append = on_append
        self._lock = threading.Lock()
        self._seq = last_seq

    def write(
        self, event: EventName, fields: Mapping[str, Any], *, is_urgent: bool = False
    ) -> Record:
        """Number a record and put it in the spool; on return it survives the process.

        Raises: SpoolFullError; the number is then not used.
        """
        with self._lock:
            record = records.RECORD_TYPES[event](seq=self._seq + 1, **fields)
            written = Written(
                identity=self._identity,
                event=event,
                at_ns=self._wall_ns(),
                record=record.model_dump(mode="json", exclude_none=True),
            )
            self._spool.append(encode(written), kind=KINDS[event])
            self._seq += 1
        self._on_append(is_urgent)
        return record


def all_written(entries: list[Entry]) -> list[tuple[int, Written]]:
    """Entries that hold a record, with their numbers; the sender sets others aside."""
    found = []
    for entry in entries:
        try:
            found.append((entry.number, decode(entry.payload)))
        except ValueError:
            continue
    return found
