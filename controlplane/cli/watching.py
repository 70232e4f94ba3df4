"""`steadyframe canary watch`: looks until the canary needs nobody's eyes any more.

Looking changes nothing, so it may be interrupted, and it waits for a control plane that is away.
"""

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controlplane.cli import output
from controlplane.cli.client import Client, Json
from controlplane.cli.exits import CliError, Exit

if TYPE_CHECKING:
    from rich.console import RenderableType

# An end, or what only a person leads on from: phase -> how the command ends.
ENDS: Final[Mapping[str, Exit]] = {
    "promoted": Exit.OK,
    "rolled_back": Exit.ROLLED_BACK,
    "cancelled": Exit.CANCELLED,
    "held": Exit.HELD,
}
EVERY_S: Final = 1.0
_AWAY: Final = frozenset({Exit.SERVER_AWAY, Exit.SERVER_FAULT})

Show = Callable[[Mapping[str, Json]], None]
Wait = Callable[[float], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a control plane that answered once may be away, and what tells and passes time."""

    seconds: float
    wait: Wait
    now: Callable[[], float]  # monotonic seconds: a try may take as long as many waits


def follow(client: Client, name: str, *, patience: Patience, show: Show) -> Exit:
    """Look at the canary until it ends or is held.

    Args:
        client: of the control plane.
        name: of the canary.
        patience: with a control plane that is away.
        show: is given each answer.

    Raises: CliError: it is not there, or the control plane is away for too long, or from the start.
    """
    found = client.get(f"/v1/canaries/{name}")
    while True:
        show(found)
        phase = str(_canary(found)["phase"])
        if phase in ENDS:
            return ENDS[phase]
        patience.wait(EVERY_S)
        found = _patient(client, name, patience)


def by_lines() -> Show:
    """Shows a line for each thing that has changed: for logs and pipes."""
    before: list[str] = []

    def show(found: Mapping[str, Json]) -> None:
        for line in lines(found):
            if line not in before:
                output.write_whole(line)
        before[:] = lines(found)

    return show


def lines(found: Mapping[str, Json]) -> list[str]:
    """What there is to say of a canary, without what changes all the time."""
    canary = _canary(found)
    where = f"{canary['phase']}, step {canary['step'] + 1}"
    gates = [f"{gate['gate']} is {gate['verdict']}" for gate in found.get("gates", [])]
    return [f"{canary['name']}: {where}: {canary['reason']}", *gates]


def candidate(canary: Mapping[str, Json]) -> str:
    """What is on trial: a variant, or a stack."""
    return str(canary.get("variant") or f"stack {canary.get('stack')}")


def change(canary: Mapping[str, Json]) -> str:
    """What becomes what; of a stack, under which variants."""
    if canary.get("flag"):
        return f"{canary['flag']}: {canary.get('baseline')} -> {canary['variant']}"
    variants = canary.get("variants") or {}
    both = ", ".join(f"{flag}={variant}" for flag, variant in sorted(variants.items()))
    return f"stack: {canary.get('old_stack')} -> {canary.get('stack')}, both with {both}"


def picture(found: Mapping[str, Json]) -> "RenderableType":
    """The canary at a glance: phase, progress of the bake, gates, exposed workers."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    canary = _canary(found)
    head = Text.assemble(
        (output.cell(canary["name"]), "bold"),
        output.cell(f"  {change(canary)}  fleet {canary['fleet']}"),
        "\n",
        output.styled(str(canary["phase"])),
        f"  {_step(found)}\n{output.cell(canary['reason'])}\n",
    )
    gates = Table(box=None, pad_edge=False)
    for column in ("gate", "verdict", "why"):
        gates.add_column(column, overflow="fold")
    for gate in found.get("gates", []):
        cells = (gate["gate"], gate["verdict"], gate.get("reason"))
        gates.add_row(*(output.styled(output.cell(cell)) for cell in cells))
    return Group(head, gates, Text(f"\nexposed: {_exposed(found)}"))


def watch(client: Client, name: str, *, patience_s: float, is_silent: bool) -> Exit:
    """`follow` on this terminal, or as lines where it is none, or showing nothing."""
    from controlplane.clock import SystemClock

    patience = Patience(
        seconds=patience_s, wait=threading.Event().wait, now=SystemClock().monotonic
    )
    if is_silent:
        return follow(client, name, patience=patience, show=_nothing)
    if not sys.stdout.isatty():
        return follow(client, name, patience=patience, show=by_lines())
    from rich.live import Live

    with Live(console=output.console(), auto_refresh=False) as live:

        def show(found: Mapping[str, Json]) -> None:
            live.update(picture(found), refresh=True)

        return follow(client, name, patience=patience, show=show)


def _nothing(_: Mapping[str, Json]) -> None:
    """A script waits for the end alone."""


def _patient(client: Client, name: str, patience: Patience) -> Mapping[str, Json]:
    """The next answer. Raises: CliError: none as long as there is patience."""
    give_up_at = patience.now() + patience.seconds
    num_tries = max(1, round(patience.seconds / EVERY_S))
    for number in range(num_tries):
        try:
            found: Mapping[str, Json] = client.get(f"/v1/canaries/{name}")
        except CliError as error:
            is_over = number == num_tries - 1 or patience.now() >= give_up_at
            if error.exit_code not in _AWAY or is_over:
                raise
            if number == 0:
                told = f"{error}; waiting up to {patience.seconds:g} s for it to come back"
                output.say_wrapped(told, rest="  ")
            patience.wait(EVERY_S)
        else:
            if number:
                output.say("it is back")
            return found
    raise AssertionError("the last try raises")


def _canary(found: Mapping[str, Json]) -> Mapping[str, Json]:
    canary: Mapping[str, Json] = found.get("canary", found)
    return canary


def _step(found: Mapping[str, Json]) -> str:
    steps = found.get("steps", [])
    number = int(_canary(found)["step"])
    baked_s = _canary(found).get("bake_s") or 0.0
    if not 0 <= number < len(steps):
        return f"step {number + 1}"
    wanted_s = steps[number]["bake_s"]
    return f"step {number + 1} of {len(steps)}, baked {baked_s:.0f} of {wanted_s:.0f} s"


def _exposed(found: Mapping[str, Json]) -> str:
    workers = found.get("workers", [])
    return output.cell([worker.get("worker") for worker in workers])
