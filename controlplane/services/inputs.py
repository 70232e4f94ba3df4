"""What a decision was made on, as canonical JSON values: for the record and its digest."""

from datetime import datetime
from typing import Any

from controlplane.domain.evidence import SessionEvidence
from controlplane.domain.observation import Observation
from controlplane.domain.verdict import Judgement


def of(seen: Observation) -> dict[str, Any]:
    """The evidence a decision rested on, in a form that can be read again and digested."""
    evidence = seen.evidence
    return {
        "canary": seen.canary.id,
        "version": seen.canary.version,
        "step": seen.canary.step,
        "bake_s": seen.canary.bake.total_seconds(),
        "policy": seen.canary.policy_digest,
        "exposed": sorted(exposure.worker for exposure in seen.exposures),
        "sessions": [_session(session) for session in evidence.sessions],
        "memories": [
            {
                "worker": memory.worker,
                "incarnation": memory.incarnation,
                "resident_bytes": memory.resident_bytes,
                "limit_bytes": memory.limit_bytes,
                "flag_bytes": memory.flag_bytes,
                "lengths": {str(length): kept for length, kept in memory.lengths.items()},
            }
            for memory in evidence.memories
        ],
        "trips": [
            {"id": trip.id, "worker": trip.worker, "reason": trip.reason.value, "at": _at(trip.at)}
            for trip in evidence.trips
        ],
        "newest_record_at": {
            worker: _at(newest) for worker, newest in evidence.newest_record_at.items()
        },
    }


def gates(judgement: Judgement) -> list[dict[str, Any]]:
    """The gates with their numbers."""
    return [
        {
            "gate": result.gate,
            "verdict": result.verdict.value,
            "value": result.value,
            "limit": result.limit,
            "num_samples": result.num_samples,
            "reason": result.reason,
            "failed_at": _at(result.failed_at) if result.failed_at else None,
        }
        for result in judgement.results
    ]


def _session(session: SessionEvidence) -> dict[str, Any]:
    return {
        "id": session.id,
        "worker": session.worker,
        "arm": session.arm,
        "outcome": session.outcome.value if session.outcome else None,
        "reason": session.reason.value if session.reason else None,
        "fps": session.fps,
        "streamed_s": session.streamed_s,
        "started_at": _at(session.started_at),
        "updated_at": _at(session.updated_at),
    }


def _at(moment: datetime) -> str:
    return moment.isoformat()
