"""`steadyframe status`: everything on one screen, and whether anybody has to get up."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote

import typer

from controlplane.cli import fleets, output, workers
from controlplane.cli.client import Client, Json
from controlplane.cli.exits import Exit
from controlplane.cli.session import Session, query

_OVER: Final = frozenset({"promoted", "rolled_back", "cancelled"})
_CALM: Final = frozenset({"as wanted", "changing", "in a canary", "cordoned", "pinned"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What was found."""

    url: str
    is_ready: bool
    fleets: Sequence[Mapping[str, Json]]
    workers: Mapping[str, Sequence[Mapping[str, Json]]]  # by fleet
    canaries: Sequence[Mapping[str, Json]]  # live ones, as `canary show` has them


def register(root: typer.Typer) -> None:
    """Put `status` on the top level."""

    @query(root, "status")
    def status(session: Session) -> None:
        """One screen: server, fleets, workers, live canaries, and whatever needs a person."""
        found = look(session.client)
        needs = attention(found, now=_now())
        if session.as_json:
            output.write_json(_as_json(found, needs, now=_now()))
        else:
            _write(found, needs, now=_now())
        if needs:
            raise typer.Exit(int(Exit.ATTENTION))


def look(client: Client) -> Status:
    """Everything that is shown. Raises: CliError: nothing answers."""
    found = list(client.items("/v1/fleets"))
    live = [one for one in client.items("/v1/canaries") if one["phase"] not in _OVER]
    return Status(
        url=client.url,
        is_ready=client.is_ready(),
        fleets=found,
        workers={
            fleet["name"]: list(client.items(f"/v1/fleets/{_part(fleet['name'])}/workers"))
            for fleet in found
        },
        canaries=[client.get(f"/v1/canaries/{_part(one['name'])}") for one in live],
    )


def attention(found: Status, *, now: datetime) -> list[str]:
    """What needs a person, the most pressing first; empty is calm."""
    return list(_attention(found, now))


def _attention(found: Status, now: datetime) -> Iterator[str]:
    if not found.is_ready:
        yield f"the control plane at {found.url} is not ready: its log says why"
    for fleet in found.fleets:
        if fleet.get("stopped_reason"):
            yield (
                f"the line of fleet {fleet['name']} is stopped: {fleet['stopped_reason']};"
                f" `steadyframe lift {fleet['name']}` ends it"
            )
        for worker in found.workers[fleet["name"]]:
            if workers.state_of(worker, now=now) not in _CALM:
                state = workers.state_text(worker, now=now)
                yield f"worker {fleet['name']}/{worker['name']} is {state}"
    for canary in (one["canary"] for one in found.canaries):
        if canary["phase"] == "held":
            yield f"{canary['name']} is held: {canary['reason']}"


def _part(name: str) -> str:
    """A name as part of a path, also one that no server of ours gives."""
    return quote(name, safe="", errors="replace")


def _as_json(found: Status, needs: Sequence[str], *, now: datetime) -> Mapping[str, Json]:
    return {
        "url": found.url,
        "is_ready": found.is_ready,
        "fleets": [
            {**fleet, "workers": dict(_states(found, fleet, now=now))} for fleet in found.fleets
        ],
        "canaries": [{**one["canary"], "verdict": one.get("verdict")} for one in found.canaries],
        "attention": list(needs),
    }


def _states(found: Status, fleet: Mapping[str, Json], *, now: datetime) -> Counter[str]:
    return Counter(workers.state_of(worker, now=now) for worker in found.workers[fleet["name"]])


def _write(found: Status, needs: Sequence[str], *, now: datetime) -> None:
    ready = "ready" if found.is_ready else "not ready"
    output.write_fields(f"control plane {ready}", {"address": found.url})
    output.write_line()
    output.write_table(
        ("fleet", "mode", "workers", "promoted"),
        [
            (fleet["name"], fleets.mode_of(fleet), _told(found, fleet, now), fleet.get("promoted"))
            for fleet in found.fleets
        ],
        empty="no fleet yet: `steadyframe fleet adopt NAME --reason ...`",
    )
    output.write_line()
    output.write_table(
        ("canary", "fleet", "phase", "verdict", "reason"),
        [
            (
                one["canary"]["name"],
                one["canary"]["fleet"],
                one["canary"]["phase"],
                one.get("verdict"),
                one["canary"]["reason"],
            )
            for one in found.canaries
        ],
        empty="no canary runs",
    )
    output.write_line()
    for need in needs:
        output.write_item(need, mark="needs a person: ")
    if not needs:
        output.write_line("nothing needs a person")


def _told(found: Status, fleet: Mapping[str, Json], now: datetime) -> str:
    states = _states(found, fleet, now=now)
    return ", ".join(f"{states[state]} {state}" for state in sorted(states)) or "none"


def _now() -> datetime:
    from controlplane.clock import SystemClock

    return SystemClock().now()
