"""Answers about flags and policies."""

from datetime import datetime
from typing import Any

from controlplane.api.answers.form import Answer, Flags, Rehearsed
from controlplane.domain.flag import Applies


class Variant(Answer):
    """One way to compute the same thing."""

    name: str
    summary: str
    is_canary_only: bool


class Flag(Answer):
    """A kernel switch; `fallback` by hardware, `*` for any other."""

    name: str
    summary: str
    applies: Applies
    plain: str
    variants: list[Variant]
    fallback: Flags


class Policy(Answer):
    """A policy, without its document."""

    name: str
    flag: str | None  # none: it is for canaries of a stack
    summary: str
    digest: str
    created_at: datetime


class FullPolicy(Policy):
    """A policy with its canonical document, and what it asks in words."""

    document: dict[str, Any]
    describes: list[str]


class ChangedPolicy(Policy, Rehearsed):
    """A policy that was kept."""


class Draft(Answer):
    """A policy that holds together, in canonical form, and what it asks in words."""

    policy: dict[str, Any]
    describes: list[str]
