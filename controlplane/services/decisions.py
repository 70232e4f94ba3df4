"""Decisions, judged again from what is on record: equal to that, or where they differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Final

from controlplane.domain import digest
from controlplane.domain.blocks import Block
from controlplane.services import codec, inputs
from controlplane.services.codec import UnreadableError
from controlplane.store import audit as audit_store
from controlplane.store import canaries as canary_store
from controlplane.store import history
from controlplane.store.history import Decision
from controlplane.store.transaction import Connection

# Differences that are listed; one is enough to fail.
_MOST_SHOWN: Final = 50


class Result(StrEnum):
    """What judging again has shown."""

    EQUAL = "equal"
    DIFFERS = "differs"
    NOT_RECOMPUTABLE = "not_recomputable"  # of a form that kept too little; its digest holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place where the record is not what it should be."""

    where: str  # such as `gates.floor.value`
    recorded: Any
    recomputed: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What became of judging one decision again."""

    decision: str
    canary: str  # its name
    at: datetime
    result: Result
    said: str
    differences: tuple[Difference, ...]
    software: str | None  # that made the decision; None: it did not say


def get(conn: Connection, decision_id: str) -> Decision:
    """The decision of that id, its inputs unpacked.

    Raises:
        NotFoundError: there is none.
        UnreadableError: its inputs were compressed and are damaged.
    """
    found = history.decision(conn, decision_id)
    return Decision(
        id=found.id,
        canary_id=found.canary_id,
        verdict=found.verdict,
        gates=found.gates,
        inputs=inputs.unpacked(found.inputs),
        digest=found.digest,
        at=found.at,
    )


def fleet_of(conn: Connection, decision_id: str) -> str:
    """The fleet of the canary that was decided on. Raises: NotFoundError."""
    found = history.canary_of_decision(conn, decision_id)
    return canary_store.get(conn, name_or_id=found).fleet


def verify(conn: Connection, decision_id: str) -> Verification:
    """Judge the decision again and compare. Raises: NotFoundError."""
    recorded = history.decision(conn, decision_id)
    blocks = history.blocks_of(conn, canary_id=recorded.canary_id)
    canary = canary_store.get(conn, name_or_id=recorded.canary_id).name
    audited = audit_store.digest_of(conn, target=canary, decision=recorded.id)
    software = None
    try:
        considered = inputs.unpacked(recorded.inputs)
        software = considered.get("software")
        is_recomputable = inputs.is_recalled(considered)
        found = tuple(_differences(recorded, considered, blocks))
    except UnreadableError as error:
        found = (Difference(where="inputs", recorded=str(error), recomputed=None),)
        is_recomputable = True
    if audited is not None and audited != recorded.digest:
        found += (Difference(where="audit.digest", recorded=audited, recomputed=recorded.digest),)
    result = Result.EQUAL if is_recomputable else Result.NOT_RECOMPUTABLE
    if found:
        result = Result.DIFFERS
    return Verification(
        decision=recorded.id,
        canary=canary,
        at=recorded.at,
        result=result,
        said=_said(result, recorded, found, software=software) + _audit_words(audited, result),
        differences=found[:_MOST_SHOWN],
        software=software if isinstance(software, str) else None,
    )


def _audit_words(audited: str | None, result: Result) -> str:
    if result is Result.DIFFERS:
        return ""
    if audited is None:
        return "; the audit log has no digest of it"
    return ", in the audit log, too"


def _said(
    result: Result, recorded: Decision, found: Sequence[Difference], *, software: object
) -> str:
    if result is Result.EQUAL:
        return (
            f"equal: judged again, {len(recorded.gates)} gates and the verdict"
            f" {recorded.verdict} come out as recorded, and the digest holds"
        )
    if result is Result.NOT_RECOMPUTABLE:
        return (
            "cannot be recomputed: it was recorded in a form that kept only a part of what was"
            " judged; the digest of that part holds"
        )
    places = ", ".join(one.where for one in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""  # noqa: PLR2004 - as above
    told = f"differs: {places}{more}"
    if isinstance(software, str) and software != inputs.software():
        told += f"; it was made by version {software}, and judged again by {inputs.software()}"
    return told


def _differences(
    recorded: Decision, considered: Mapping[str, Any], blocks: Sequence[Block]
) -> Iterator[Difference]:
    yield from _of_digest(recorded, considered)
    if not inputs.is_recalled(considered):
        return
    recalled = inputs.recalled(considered, blocks)
    policy = recalled.case.policy
    # The row against what the digest covers, and copies within that against each other.
    until = considered["blocks_until"]
    pairs: Sequence[tuple[str, Any, Any]] = (
        ("id", recorded.id, considered.get("decision")),
        ("canary_id", recorded.canary_id, considered.get("canary")),
        ("at", recorded.at.isoformat(), codec.encoded(recalled.now, datetime)),
        ("inputs.policy", considered.get("policy"), _digest_of(policy.document)),
        ("inputs.case.policy.digest", policy.digest, _digest_of(policy.document)),
        ("blocks", f"{until} of them", f"{min(until, len(blocks))} of them"),
        (
            "blocks_digest",
            considered.get("blocks_digest"),
            inputs.blocks_digest(recalled.case.blocks),
        ),
    )
    for where, one, other in pairs:
        if one != other:
            yield Difference(where=where, recorded=one, recomputed=other)
    try:
        judgement = recalled.judged()
    except (AssertionError, ArithmeticError, LookupError, ValueError) as error:
        # What was recorded was judged once; this cannot be it.
        raise UnreadableError("case", f"it cannot be judged: {error!r:.200}") from error
    yield from _of_gates(recorded.gates, inputs.gates(judgement))
    if recorded.verdict is not judgement.verdict:
        yield Difference(
            where="verdict", recorded=recorded.verdict.value, recomputed=judgement.verdict.value
        )


def _of_digest(recorded: Decision, considered: Mapping[str, Any]) -> Iterator[Difference]:
    try:
        recomputed = digest.digest(considered)
    except ValueError:  # a number that no canonical form has
        recomputed = "none: a number is not finite"
    if recomputed != recorded.digest:
        yield Difference(where="digest", recorded=recorded.digest, recomputed=recomputed)


def _digest_of(document: str) -> str:
    try:
        return digest.digest(json.loads(document))
    except ValueError as error:
        raise UnreadableError("case.policy.document", "it is no JSON") from error


def _of_gates(recorded: Any, recomputed: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """Field by field, gates in the order that they were asked in."""
    if not isinstance(recorded, list) or not all(isinstance(one, dict) for one in recorded):
        yield Difference(where="gates", recorded=recorded, recomputed=list(recomputed))
        return
    for number, (one, other) in enumerate(zip_longest(recorded, recomputed)):
        name = (other or one)["gate"] if "gate" in (other or one) else str(number)
        if one is None or other is None:
            yield Difference(where=f"gates.{name}", recorded=one, recomputed=other)
            continue
        for field in sorted({*one, *other}):
            # Text against text: 1, 1.0 and true are equal in Python, and not the same record.
            if _text(one, field) != _text(other, field):
                yield Difference(
                    where=f"gates.{name}.{field}",
                    recorded=one.get(field),
                    recomputed=other.get(field),
                )


def _text(gate: Mapping[str, Any], field: str) -> str | None:
    return json.dumps(gate[field], sort_keys=True) if field in gate else None
