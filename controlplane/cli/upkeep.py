"""What keeps workers from running what their fleet runs, and the command that ends it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from controlplane.cli import output
from controlplane.cli.client import Json
from controlplane.domain.fleet import REACHABLE_WITHIN

# The most pressing first.
KINDS: Final = ("silent", "quarantined", "break-glass", "tripped", "cordoned", "pinned")
# A time of day says enough of what is younger.
_DAY: Final = timedelta(days=1)


def kinds_of(worker: Mapping[str, Json], *, now: datetime) -> tuple[str, ...]:
    """Those of `KINDS` that hold for the worker."""
    holds = {
        "silent": silence(worker, now=now) is not None,
        "quarantined": bool(worker.get("is_quarantined")),
        "break-glass": bool(worker.get("is_break_glass")),
        "tripped": bool(worker.get("trip")),
        "cordoned": bool(worker.get("is_cordoned")),
        "pinned": bool(pins_of(worker, now=now)),
    }
    return tuple(kind for kind in KINDS if holds[kind])


def silence(worker: Mapping[str, Json], *, now: datetime) -> str | None:
    """Since when nothing was heard of the worker, or None where it was heard of lately."""
    seen = output.moment(worker.get("last_seen_at"))
    # A time that cannot be read says nothing, and nothing is no sign of life.
    if seen is None:
        return "silent"
    # As the web page and the metrics have it.
    if now - seen <= REACHABLE_WITHIN:
        return None
    at = output.time_of(worker["last_seen_at"])
    return f"silent since {at if now - seen >= _DAY else at[11:]}"


def by_kind(workers: Sequence[Mapping[str, Json]], *, now: datetime) -> Mapping[str, list[str]]:
    """Names of the workers of each kind; a worker may be of several."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for worker in workers:
        for kind in kinds_of(worker, now=now):
            found[kind].append(str(worker["name"]))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What holds a worker, and what ends it."""

    sentence: str
    command: str


def notes(worker: Mapping[str, Json], *, fleet: str, now: datetime) -> list[Note]:
    """One for each thing that holds the worker."""
    return list(_notes(worker, fleet=fleet, now=now))


def write_notes(
    workers: Sequence[Mapping[str, Json]], *, fleet: str, now: datetime, title: str = ""
) -> None:
    """The notes of `workers` on stdout, below what was shown of them."""
    told = [note for worker in workers for note in notes(worker, fleet=fleet, now=now)]
    if told:
        output.write_line()
        if title:
            output.write_line(title, style="bold")
    for note in told:
        write_note(note)


def line_note(fleet: str) -> Note:
    """What keeps every worker of the fleet at its fallback, and what ends it."""
    return Note(sentence="the line is stopped", command=f"steadyframe lift {fleet}")


def write_line_note(found: Mapping[str, Json], *, fleet: str) -> None:
    """On stdout, where `found`, a fleet, has its line stopped."""
    if found.get("stopped_reason"):
        output.write_line()
        write_note(line_note(fleet))


def write_note(note: Note) -> None:
    """The sentence, and the command on a line of its own, whole, to be copied."""
    output.write_item(f"{note.sentence}; to end it:")
    output.write_whole(f"    {note.command}")


def pins_of(worker: Mapping[str, Json], *, now: datetime) -> list[Mapping[str, Json]]:
    """The pins that have not run out."""
    return [pin for pin in worker.get("pins") or [] if not _is_over(pin, now=now)]


def pin_text(pin: Mapping[str, Json]) -> str:
    """Which variant, until when, by whom and why."""
    until = output.time_of(pin.get("expires_at"))
    by = f" by {pin['actor']}" if pin.get("actor") else ""
    return f"{pin['flag']}={pin['variant']} until {until}{by}: {pin.get('reason')}"


def trip_text(trip: Mapping[str, Json]) -> str:
    """Since when the breaker is open, and why."""
    return f"breaker open since {output.time_of(trip.get('at'))}: {trip.get('reason')}"


def _notes(worker: Mapping[str, Json], *, fleet: str, now: datetime) -> Iterator[Note]:
    name = worker["name"]
    restore = f"steadyframe worker restore {fleet} {name}"
    if worker.get("is_quarantined"):
        sentence = f"{name} is quarantined: it stayed silent on a variant that was taken back"
        yield Note(sentence=sentence, command=restore)
    if worker.get("is_break_glass"):
        yield Note(
            sentence=f"{name} was forced to its fallback on its own machine, and is freed there",
            command="steadyframe-worker local clear --state-dir DIR",
        )
    if trip := worker.get("trip"):
        yield Note(sentence=f"{name}: {trip_text(trip)}", command=restore)
    if worker.get("is_cordoned"):
        yield Note(
            sentence=f"{name} is cordoned: no new session, no part in canaries",
            command=f"steadyframe worker uncordon {fleet} {name}",
        )
    for pin in pins_of(worker, now=now):
        yield Note(
            sentence=f"{name} is pinned to {pin_text(pin)}",
            command=f"steadyframe unpin {fleet} {name} {pin['flag']}",
        )


def _is_over(pin: Mapping[str, Json], *, now: datetime) -> bool:
    until = output.moment(pin.get("expires_at"))
    return until is not None and until <= now
