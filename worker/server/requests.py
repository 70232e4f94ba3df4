"""What a viewer asks for before its session begins: one JSON text, checked before anything runs."""

import asyncio
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from websockets.asyncio.server import ServerConnection

from controlplane.contract.messages import Identifier
from worker.server.refusals import Refusal, RefusalCode
from worker.server.steering import PromptText

REQUEST_TIMEOUT_S = 5.0


class Request(BaseModel):
    """What a viewer asks for."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    # One of these two. A length stands for some prompt of so many tokens: for tests and drills.
    prompt: PromptText | None = None
    first_forward_length: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    is_synthetic: bool = False
    session: Identifier | None = None

    @model_validator(mode="after")
    def _has_one_prompt(self) -> Self:
        if (self.prompt is None) == (self.first_forward_length is None):
            said = "neither" if self.prompt is None else "both"
            message = f"{said} given; allowed: either prompt or first_forward_length"
            raise ValueError(message)
        return self


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
