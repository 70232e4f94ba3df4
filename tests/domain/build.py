"""Builders for domain tests: each call says only what matters to its case."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from controlplane.contract.vocabulary import ARM_CANARY, Outcome, Reason
from controlplane.domain import flag, policy_document
from controlplane.domain.canary import Canary, Phase
from controlplane.domain.evidence import (
    Evidence,
    MemoryEvidence,
    SegmentEvidence,
    SessionEvidence,
    TripEvidence,
)
from controlplane.domain.flag import Flag
from controlplane.domain.fleet import Fleet, Mode, Pin, Trip, Worker
from controlplane.domain.policy import Policy
from controlplane.services.documents import load_yaml

NOW = datetime(2026, 10, 8, 12, 0, tzinfo=UTC)
POLICIES = Path(__file__).parents[2] / "policies"
HARDWARE = "h100x4"
STACK = "a1b2c3d4e5f60718"
FLAG = "fused_allreduce"
PLAIN = "nccl"
FUSED = "fused_steady"


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@cache
def catalogue() -> tuple[Flag, ...]:
    """The shipped catalogue."""
    return flag.parse_catalogue(load_yaml((POLICIES / "flags.yaml").read_text()))


def document(**changes: object) -> dict[str, Any]:
    """A small policy document with each kind of gate; None takes a key away."""
    base: dict[str, object] = {
        "policy": 1,
        "name": "test",
        "summary": "For a test.",
        "flag": FLAG,
        "steps": [{"name": "one", "workers": 1, "bake": "10s", "least_sessions": 2}],
        "gates": [
            {"gate": "floor", "metric": "session_fps", "at_least": 24.0},
            {"gate": "failures", "metric": "failed_sessions", "at_most": 0},
            {"gate": "memory", "metric": "retained_bytes_per_length", "at_most": "1MiB"},
            {"gate": "freshness", "metric": "record_age", "at_most": "15s"},
        ],
        "limits": {"outcome_horizon": "30s"},
    }
    merged = {**base, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def policy(**changes: object) -> Policy:
    return policy_document.parse(document(**changes), catalogue=catalogue())


def canary(**changes: Any) -> Canary:
    """A canary that was created an hour ago and is at its first step."""
    base = Canary(
        id="canary-1",
        name="fused-allreduce-1",
        fleet="fleet-1",
        flag=FLAG,
        variant=FUSED,
        baseline=PLAIN,
        hardware=HARDWARE,
        stack=STACK,
        policy_digest="d" * 64,
        salt="salt",
        phase=Phase.PROGRESSING,
        step=0,
        created_at=NOW - timedelta(hours=1),
        phase_since=NOW - seconds(60),
        step_since=NOW - seconds(60),
        bake=timedelta(0),
        baked_until=None,
        lease_until=NOW + seconds(60),
        num_lease_lapses=0,
        reason="",
        version=3,
    )
    return replace(base, **changes)


def worker(name: str = "worker-1", **changes: Any) -> Worker:
    """A healthy worker at the fallback that was heard of a second ago."""
    base = Worker(
        id=f"id-{name}",
        fleet="fleet-1",
        name=name,
        hardware=HARDWARE,
        stack=STACK,
        incarnation=f"incarnation-{name}",
        incarnation_since=NOW - timedelta(hours=2),
        address="",
        capabilities={FLAG: (PLAIN, FUSED, "fused_all", "fused_small_tiles")},
        desired_generation=1,
        desired_flags={FLAG: PLAIN},
        effective_generation=1,
        effective_flags={FLAG: PLAIN},
        effective_at=NOW - seconds(1),
        flag_bytes={},
        flag_bytes_at=None,
        last_seen_at=NOW - seconds(1),
        last_record_at=NOW - seconds(1),
        num_open_sessions=0,
        trip=None,
        pins=(),
        is_cordoned=False,
        is_quarantined=False,
        is_break_glass=False,
        is_lease_lapsed=False,
    )
    return replace(base, **changes)


def pin(variant: str, **changes: Any) -> Pin:
    base = Pin(
        flag=FLAG,
        variant=variant,
        reason="a look at it",
        actor="ada",
        expires_at=NOW + timedelta(hours=4),
    )
    return replace(base, **changes)


def trip_of(reason: str = "underrun") -> Trip:
    return Trip(reason=reason, at=NOW - seconds(5), generation=1)


def fleet(**changes: Any) -> Fleet:
    base = Fleet(
        id="fleet-1", name="main", mode=Mode.ENFORCE, promoted={}, stopped_reason=None, version=1
    )
    return replace(base, **changes)


def session(id: str = "session-1", **changes: Any) -> SessionEvidence:  # noqa: A002 - its name
    """A completed canary session of 20 s at 24.5 fps that ended two seconds ago."""
    base = SessionEvidence(
        id=id,
        worker="worker-1",
        incarnation="incarnation-worker-1",
        arm=ARM_CANARY,
        started_at=NOW - seconds(25),
        updated_at=NOW - seconds(2),
        outcome=Outcome.COMPLETED,
        reason=None,
        fps=24.5,
        streamed_s=20.0,
        first_forward_length=300,
        is_synthetic=False,
        is_non_compliant=False,
    )
    return replace(base, **changes)


def segment(variant: str = FUSED, *, fps: float | None = 24.5) -> SegmentEvidence:
    return SegmentEvidence(variant=variant, fps=fps, streamed_s=10.0)


def memory(worker: str = "worker-1", **changes: Any) -> MemoryEvidence:
    """Half full, nothing retained for any of three lengths."""
    base = MemoryEvidence(
        worker=worker,
        incarnation=f"incarnation-{worker}",
        received_at=NOW - seconds(2),
        resident_bytes=500,
        limit_bytes=1000,
        flag_bytes=0,
        lengths={100: 0, 200: 0, 300: 0},
        num_sessions_started=3,
    )
    return replace(base, **changes)


def trip(worker: str = "worker-1", **changes: Any) -> TripEvidence:
    base = TripEvidence(
        id=f"trip-{worker}",
        worker=worker,
        reason=Reason.OUT_OF_MEMORY,
        at=NOW - seconds(3),
        is_on_variant=True,
        detail="",
    )
    return replace(base, **changes)


def evidence(**changes: Any) -> Evidence:
    """Enough to pass every gate of `policy()` for one exposed worker."""
    newest: Mapping[str, datetime] = {"worker-1": NOW - seconds(1)}
    base = Evidence(
        sessions=tuple(session(f"s{n}", first_forward_length=n) for n in (100, 200, 300)),
        memories=(memory(),),
        trips=(),
        newest_record_at=newest,
    )
    return replace(base, **changes)
