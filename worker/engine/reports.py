"""What the processes of a group say to the supervisor, and how an exception becomes a reason.

Torch-free: the supervisor reads what the ranks write.
"""

from dataclasses import dataclass
from typing import Any

from worker.engine.api import FaultKind, RankEffective
from worker.model.manifest import CheckpointError
from worker.parallel.channel import Message, PeerLostError
from worker.parallel.plan import PlanError

READY = "ready"
EFFECTIVE = "effective"
REFUSED = "refused"
CHUNK = "chunk"
MEMORY = "memory"
FAULT = "fault"
LOADING = "loading"  # before READY, now and then: how many blocks of a checkpoint are there

# A rank that only lost its peer is never the cause; the supervisor waits for the one that is.
PEER_LOST = "peer_lost"
# A file of the checkpoint is not what was proven. Before READY only.
WEIGHTS_REFUSED = "weights_refused"


class NotANumberError(Exception):
    """The latent of a step is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReport:
    """Why a process could not go on, in its own words."""

    kind: str  # a `FaultKind`, PEER_LOST or WEIGHTS_REFUSED
    detail: str

    @property
    def is_cause(self) -> bool:
        """False if the process only noticed that another had gone."""
        return self.kind != PEER_LOST


def fault(error: BaseException) -> FaultReport:
    """The report for an exception that ends a process."""
    text = str(error).strip() or type(error).__name__
    detail = f"{type(error).__name__}: {text.splitlines()[0]}"
    match error:
        case PeerLostError():
            kind = PEER_LOST
        case CheckpointError():
            kind, detail = WEIGHTS_REFUSED, text
        case PlanError():
            kind = FaultKind.RANK_DISAGREEMENT.value
        case NotANumberError():
            kind = FaultKind.NAN.value
        case _ if isinstance(error, MemoryError) or _is_out_of_memory(text):
            kind = FaultKind.OUT_OF_MEMORY.value
            detail = f"{type(error).__name__}: {_memory_line(text)}"
        case _:
            kind = FaultKind.RANK_DIED.value
    return FaultReport(kind=kind, detail=detail)


def _is_out_of_memory(text: str) -> bool:
    return "allocate memory" in text.lower()


def _memory_line(text: str) -> str:
    lines = [line for line in text.splitlines() if _is_out_of_memory(line)]
    return (lines or ["cannot allocate memory"])[0]


def fault_message(report: FaultReport) -> Message:
    """The message that carries `report`."""
    return Message(kind=FAULT, fields={"kind": report.kind, "detail": report.detail})


def effective_fields(effective: RankEffective) -> dict[str, Any]:
    """As JSON values."""
    return {
        "rank": effective.rank,
        "generation": effective.generation,
        "digest": effective.digest,
        "step": effective.step,
        "flag_bytes": dict(effective.flag_bytes),
    }
