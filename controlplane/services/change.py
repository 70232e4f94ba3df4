"""What every change a person makes has in common: who, why, and what it did in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.ports import NewId


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One person's (or token's) doing, at one time."""

    actor: str
    reason: str
    now: datetime
    new_id: NewId


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was done, or would be: a dry run makes the same one and rolls it back."""

    subject: Any  # the value as it stands now
    effects: Sequence[str]  # sentences for a person, the most important first
    woken: Sequence[str] = ()  # ids of workers whose desired state is another now
    secret: Mapping[str, str] = field(default_factory=dict, repr=False)  # shown once, never kept
