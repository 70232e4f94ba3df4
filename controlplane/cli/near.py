"""What somebody may have meant whose name is not there: the nearest names that are."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final

from controlplane.cli.client import Client, Json
from controlplane.cli.exits import CliError, Exit

# Where the names of each kind are listed, and how a person lists them.
_LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "fleet": ("/v1/fleets", "steadyframe fleet list"),
    "worker": ("/v1/fleets/{fleet}/workers", "steadyframe worker list {fleet}"),
    "canary": ("/v1/canaries", "steadyframe canary list"),
    "policy": ("/v1/policies", "steadyframe policy list"),
    "flag": ("/v1/flags", "steadyframe policy list"),
    "qualification": ("/v1/qualifications", "steadyframe qualification list"),
}
MAX_NAMED: Final = 3


@contextmanager
def naming(client: Client, *, fleet: str | None = None) -> Iterator[None]:
    """Add the nearest names to the error that there is nothing of a name."""
    try:
        yield
    except CliError as error:
        if step := _step(client, error, fleet=fleet):
            error.next_step = step
        raise


def likely(name: str, known: Sequence[str]) -> str:
    """Those of `known` that resemble `name`, as a question; empty where none does."""
    near = get_close_matches(name, known, n=MAX_NAMED)
    return f"did you mean {' or '.join(near)}?" if near else ""


def _step(client: Client, error: CliError, *, fleet: str | None) -> str:
    if error.exit_code is Exit.REFUSED:
        words = str(error.facts.get("allowed", "")).split(", ")
        value = str(error.facts.get("value"))
        near = likely(value, words)
        if near and error.facts.get("key") == "variant":
            return likely(value, _safe(client, words, fleet=fleet))
        return near
    kind, name = error.facts.get("kind"), error.facts.get("name")
    if error.exit_code is not Exit.NOT_FOUND or str(kind) not in _LISTS:
        return ""
    path, command = (each.format(fleet=fleet) for each in _LISTS[str(kind)])
    there = f"`{command}` shows what there is"
    if kind == "worker" and fleet is None:
        return ""
    near = likely(str(name), _names(client, path))
    return f"{near} {there}" if near else there


def _safe(client: Client, variants: Sequence[str], *, fleet: str | None) -> Sequence[str]:
    """Those that nobody is warned of: not for canaries only, and not disqualified anywhere.

    None where that cannot be found out: what must not be run is not to be proposed by mistake.
    """
    try:
        harmful = {
            str(variant.get("name"))
            for flag in client.items("/v1/flags")
            for variant in client.rows_of(flag, "variants")
            if variant.get("is_canary_only") is not False
        }
        harmful |= {
            str(record.get("variant"))
            for record in client.items("/v1/qualifications", fleet=fleet)
            if record.get("standing") == "disqualified"
        }
    except CliError:
        return ()
    return [variant for variant in variants if variant not in harmful]


def _names(client: Client, path: str) -> Sequence[str]:
    """The names that there are; none where they cannot be listed, which is not what was asked."""
    try:
        found: list[Mapping[str, Json]] = list(client.items(path))
    except CliError:
        return ()
    return [str(each.get("name")) for each in found]
