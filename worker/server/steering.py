"""What a viewer may say while its session runs, and the answer to what it may not.

Pure: a text goes in, a message or a rejection comes out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from worker import features, prompts

_MOST_SHOWN = 100  # characters of a wrong value that are sent back


def _with_a_word(text: str) -> str:
    if not prompts.words(text):
        message = "no word in it"
        raise ValueError(message)
    return text


PromptText = Annotated[
    str, Field(min_length=1, max_length=prompts.MAX_CHARACTERS), AfterValidator(_with_a_word)
]
_Feature = Annotated[float, Field(strict=True, ge=-1, le=1, allow_inf_nan=False)]
_Features = Annotated[list[_Feature], Field(min_length=1, max_length=features.NUM_EACH)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class PromptMessage(_Message):
    """Another prompt from the next step that is planned."""

    type: Literal["prompt"]
    text: PromptText


class FeaturesMessage(_Message):
    """Features for the next step that is planned and those after it, until others come."""

    type: Literal["audio", "control"]
    features: _Features


Message = PromptMessage | FeaturesMessage
_ANY: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])

PROMPT_ALLOWED = f"1 to {prompts.MAX_CHARACTERS} characters with a word in them"
_ALLOWED = {
    "message": "one JSON object as text",
    "type": "prompt, audio, control",
    "text": PROMPT_ALLOWED,
    "features": f"1 to {features.NUM_EACH} numbers from -1 to 1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a message changes nothing."""

    key: str
    value: object  # a JSON value; a long one is cut off
    allowed: str


def parsed(message: str | bytes) -> Message | Rejection:
    """What the viewer says, or why it does not count."""
    if isinstance(message, bytes):
        return Rejection(key="message", value="binary", allowed=_ALLOWED["message"])
    try:
        return _ANY.validate_json(message)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return _rejection(first["type"], first["loc"], first["input"])


def _rejection(kind: str, place: Sequence[int | str], value: object) -> Rejection:
    if kind.startswith("union_tag"):
        tag = value.get("type") if isinstance(value, Mapping) else None
        return Rejection(key="type", value=_shown(tag), allowed=_ALLOWED["type"])
    if len(place) < 2:  # noqa: PLR2004 - the first is the type, the second its key
        return Rejection(key="message", value=_shown(value), allowed=_ALLOWED["message"])
    key = ".".join(str(part) for part in place[1:])
    is_missing = kind == "missing"
    return Rejection(
        key=key, value=None if is_missing else _shown(value), allowed=_ALLOWED[str(place[1])]
    )


def _shown(value: object) -> object:
    """`value` as a short JSON value, whatever it is."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str):
        return value[:_MOST_SHOWN]
    # Python does not write out whole numbers of thousands of digits.
    text = "a very large number" if isinstance(value, int) else repr(value)
    return text[:_MOST_SHOWN]
