"""What routes are given: the database, the clock and the rest, made once by `app`."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request

from controlplane.api.signals import Signals
from controlplane.ports import Clock, NewId
from controlplane.settings import Settings
from controlplane.store.transaction import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One process of the control plane, as its routes see it."""

    database: Database
    clock: Clock
    new_id: NewId
    new_secret: Callable[[], str]  # 256 random bits as text that is safe in a header
    signals: Signals
    nudge: Callable[[], None]  # brings the reconcilers' next tick forward
    schema: str | None  # the newest migration that this release has
    last_tick_at: Callable[[], datetime | None]  # of the reconcilers in this process
    started_at: datetime
    settings: Settings
    randomness: random.Random


def context_of(request: Request) -> Context:
    """The context that `app` put there."""
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(context_of)]
