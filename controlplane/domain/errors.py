"""Expected refusals: what was asked for cannot be done, and what to do instead.

They know nothing of HTTP or exit codes; the edges translate them.
"""

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


class InvalidValueError(DomainError):
    """A value that is not allowed: names the key, the value and what is."""

    def __init__(self, key: str, value: object, *, allowed: str) -> None:
        super().__init__(f"{key}: {value!r} is not allowed; allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


def one_of(words: Iterable[str]) -> str:
    """The allowed words as a refusal lists them."""
    return ", ".join(sorted(words))
