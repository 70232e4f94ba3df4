"""Exit codes of the command line, and the one exception that carries them.

Scripts rely on these numbers: they are listed in docs/exit-codes.md and never change meaning.
"""

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended; the docstring of each is its line in docs/exit-codes.md."""

    OK = 0
    REFUSED = 1  # understood, and not allowed: names the key, the value and what is
    USAGE = 2  # the command line itself is wrong
    NOT_FOUND = 3  # there is nothing by that name
    CONFLICT = 4  # sound, but not in the present state
    SERVER_AWAY = 5  # nothing answered at the address
    NOT_AUTHORISED = 6  # no token, a wrong one, or one whose role does not allow this
    SERVER_FAULT = 7  # the control plane failed; its log has the cause
    DECLINED = 8  # the person at the terminal said no
    DEMO_FAILED = 9  # a scene of the demo ended otherwise than it must
    ROLLED_BACK = 10  # the canary that was watched went back
    HELD = 11  # the canary that was watched waits for a person
    CANCELLED = 12  # the canary that was watched never began
    ATTENTION = 13  # something needs a person, as `status` says
    INTERRUPTED = 130  # Ctrl-C, as shells have it


class CliError(Exception):
    """A command cannot go on: a sentence for a person, what to do next, and the exit code."""

    def __init__(self, message: str, *, exit_code: Exit, next_step: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.next_step = next_step
