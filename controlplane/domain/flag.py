"""Kernel flags: their variants, the plain one, the fallback of each hardware profile.

A catalogue is data: it is parsed here, refused when a word in it is unknown, and never changed by a
decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from controlplane.domain.document import Table, check_name, table
from controlplane.domain.errors import InvalidValueError, NotFoundError, one_of

# Stands for every hardware profile that a fallback table does not name.
ANY_HARDWARE = "*"


class Applies(StrEnum):
    """When a variant may change on a running worker."""

    STEP = "step"
    SESSION = "session"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to compute the same thing."""

    name: str
    summary: str
    # Keeps it out of promotion: it exists to be caught (the August kernel, a slow twin).
    is_canary_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A kernel switch."""

    name: str
    summary: str
    applies: Applies
    plain: str  # the oracle for probes and tests
    variants: tuple[Variant, ...]
    fallback: Mapping[str, str]  # hardware profile, or ANY_HARDWARE -> variant

    def fallback_on(self, hardware: str) -> str:
        """The plainest variant measured within the deadline on `hardware`."""
        return self.fallback.get(hardware, self.fallback[ANY_HARDWARE])

    def variant(self, name: str) -> Variant:
        """The variant named `name`.

        Raises:
            InvalidValueError: the flag has no such variant.
        """
        for variant in self.variants:
            if variant.name == name:
                return variant
        names = one_of(variant.name for variant in self.variants)
        raise InvalidValueError(self.name, name, allowed=names)


def require(catalogue: Sequence[Flag], name: str) -> Flag:
    """The flag named `name`.

    Raises:
        NotFoundError: the catalogue has no such flag.
    """
    for flag in catalogue:
        if flag.name == name:
            return flag
    raise NotFoundError("flag", name, known=(flag.name for flag in catalogue))


def fallback_flags(catalogue: Sequence[Flag], hardware: str) -> dict[str, str]:
    """Every flag at its fallback on `hardware`."""
    return {flag.name: flag.fallback_on(hardware) for flag in catalogue}


FLAG_KEYS = frozenset({"summary", "applies", "plain", "variants", "fallback"})
VARIANT_KEYS = frozenset({"summary", "canary_only"})


def parse_catalogue(document: object) -> tuple[Flag, ...]:
    """The flags of a catalogue document: `{flags: {name: {...}}}`.

    Raises:
        InvalidValueError: an unknown key or word, named with what is allowed.
    """
    root = table(document, path="", allowed={"flags"})
    return tuple(
        _parse_flag(name, body, path=f"flags.{name}") for name, body in sorted(root.named("flags"))
    )


def _parse_flag(name: str, body: object, *, path: str) -> Flag:
    fields = table(body, path=path, allowed=FLAG_KEYS)
    variants = tuple(
        _parse_variant(variant, variant_body, path=f"{path}.variants.{variant}")
        for variant, variant_body in fields.named("variants")
    )
    # What exists to be caught is neither an oracle nor a place to fall back to.
    words = [variant.name for variant in variants if not variant.is_canary_only]
    return Flag(
        name=name,
        summary=fields.text("summary"),
        applies=Applies(fields.word("applies", list(Applies))),
        plain=fields.word("plain", words),
        variants=variants,
        fallback=_parse_fallback(fields, words=words),
    )


def _parse_fallback(fields: Table, *, words: Sequence[str]) -> Mapping[str, str]:
    profiles = fields.fields.get("fallback")
    if not isinstance(profiles, Mapping) or ANY_HARDWARE not in profiles:
        raise fields.refusal("fallback", allowed=f"a table with the key {ANY_HARDWARE!r}")
    for profile in profiles:
        if profile != ANY_HARDWARE:
            check_name(profile, key=f"{fields.key('fallback')}.{profile}")
    fallback = fields.table("fallback", allowed=list(profiles))
    return MappingProxyType({profile: fallback.word(profile, words) for profile in profiles})


def _parse_variant(name: str, body: object, *, path: str) -> Variant:
    fields = table(body, path=path, allowed=VARIANT_KEYS)
    return Variant(
        name=name,
        summary=fields.text("summary"),
        is_canary_only=fields.boolean("canary_only", default=False),
    )
