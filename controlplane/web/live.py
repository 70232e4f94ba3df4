"""Tells open pages that it is time to look again, by server-sent events.

The page asks for itself and swaps what differs, so there is one way to render and one to authorise.
"""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse, ServerSentEvent

from controlplane.api import signals
from controlplane.api.context import Here
from controlplane.api.problems import BusyError
from controlplane.web import guard

router = APIRouter(tags=["pages"], include_in_schema=False, route_class=guard.PageRoute)
TOPIC = "canaries"
# Each holds a connection; beyond that pages look every few seconds by themselves.
MAX_STREAMS = 200
# Evidence arrives without a signal, so pages also look this often.
EVERY_S = 2.0
# After a quarter of an hour the browser comes again, and is asked who it is again.
MAX_EVENTS = 450


def has_room(here: Here) -> None:
    """Refuse one stream too many. Raises: BusyError."""
    if here.signals.num_waiting(TOPIC) >= MAX_STREAMS:
        raise BusyError("too many pages are open; this one looks by itself")


@router.get("/events", response_class=EventSourceResponse)
async def events(
    here: Here, _: guard.Viewer, __: Annotated[None, Depends(has_room)]
) -> AsyncIterator[ServerSentEvent]:
    """An event when a canary moved, and every two seconds."""
    with here.signals.subscription(TOPIC) as event:
        for number in range(MAX_EVENTS):
            if here.signals.is_closed:
                return
            await signals.wait(event, timeout_s=EVERY_S)
            yield ServerSentEvent(event="look", data=number)
