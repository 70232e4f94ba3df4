"""Kernel flags: their variants, the plain one, the fallback of each hardware profile.

A catalogue is data: it is parsed here, refused when a word in it is unknown, and never changed by a
decision.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from controlplane.contract.vocabulary import NAME_PATTERN
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


_FLAG_KEYS = frozenset({"summary", "applies", "plain", "variants", "fallback"})
_VARIANT_KEYS = frozenset({"summary", "canary_only"})


def parse_catalogue(document: object) -> tuple[Flag, ...]:
    """The flags of a catalogue document: `{flags: {name: {...}}}`.

    Raises:
        InvalidValueError: an unknown key or word, named with what is allowed.
    """
    root = _mapping(document, key="catalogue")
    _refuse_unknown(root, allowed={"flags"}, key="catalogue")
    flags = _mapping(root.get("flags"), key="flags")
    return tuple(_parse_flag(name, body) for name, body in sorted(flags.items()))


def _parse_flag(name: str, body: object) -> Flag:
    key = f"flags.{name}"
    fields = _mapping(body, key=key)
    _check_name(name, key=key)
    _refuse_unknown(fields, allowed=_FLAG_KEYS, key=key)
    variants = tuple(
        _parse_variant(variant, raw, key=f"{key}.variants")
        for variant, raw in _mapping(fields.get("variants"), key=f"{key}.variants").items()
    )
    words = [variant.name for variant in variants]
    fallback = _mapping(fields.get("fallback"), key=f"{key}.fallback")
    if ANY_HARDWARE not in fallback:
        raise InvalidValueError(
            f"{key}.fallback", sorted(fallback), allowed=f"a table with {ANY_HARDWARE!r}"
        )
    for hardware, word in fallback.items():
        _check_word(word, words, key=f"{key}.fallback.{hardware}")
    return Flag(
        name=name,
        summary=_text(fields.get("summary", ""), key=f"{key}.summary"),
        applies=Applies(_check_word(fields.get("applies"), list(Applies), key=f"{key}.applies")),
        plain=_check_word(fields.get("plain"), words, key=f"{key}.plain"),
        variants=variants,
        fallback=MappingProxyType({hardware: str(word) for hardware, word in fallback.items()}),
    )


def _parse_variant(name: str, body: object, *, key: str) -> Variant:
    _check_name(name, key=key)
    fields = _mapping(body or {}, key=f"{key}.{name}")
    _refuse_unknown(fields, allowed=_VARIANT_KEYS, key=f"{key}.{name}")
    canary_only = fields.get("canary_only", False)
    if not isinstance(canary_only, bool):
        raise InvalidValueError(f"{key}.{name}.canary_only", canary_only, allowed="true, false")
    summary = _text(fields.get("summary", ""), key=f"{key}.{name}.summary")
    return Variant(name=name, summary=summary, is_canary_only=canary_only)


def _mapping(value: object, *, key: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidValueError(key, value, allowed="a table with words as keys")
    return value


def _text(value: object, *, key: str) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(key, value, allowed="text")
    return value


def _check_name(name: str, *, key: str) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise InvalidValueError(key, name, allowed=f"names that match {NAME_PATTERN}")


def _check_word(word: object, words: Sequence[str], *, key: str) -> str:
    if not isinstance(word, str) or word not in words:
        raise InvalidValueError(key, word, allowed=one_of(words))
    return word


def _refuse_unknown(
    fields: Mapping[str, object], *, allowed: frozenset[str] | set[str], key: str
) -> None:
    for name in fields:
        if name not in allowed:
            raise InvalidValueError(f"{key}.{name}", fields[name], allowed=one_of(allowed))
