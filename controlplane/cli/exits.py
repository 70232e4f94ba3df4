"""Exit codes of the command line, and the one exception that carries them.

Scripts rely on these numbers: they are listed in docs/exit-codes.md and never change meaning.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final


class Exit(IntEnum):
    """How a command ended; the docstring of each is its line in docs/exit-codes.md."""

    OK = 0
    REFUSED = 1  # understood, and not allowed: names the key, the value and what is
    USAGE = 2  # the command line itself is wrong
    NOT_FOUND = 3  # there is nothing by that name
    CONFLICT = 4  # sound, but not in the present state
    SERVER_AWAY = 5  # nothing answered at the address, or something that is no Steadyframe server
    NOT_AUTHORISED = 6  # no token, a wrong one, or one whose role does not allow this
    SERVER_FAULT = 7  # the control plane failed; its log has the cause
    DECLINED = 8  # the person at the terminal said no
    DEMO_FAILED = 9  # a scene of the demo ended otherwise than it must
    ROLLED_BACK = 10  # the canary that was watched went back
    HELD = 11  # the canary that was watched waits for a person
    CANCELLED = 12  # the canary that was watched never began
    ATTENTION = 13  # something needs a person, as `status` says
    DIFFERS = 14  # a stored decision is not what judging it again gives
    UNVERIFIED = 15  # a stored decision keeps too little to be judged again
    INTERRUPTED = 130  # Ctrl-C, as shells have it


# What helps where the error itself names nothing better: no error leaves its reader without a step.
NEXT_STEPS: Final[Mapping[Exit, str]] = MappingProxyType(
    {
        Exit.REFUSED: "give a value that is allowed",
        Exit.USAGE: "add --help to the command to see what it takes",
        Exit.NOT_FOUND: "`steadyframe status` shows the fleets and canaries that there are",
        Exit.CONFLICT: "look how things stand first: `steadyframe status`",
        Exit.SERVER_AWAY: "start one with `steadyframe serve`, or say where it is: --url URL or"
        " STEADYFRAME_URL",
        Exit.NOT_AUTHORISED: "give a token that may do this: --token-file FILE, or"
        " STEADYFRAME_TOKEN_FILE; an admin makes one with `steadyframe token create`",
        Exit.SERVER_FAULT: "look into the control plane's log; the same command may be tried again",
        Exit.DECLINED: "run it again once the effects are what you want",
        Exit.DEMO_FAILED: "the ends of the logs say why; `steadyframe demo` may be run again",
        Exit.DIFFERS: "compare with a backup, and the version that made it with this one",
        Exit.UNVERIFIED: "nothing: the record kept too little, and its digest holds",
        Exit.INTERRUPTED: "run it again",
    }
)


class CliError(Exception):
    """A command cannot go on: a sentence for a person, what to do next, and the exit code."""

    def __init__(
        self,
        message: str,
        *,
        exit_code: Exit,
        next_step: str = "",
        facts: Mapping[str, Any] | None = None,
        detail: str = "",
    ) -> None:
        """Say `message`.

        Args:
            message: a sentence or two.
            exit_code: how the command ends.
            next_step: what to do; absent: what `NEXT_STEPS` has for the code.
            facts: of the refusal, for scripts: key, value, allowed.
            detail: lines to show as they are, such as the end of a log.
        """
        super().__init__(message)
        self.exit_code = exit_code
        self.next_step = next_step or NEXT_STEPS[exit_code]
        self.facts = facts or {}
        self.detail = detail
