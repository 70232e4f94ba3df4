"""Reads the API and turns its answers into `story` values; the only place that knows their keys."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from controlplane.cli.client import Client, Json
from controlplane.cli.demo.story import CanarySeen, ExposedSeen, GateSeen, Snapshot, WorkerSeen
from controlplane.contract import vocabulary

FLEET: Final = "demo"
FLAG: Final = "fused_allreduce"


def snapshot(client: Client, *, canary: str | None) -> Snapshot:
    """Workers of the demo's fleet, and the canary if one is named. Raises: CliError."""
    found = client.items(f"/v1/fleets/{FLEET}/workers")
    return Snapshot(
        workers=tuple(sorted((worker_of(each) for each in found), key=lambda worker: worker.name)),
        canary=canary_of(client.get(f"/v1/canaries/{canary}")) if canary else None,
    )


def worker_of(answer: Mapping[str, Json]) -> WorkerSeen:
    """A worker from its JSON; of its flags those that the fleet steers."""
    effective, desired = answer["effective_flags"], answer["desired_flags"]
    return WorkerSeen(
        name=answer["name"],
        flags=vocabulary.steered(effective, desired),
        generation=answer["effective_generation"],
        desired_generation=answer["desired_generation"],
        is_effective=(
            answer["effective_generation"] >= answer["desired_generation"]
            and vocabulary.runs(effective, desired)
        ),
        is_healthy=not (
            answer.get("trip") or answer.get("is_cordoned") or answer.get("is_quarantined")
        ),
    )


def canary_of(answer: Mapping[str, Json]) -> CanarySeen:
    """A canary with its gates and workers from its JSON."""
    body = answer.get("canary", answer)
    return CanarySeen(
        name=body["name"],
        variant=body["variant"],
        phase=body["phase"],
        step=body["step"],
        reason=body["reason"],
        gates=tuple(_gate_of(each) for each in answer.get("gates", ())),
        exposed=tuple(
            ExposedSeen(
                worker=each["worker"],
                contained_at=_time(each.get("contained_at")),
                verified_at=_time(each.get("verified_at")),
            )
            for each in answer.get("workers", ())
        ),
    )


def _gate_of(answer: Mapping[str, Json]) -> GateSeen:
    return GateSeen(
        gate=answer["gate"],
        verdict=answer["verdict"],
        reason=answer["reason"],
        failed_at=_time(answer.get("failed_at")),
    )


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
