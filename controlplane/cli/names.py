"""Words of the command line that become parts of a request: checked before anything is sent.

An argument becomes part of a path, so that `../tokens` must not lead elsewhere; and what is refused
here is refused in the API's own words, by key, value and what is allowed.
"""

import re
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from controlplane.cli.exits import CliError, Exit
from controlplane.contract.vocabulary import NAME_PATTERN
from controlplane.domain import weeks
from controlplane.domain.absolute_forms import MOST_QUALITY
from controlplane.domain.errors import InvalidValueError

# A flag's name and a number, or an id.
CANARY_PATTERN: Final = r"[a-z0-9][a-z0-9_.-]{0,99}"
MAX_REASON: Final = 500

Check = Callable[[str | None], str | None]


def named(key: str, pattern: str = NAME_PATTERN) -> Check:
    """A callback that lets only names through."""

    def check(value: str | None) -> str | None:
        if value is not None and not re.fullmatch(pattern, value):
            raise refusal(InvalidValueError(key, value, allowed=f"names that match {pattern}"))
        return value

    return check


def canary(key: str) -> Check:
    """A callback that lets only names of canaries through."""
    return named(key, CANARY_PATTERN)


def quality(value: float) -> float:
    """`value` if a gate can judge it. Raises: CliError."""
    if not -MOST_QUALITY <= value <= MOST_QUALITY:  # NaN is not, either
        allowed = f"a number from {-MOST_QUALITY:.0f} to {MOST_QUALITY:.0f}"
        raise refusal(InvalidValueError("--value", value, allowed=allowed))
    return value


def day(key: str) -> Check:
    """A callback that lets only dates through."""

    def check(value: str | None) -> str | None:
        if value is not None:
            try:
                weeks.day_of(value, key=key)
            except InvalidValueError as error:
                raise refusal(error) from None
        return value

    return check


def path(key: str) -> Callable[[Path | None], Path | None]:
    """A callback that lets only what can be a path through."""

    def check(value: Path | None) -> Path | None:
        if value is not None and "\x00" in str(value):
            raise refusal(InvalidValueError(key, str(value), allowed="a path without NUL"))
        return value

    return check


def host(value: str | None) -> str | None:
    """`value` if a machine can be called that. Raises: CliError."""
    if value is not None and not re.fullmatch(r"[A-Za-z0-9.:_-]{1,253}", value):
        allowed = "an address or a host name"
        raise refusal(InvalidValueError("--host", value, allowed=allowed))
    return value


def reason(value: str | None) -> str | None:
    """`value` if it may be kept in the audit log. Raises: CliError."""
    if value is not None and (len(value) > MAX_REASON or not _is_text(value)):
        allowed = f"at most {MAX_REASON} characters, none of them a control character"
        raise refusal(InvalidValueError("reason", value, allowed=allowed))
    return value


def refusal(error: InvalidValueError) -> CliError:
    """`error` as the command tells it."""
    return CliError(str(error), exit_code=Exit.REFUSED, facts=facts_of(error))


def facts_of(error: InvalidValueError) -> Mapping[str, str]:
    """Key, value and what is allowed, for scripts."""
    return {"key": error.key, "value": reprlib.repr(error.value), "allowed": error.allowed}


def _is_text(value: str) -> bool:
    return all(each in "\t\n" or not _is_control(each) for each in value)


def _is_control(character: str) -> bool:
    # As the API refuses them, and what is no character at all: a byte that was not UTF-8.
    number = ord(character)
    return number < ord(" ") or 0x7F <= number < 0xA0 or 0xD800 <= number < 0xE000  # noqa: PLR2004 - code points
