"""What all answers have in common."""

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")
Flags = dict[str, str]
Interval = tuple[float, float]


class Answer(BaseModel):
    """One JSON object, with these keys and no others."""

    model_config = ConfigDict(extra="forbid")


class Page(Answer, Generic[T]):
    """Part of a list; `next_cursor` is what to send as `cursor` for the next one."""

    items: list[T]
    next_cursor: str | None


class Rehearsed(Answer):
    """What a change would do, in words, the most important first."""

    effects: list[str]
