"""How every change is made from the terminal: say what will happen, ask, then do it.

The exact effect comes from the control plane's own dry run, so that it is what would happen.
"""

import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer

from controlplane.cli import output
from controlplane.cli.client import TIMEOUT_S, Json
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.session import Session

WIDTH = 80  # of the narrowest terminal that is worked on


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One POST and how to tell a person about it."""

    title: str  # "abort canary fused-allreduce-3"
    path: str
    body: Mapping[str, Json] = field(default_factory=dict)
    timeout_s: float = TIMEOUT_S


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
        output.say(f"done: {change.title}")


def _reason(session: Session) -> str:
    reason = session.reason
    if reason is None and _is_interactive():
        with _interruptible():
            reason = typer.prompt("Reason (kept in the audit log)", err=True)
    if not reason or not reason.strip():
        raise CliError(
            "every change needs a reason", exit_code=Exit.USAGE, next_step='add --reason "..."'
        )
    return reason.strip()


def _show(change: Change, effects: list[str]) -> None:
    output.say(f"{change.title}:")
    for effect in effects or ["nothing changes: it is so already"]:
        wrapped = textwrap.fill(
            effect,
            width=WIDTH,
            initial_indent="  - ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        output.say(wrapped)


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
