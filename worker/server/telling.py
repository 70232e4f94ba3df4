"""The JSON texts that the server says to a viewer, and the closing of its socket."""

import json
import logging

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from controlplane.contract.records import SessionEnded
from worker.server.refusals import Refusal, RefusalCode

CLOSE_TRY_AGAIN = 1013
CLOSE_BAD_REQUEST = 1008
CLOSE_NORMAL = 1000

logger = logging.getLogger(__name__)


async def tell(viewer: ServerConnection, **fields: object) -> None:
    """Say one JSON text. Raises: ConnectionClosed."""
    await viewer.send(json.dumps(fields))


async def refuse(viewer: ServerConnection, refusal: Refusal) -> None:
    """Say why not, and close."""
    is_bad = refusal.code is RefusalCode.BAD_REQUEST
    try:
        await tell(viewer, type="refused", code=refusal.code, reason=refusal.reason)
        # A close reason holds 123 bytes.
        reason = f"{refusal.code}: {refusal.reason}"[:100]
        await viewer.close(CLOSE_BAD_REQUEST if is_bad else CLOSE_TRY_AGAIN, reason)
    except ConnectionClosed:
        logger.debug("viewer_gone code=%s", refusal.code)


async def say_goodbye(viewer: ServerConnection, ended: SessionEnded) -> None:
    """Say how the session ended, and close."""
    try:
        await tell(
            viewer,
            type="ended",
            session=ended.session,
            outcome=ended.outcome,
            reason=ended.reason,
            num_frames=ended.num_frames,
        )
        await viewer.close(CLOSE_NORMAL)
    except ConnectionClosed:
        logger.debug("viewer_gone session=%s", ended.session)
