"""What a decision was made on, as canonical JSON values: for the record, and to judge it again.

`of` keeps all that the gates read, so that `recalled` gives a case whose judgement is equal to the
one on record. Blocks of evidence are append only and stay where they are: the record says how many
there were, and their digest.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cache
from importlib import metadata
from typing import Any, Final

from controlplane.domain import digest, judge
from controlplane.domain.blocks import Block
from controlplane.domain.canary import Phase
from controlplane.domain.observation import Observation, Plan
from controlplane.domain.verdict import Case, GateResult, Judgement
from controlplane.services import codec
from controlplane.services.codec import UnreadableError

# The form before it had no number, and no more than a part of what was looked at.
FORM: Final = 2
# A record above this is compressed; 200 bytes for each session of it are the bulk.
LARGE: Final = 200 * 1024
_COMPRESSION: Final = "zlib+base85"
# Ten times what a fleet of 5,000 workers and a canary of a week bring.
_MOST: Final = 256 * 1024 * 1024


class Asked(StrEnum):
    """Which gates were judged."""

    GATES = "gates"  # those of the policy, of an exposed canary
    PREFLIGHT = "preflight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What a decision was made on, read again."""

    case: Case
    asked: Asked
    now: datetime

    def judged(self) -> Judgement:
        """The judgement that this leads to."""
        if self.asked is Asked.GATES:
            return judge.judge(self.case, now=self.now)
        preflight = self.case.policy.preflight
        assert preflight is not None, "checked by `recalled`"
        return judge.judge_preflight(preflight, self.case)


def of(seen: Observation, planned: Plan, *, decision: str, now: datetime) -> dict[str, Any]:
    """Everything that the judgement of `planned` rested on, before `stored`; `digest` is of this.

    Args:
        seen: what was looked at.
        planned: what came of it; its blocks were closed before it was judged.
        decision: id of the record.
        now: of the judgement.
    """
    blocks = (*seen.blocks, *planned.blocks)
    is_preflight = seen.canary.phase is Phase.PREFLIGHT
    return {
        "form": FORM,
        "software": software(),
        "decision": decision,
        "canary": seen.canary.id,
        "version": seen.canary.version,
        "step": seen.canary.step,
        "bake_s": seen.canary.bake.total_seconds(),
        "policy": seen.canary.policy_digest,
        "asked": (Asked.PREFLIGHT if is_preflight else Asked.GATES).value,
        "now": codec.encoded(now, datetime),
        "blocks_until": len(blocks),
        "blocks_digest": blocks_digest(blocks),
        "case": codec.encoded(_considered(seen.case), Case),
    }


@cache
def software() -> str:
    """The version that judges here; a checkout that is not installed has none, and judges too."""
    try:
        return metadata.version("steadyframe")
    except metadata.PackageNotFoundError:
        return "unknown"


def recalled(inputs: Mapping[str, Any], blocks: Sequence[Block]) -> Recalled:
    """The case that `inputs`, as `of` made them, speak of.

    Args:
        inputs: of the present form.
        blocks: of the canary, in the order they were written; as many as there were are taken.

    Raises:
        UnreadableError: naming what is not of the form.
    """
    case: Case = codec.decoded(inputs.get("case"), Case, where="case")
    now: datetime = codec.decoded(inputs.get("now"), datetime, where="now")
    asked: Asked = codec.decoded(inputs.get("asked"), Asked, where="asked")
    until = inputs.get("blocks_until")
    if not isinstance(until, int) or isinstance(until, bool) or until < 0:
        raise UnreadableError("blocks_until", f"{until!r:.100} is no number of blocks")
    if asked is Asked.PREFLIGHT and case.policy.preflight is None:
        raise UnreadableError(
            "case.policy.preflight", "preflight was asked, and the policy has none"
        )
    return Recalled(case=replace(case, blocks=tuple(blocks[:until])), asked=asked, now=now)


def blocks_digest(blocks: Sequence[Block]) -> str:
    """One digest of blocks in their order."""
    return digest.digest(codec.encoded(tuple(blocks), tuple[Block, ...]))


def is_recalled(inputs: Mapping[str, Any]) -> bool:
    """Whether `inputs` are of the form that can be judged again."""
    return inputs.get("form") == FORM


def stored(inputs: dict[str, Any]) -> dict[str, Any]:
    """`inputs` as the record keeps them: compressed where they are large."""
    text = digest.canonical(inputs)
    if len(text) <= LARGE:
        return inputs
    body = base64.b85encode(zlib.compress(text.encode(), level=6)).decode()
    return {"form": FORM, "compressed": _COMPRESSION, "body": body}


def unpacked(kept: Any) -> dict[str, Any]:
    """`inputs` again, from what `stored` made. Raises: UnreadableError."""
    if not isinstance(kept, dict):
        raise UnreadableError("inputs", f"{kept!r:.100} is no object")
    if "compressed" not in kept:
        return kept
    if kept["compressed"] != _COMPRESSION or set(kept) != {"form", "compressed", "body"}:
        raise UnreadableError("inputs", "they are compressed in a way that is not known")
    try:
        unzip = zlib.decompressobj()
        text = unzip.decompress(base64.b85decode(kept["body"]), _MOST)
        is_whole = unzip.eof and not unzip.unused_data
        inputs = json.loads(text) if is_whole else None
    except (ValueError, TypeError, zlib.error) as error:
        raise UnreadableError("inputs", "the compressed text is damaged") from error
    if not isinstance(inputs, dict) or inputs.get("form") != kept["form"]:
        raise UnreadableError("inputs", "the compressed text is not the whole of an object")
    return inputs


def gates(judgement: Judgement) -> list[dict[str, Any]]:
    """The gates with their numbers."""
    return [codec.encoded(result, GateResult) for result in judgement.results]


def judgement(gates: Any) -> Judgement:
    """The gates of a record. Raises: UnreadableError."""
    results = codec.decoded(gates, tuple[GateResult, ...], where="gates")
    return Judgement(results=results)


def _considered(case: Case) -> Case:
    """`case` without what no gate reads, and without its blocks, which are on record already."""
    evidence = case.evidence
    return replace(
        case,
        blocks=(),
        evidence=replace(
            evidence,
            # Incarnations and part times have gone into blocks; gates read them there.
            sessions=tuple(replace(one, incarnation="", parts_ms={}) for one in evidence.sessions),
            memories=tuple(one for one in evidence.memories if one.worker in case.exposed),
            newest_record_at={
                worker: at
                for worker, at in evidence.newest_record_at.items()
                if worker in case.exposed
            },
        ),
    )
