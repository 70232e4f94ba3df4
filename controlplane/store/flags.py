"""The catalogue of kernel flags."""

from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Row, delete, select

from controlplane.domain.flag import Applies, Flag, Variant
from controlplane.store import dialect
from controlplane.store.tables import flags, variants


def put_catalogue(conn: Connection, catalogue: tuple[Flag, ...]) -> None:
    """Make `catalogue` the catalogue: what it does not name is gone."""
    dialect.serialise(conn, "flags")
    conn.execute(delete(variants))
    conn.execute(delete(flags))
    if catalogue:
        conn.execute(flags.insert(), [_flag_row(flag) for flag in catalogue])
        conn.execute(variants.insert(), [row for flag in catalogue for row in _variant_rows(flag)])


def catalogue(conn: Connection) -> tuple[Flag, ...]:
    """Every flag, by name, its variants in the order of the document."""
    found = conn.execute(select(variants).order_by(variants.c.flag, variants.c.position))
    by_flag: dict[str, list[Variant]] = {}
    for row in found:
        by_flag.setdefault(row.flag, []).append(_variant(row))
    rows = conn.execute(select(flags).order_by(flags.c.name))
    return tuple(_flag(row, tuple(by_flag.get(row.name, ()))) for row in rows)


def _flag_row(flag: Flag) -> dict[str, object]:
    return {
        "name": flag.name,
        "summary": flag.summary,
        "applies": flag.applies.value,
        "plain": flag.plain,
        "fallback": dict(flag.fallback),
    }


def _variant_rows(flag: Flag) -> list[dict[str, object]]:
    return [
        {
            "flag": flag.name,
            "name": variant.name,
            "position": position,
            "summary": variant.summary,
            "is_canary_only": variant.is_canary_only,
        }
        for position, variant in enumerate(flag.variants)
    ]


def _flag(row: Row[Any], its_variants: tuple[Variant, ...]) -> Flag:
    return Flag(
        name=row.name,
        summary=row.summary,
        applies=Applies(row.applies),
        plain=row.plain,
        variants=its_variants,
        fallback=MappingProxyType(row.fallback),
    )


def _variant(row: Row[Any]) -> Variant:
    return Variant(name=row.name, summary=row.summary, is_canary_only=row.is_canary_only)
