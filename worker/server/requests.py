"""What a viewer asks for before its session begins: one JSON text, checked before anything runs."""

import asyncio
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from websockets.asyncio.server import ServerConnection

from controlplane.contract.messages import Identifier
from worker.server.refusals import Refusal, RefusalCode

REQUEST_TIMEOUT_S = 5.0


class Request(BaseModel):
    """What a viewer asks for."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    first_forward_length: Annotated[int, Field(ge=0, le=1_000_000)]
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    is_synthetic: bool = False
    session: Identifier | None = None


async def received(viewer: ServerConnection) -> Request:
    """What the viewer asks for. Raises: Refusal, ConnectionClosed."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            text = await viewer.recv()
        return Request.model_validate_json(text)
    except TimeoutError as error:
        reason = f"no request within {REQUEST_TIMEOUT_S:.0f} s"
        raise Refusal(RefusalCode.BAD_REQUEST, reason) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "request"
        reason = f"{key}: {first['msg']}"
        raise Refusal(RefusalCode.BAD_REQUEST, reason) from error
