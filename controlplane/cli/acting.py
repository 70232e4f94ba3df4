"""How every change is made from the terminal: say what will happen, ask, then do it.

The exact effect comes from the control plane's own dry run, so that it is what would happen.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer

from controlplane.cli import names, output
from controlplane.cli.client import Json
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One POST and how to tell a person about it."""

    title: str  # "abort canary fused-allreduce-3"
    path: str
    body: Mapping[str, Json] = field(default_factory=dict)
    timeout_s: float | None = None  # longer than usual, where it takes longer


def make(session: Session, change: Change) -> Json:
    """Show the effects of `change`, have them confirmed, and carry it out.

    Returns: the control plane's answer.
    Raises: CliError: no reason, not confirmed, or refused by the control plane.
    """
    reason = _reason(session)
    body = {**change.body, "reason": reason}
    _show(change, session.client.effects(change.path, body, timeout_s=change.timeout_s))
    _confirm(session)
    return session.client.post(change.path, body, timeout_s=change.timeout_s)


def make_and_tell(session: Session, change: Change) -> None:
    """`make`, then the answer as JSON or one line that it is done."""
    answer = make(session, change)
    if session.as_json:
        output.write_json(answer)
    else:
        output.say_wrapped(f"done: {change.title}", rest="  ")


def _reason(session: Session) -> str:
    reason = session.reason
    if reason is None and _is_interactive():
        with _interruptible():
            reason = names.reason(typer.prompt("Reason (kept in the audit log)", err=True))
    if not reason or not reason.strip():
        raise CliError(
            "every change needs a reason", exit_code=Exit.USAGE, next_step='add --reason "..."'
        )
    return reason.strip()


def _show(change: Change, effects: list[str]) -> None:
    output.say_wrapped(f"{change.title}:", rest="  ")
    for effect in effects or ["nothing changes: it is so already"]:
        output.say_wrapped(effect, first="  - ", rest="    ")


def _confirm(session: Session) -> None:
    if session.is_confirmed:
        return
    if not _is_interactive():
        raise CliError(
            "not done: nobody can be asked here",
            exit_code=Exit.USAGE,
            next_step="add --yes once the effects above are what you want",
        )
    with _interruptible():
        is_wanted = typer.confirm("Do it?", err=True)
    if not is_wanted:
        raise CliError("not done: declined", exit_code=Exit.DECLINED)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C or the end of input at a question ends the command; nothing has been done by then."""
    try:
        yield
    except typer.Abort:
        raise CliError("interrupted: nothing was done", exit_code=Exit.INTERRUPTED) from None


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
