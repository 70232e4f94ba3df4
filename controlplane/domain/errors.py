"""Expected refusals: what was asked for cannot be done, and what to do instead.

They know nothing of HTTP or exit codes; the edges translate them.
"""

import reprlib
from collections.abc import Iterable


class DomainError(Exception):
    """A refusal that its reader can act on."""


class NotFoundError(DomainError):
    """There is nothing of that kind by that name."""

    def __init__(self, kind: str, name: str, *, known: Iterable[str] = ()) -> None:
        names = ", ".join(sorted(known))
        super().__init__(f"no {kind} named {name!r}" + (f"; there are: {names}" if names else ""))
        self.kind = kind
        self.name = name


class ConflictError(DomainError):
    """The request is sound, but not in the present state."""


class StaleVersionError(ConflictError):
    """Somebody else changed the row between reading and writing it; observe again."""

    def __init__(self, kind: str, name: str, version: int) -> None:
        super().__init__(f"{kind} {name!r} is no longer at version {version}: read it again")
        self.version = version


class UnavailableError(DomainError):
    """It cannot be done just now, through no fault of the request; it may be sent again."""


class InvalidValueError(DomainError):
    """A value that is not allowed: names the key, the value and what is."""

    def __init__(self, key: str, value: object, *, allowed: str) -> None:
        super().__init__(f"{key}: {_SHOWN.repr(value)} is not allowed; allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class _Shown(reprlib.Repr):
    """Shows a refused value in one line, whatever its size or depth."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 120

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002 - the signature of reprlib
        """Digits, unless there are too many: Python refuses to print over 4,300."""
        return str(x) if x.bit_length() <= 64 else f"an integer of {x.bit_length()} bits"  # noqa: PLR2004


_SHOWN = _Shown()


def one_of(words: Iterable[str]) -> str:
    """The allowed words as a refusal lists them."""
    return ", ".join(sorted(words))
