"""What operators send: strict, and an unknown key is refused by name.

Worker messages live in `contract/`, where unknown fields are ignored instead.
"""

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from controlplane.contract.messages import (
    BreakerTrip,
    EffectiveReport,
    ProbeReport,
    Registration,
)
from controlplane.contract.vocabulary import MAX_INT64, NAME_PATTERN
from controlplane.domain import errors, imported
from controlplane.domain.absolute_forms import MOST_QUALITY

MAX_LIMIT = 500
DEFAULT_LIMIT = 100
# A YAML policy of a few hundred lines.
MAX_DOCUMENT = 64 * 1024
# Control characters but tab and newline: they forge lines in logs and terminals, and PostgreSQL
# refuses NUL.
_FORBIDDEN = {code for code in range(32) if chr(code) not in "\t\n"} | set(range(127, 160))
# The same for the OpenAPI schema, which cannot show a check in Python.
_PRINTABLE = r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]"
_SAID = rf"^{_PRINTABLE}*[^\s\x00-\x1f\x7f-\x9f]{_PRINTABLE}*$"


def _printable(text: str) -> str:
    if any(ord(character) in _FORBIDDEN for character in text):
        message = "text without control characters"
        raise ValueError(message)
    return text


def _said(text: str) -> str:
    if not text.strip():
        message = "a few words that say why"
        raise ValueError(message)
    return text.strip()


def without_nul(value: Any, depth: int = 0) -> Any:
    """`value` of a worker's JSON without NUL characters, which no database text can hold."""
    if isinstance(value, str):
        return value.replace("\x00", "")
    if depth > 8:  # noqa: PLR2004 - deeper than any message of the contract; refused by its type
        return value
    if isinstance(value, dict):
        return {without_nul(k, depth): without_nul(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [without_nul(item, depth + 1) for item in value]
    return value


NamePath = Annotated[str, Path(pattern=NAME_PATTERN)]
# A flag's name and a number.
CanaryPath = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_.-]{0,99}$")]
# A running number that the database gave.
NumberPath = Annotated[int, Path(ge=1, le=MAX_INT64)]
IdPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
NameQuery = Annotated[str | None, Query(pattern=NAME_PATTERN)]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
# A cursor is the key of the last item of the page before: an id, a name or a sequence number.
Cursor = Annotated[str | None, Query(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
SessionCursor = Annotated[
    str | None, Query(alias="cursor", pattern=r"^\d{4}-W\d{2}\.[A-Za-z0-9_-]{1,64}$")
]
SequenceCursor = Annotated[int | None, Query(alias="cursor", ge=0, le=MAX_INT64)]
# Whether there is such a day is `weeks.day_of`'s to say; pydantic would read a number as seconds.
DayQuery = Annotated[str | None, Query(max_length=40, description="Such as 2026-10-08.")]
GenerationQuery = Annotated[int, Query(ge=0, le=MAX_INT64)]
IncarnationQuery = Annotated[str, Query(pattern=r"^[A-Za-z0-9_-]{1,64}$")]

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Reason = Annotated[
    str,
    Field(min_length=1, max_length=500, json_schema_extra={"pattern": _SAID}),
    AfterValidator(_printable),
    AfterValidator(_said),
]
Document = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_DOCUMENT,
        json_schema_extra={"pattern": rf"^{_PRINTABLE}*$"},
    ),
    AfterValidator(_printable),
]

RegistrationBody = Annotated[Registration, BeforeValidator(without_nul)]
EffectiveBody = Annotated[EffectiveReport, BeforeValidator(without_nul)]
ProbeBody = Annotated[ProbeReport, BeforeValidator(without_nul)]
TripBody = Annotated[BreakerTrip, BeforeValidator(without_nul)]


class Body(BaseModel):
    """A JSON object from an operator."""

    model_config = ConfigDict(
        strict=True, frozen=True, json_schema_extra={"additionalProperties": False}
    )

    @model_validator(mode="before")
    @classmethod
    def _knows_every_key(cls, value: Any) -> Any:
        if isinstance(value, dict):
            for key in value:
                if key not in cls.model_fields:
                    raise errors.InvalidValueError(
                        str(key)[:100], value[key], allowed=errors.one_of(cls.model_fields)
                    )
        return value


class Because(Body):
    """Any change: why."""

    reason: Reason


class Adoption(Because):
    """POST /v1/fleets."""

    name: Name


class ModeChange(Because):
    """POST /v1/fleets/{fleet}/mode."""

    mode: Literal["observe", "enforce"]


class PinRequest(Because):
    """POST .../pins."""

    flag: Name
    variant: Name
    # Four hours unless said, a day at most: a forgotten pin is a silent difference between workers.
    expires_in_s: Annotated[int, Field(ge=1, le=24 * 3600)] = 4 * 3600


class UnpinRequest(Because):
    """POST .../unpin."""

    flag: Name


class PolicyUpload(Because):
    """POST /v1/policies."""

    document: Document


class PolicyDraft(Body):
    """POST /v1/policies/lint."""

    document: Document


class CanaryStart(Because):
    """POST /v1/canaries: a flag and a variant of it, or a stack, which takes neither."""

    fleet: Name
    flag: Name | None = None
    variant: Name | None = None
    stack: Name | None = None
    policy: Name
    hardware: Name | None = None


class CanaryRequest(Because):
    """POST /v1/canaries/{name}/requests."""

    kind: Literal["pause", "resume", "abort", "promote"]


class QualityRequest(Because):
    """POST /v1/canaries/{name}/quality."""

    measure: Name
    value: Annotated[float, Field(ge=-MOST_QUALITY, le=MOST_QUALITY, allow_inf_nan=False)]
    num_samples: Annotated[int, Field(ge=1, le=MAX_INT64)]


class AttestationRequest(Because):
    """POST /v1/fleets/{fleet}/attestations."""

    flag: Name
    variant: Name
    hardware: Name | None = None
    stack: Name | None = None


class SessionImport(Because):
    """POST /v1/imports/sessions: a table of text, whose cells `domain.imported` reads."""

    fleet: Name
    is_sample: bool = False
    columns: Annotated[list[str], Field(min_length=1, max_length=100)]
    lines: Annotated[list[int], Field(max_length=imported.MAX_ROWS)]
    rows: Annotated[list[list[str]], Field(max_length=imported.MAX_ROWS)]

    @model_validator(mode="after")
    def _has_a_line_for_each_row(self) -> "SessionImport":
        if len(self.lines) != len(self.rows):
            message = "as many lines as rows"
            raise ValueError(message)
        return self


class TokenRequest(Because):
    """POST /v1/tokens."""

    role: Literal["viewer", "operator", "admin", "worker"]
    fleet: Name | None = None
    worker: Name | None = None
