"""Column types that mean the same on both databases, and the bounds every column keeps."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Identity,
    Integer,
    MetaData,
    String,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# An escaped NUL in JSON text, not the tail of an escaped backslash. PostgreSQL keeps no NUL at all.
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC: integer microseconds on SQLite, timestamptz on PostgreSQL; naive is refused."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column type on `dialect`."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(DateTime(timezone=True))
        return dialect.type_descriptor(BigInteger())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """`value` as the driver wants it. Raises ValueError if it is naive."""
        if value is None:
            return None
        if value.utcoffset() is None:
            message = f"{value!r} has no time zone; the store takes aware times only"
            raise ValueError(message)
        if dialect.name == "postgresql":
            return value.astimezone(UTC)
        return (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Aware UTC."""
        if value is None:
            return None
        if dialect.name == "postgresql":
            moment: datetime = value
            return moment.astimezone(UTC)
        return _EPOCH + int(value) * _MICROSECOND


class Duration(TypeDecorator[timedelta]):
    """A timedelta as integer microseconds on both databases."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: timedelta | None, dialect: Dialect) -> int | None:  # noqa: ARG002 - the base class fixes the signature
        """Whole microseconds."""
        return None if value is None else value // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> timedelta | None:  # noqa: ARG002 - as above
        """A timedelta."""
        return None if value is None else timedelta(microseconds=value)


class Json(TypeDecorator[Any]):
    """A JSON value: canonical text on SQLite, jsonb on PostgreSQL.

    Not for what a digest is taken of: jsonb rewrites numbers. That is kept as text.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The column type on `dialect`."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(JSONB(none_as_null=True))
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Text on SQLite; PostgreSQL's own type calls `to_json` through the engine."""
        if value is None or dialect.name == "postgresql":
            return value
        return to_json(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The value as it was."""
        if value is None or dialect.name == "postgresql":
            return value
        return json.loads(value)


class FreeText(TypeDecorator[str]):
    """Text a person or a worker wrote: cut to its bound, a NUL shown as U+FFFD."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - the base class fixes the signature
        """Text that both databases take."""
        if value is None:
            return None
        text = value.replace("\x00", "\ufffd")
        return text[: self.impl_instance.length]  # type: ignore[attr-defined]  # String has it


def to_json(value: Any) -> str:
    """Canonical JSON that both databases take. Raises ValueError at a number that is not finite."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return _ESCAPED_NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def identifier(name: str, *rest: Any, nullable: bool = False, **options: Any) -> Column[Any]:
    """An id that we or a worker made: at most 64 characters."""
    return Column(name, String(64), *rest, nullable=nullable, **options)


def word(name: str, *rest: Any, nullable: bool = False, **options: Any) -> Column[Any]:
    """A name of the contract: at most 63 characters."""
    return Column(name, String(63), *rest, nullable=nullable, **options)


def text(name: str, *, bound: int = 1000, nullable: bool = False) -> Column[Any]:
    """Free text of at most `bound` characters."""
    return Column(name, FreeText(bound), nullable=nullable)


def at(name: str, *, nullable: bool = False, index: bool = False) -> Column[Any]:
    """A time, by the server's clock."""
    return Column(name, UtcDateTime, nullable=nullable, index=index)


def count(name: str, *, nullable: bool = False) -> Column[Any]:
    """A number that is never negative."""
    return Column(
        name, BigInteger, CheckConstraint(f"{name} >= 0", name=f"{name}_counts"), nullable=nullable
    )


def one_of(
    name: str, words: type[StrEnum] | Iterable[str], *, nullable: bool = False
) -> Column[Any]:
    """A column that holds one of `words`, which are ours and need no quoting."""
    listed = ", ".join(f"'{entry}'" for entry in words)
    return word(
        name, CheckConstraint(f"{name} IN ({listed})", name=f"{name}_known"), nullable=nullable
    )


def sequence() -> Column[Any]:
    """A row number that the database gives."""
    # SQLite numbers rows by itself only for INTEGER.
    number = BigInteger().with_variant(Integer, "sqlite")
    return Column("sequence", number, Identity(always=False), primary_key=True)


def truth(name: str) -> Column[Any]:
    """True or false, never unknown."""
    return Column(name, Boolean, nullable=False)


def json_value(name: str, *, nullable: bool = False) -> Column[Any]:
    """A JSON value."""
    return Column(name, Json, nullable=nullable)


def of_fleet() -> Column[Any]:
    """The fleet a row belongs to."""
    return identifier("fleet_id", ForeignKey("fleets.id"))


def of_worker() -> Column[Any]:
    """The worker a row belongs to."""
    return identifier("worker_id", ForeignKey("workers.id"))


def of_canary(*, nullable: bool = False) -> Column[Any]:
    """The canary a row belongs to."""
    return identifier("canary_id", ForeignKey("canaries.id"), nullable=nullable)


def stratum() -> tuple[Column[Any], Column[Any]]:
    """What a worker may be compared within: hardware and stack."""
    return word("hardware"), word("stack")
