"""Memory of exposed workers: what the flag keeps for each length, and where that would end.

In August 2026 a kernel kept a buffer for each first-forward length it had met. Nobody's session was
slow, and for days nobody's failed: the bytes said it from the third length on.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from controlplane.domain.document import share_text
from controlplane.domain.evidence import MemoryEvidence
from controlplane.domain.gates import canary_sessions, unmeasured
from controlplane.domain.policy import MemoryGate
from controlplane.domain.verdict import Case, GateResult, Verdict

# From this many lengths with a buffer each it is growth and not a warm-up. Passing may ask for more
# lengths; failing does not wait for them.
LEAST_RETAINED: Final = 3


def memory(gate: MemoryGate, case: Case, *, now: datetime) -> GateResult:
    """Whether exposed workers keep memory in bounds."""
    limit_bytes = gate.growth_per_length_at_most
    memories = [
        memory
        for memory in sorted(case.evidence.memories, key=lambda memory: memory.worker)
        if memory.worker in case.exposed and _is_recent(memory, case, now=now)
    ]
    missing = case.exposed - {memory.worker for memory in memories}
    failing = [(memory, excess) for memory in memories for excess in _excesses(memory, gate)]
    if failing:
        memory, excess = failing[0]
        return GateResult(
            gate="memory",
            verdict=Verdict.FAILING,
            value=excess.num_bytes,
            limit=excess.allowed_bytes,
            num_samples=len(memory.lengths),
            reason=f"{memory.worker}: {excess.why}",
            failed_at=min(memory.received_at for memory, _ in failing),
        )
    if missing or not memories:
        names = ", ".join(sorted(missing)) or "any exposed worker"
        return unmeasured("memory", limit=limit_bytes, reason=f"no memory record of {names}")
    if unlimited := [memory.worker for memory in memories if not memory.limit_bytes]:
        reason = f"{', '.join(unlimited)} reports no memory limit, so its usage cannot be judged"
        return unmeasured("memory", limit=limit_bytes, reason=reason)
    num_lengths = len(_lengths_met(case))
    growth = max(growth_per_length(memory) for memory in memories)
    # Growth over the limit on too few lengths to fail on is no reason to pass either.
    is_passing = num_lengths >= gate.least_lengths and growth <= limit_bytes
    return GateResult(
        gate="memory",
        verdict=Verdict.PASSING if is_passing else Verdict.INCONCLUSIVE,
        value=growth,
        limit=limit_bytes,
        num_samples=num_lengths,
        reason=(
            f"{num_lengths} distinct first-forward lengths met, {gate.least_lengths} asked for;"
            f" {_mib(growth)} kept for each"
        ),
    )


def _lengths_met(case: Case) -> frozenset[int]:
    """Lengths that the variant has met: a variant that keeps nothing for them reports none."""
    return frozenset(
        session.first_forward_length
        for session in canary_sessions(case)
        if session.first_forward_length > 0 and session.streamed_s > 0
    )


def growth_per_length(memory: MemoryEvidence) -> float:
    """Bytes the flag retains for each distinct first-forward length it retains any for, after one.

    One buffer for all lengths is not growth. Lengths that left nothing do not dilute it: some of
    them come from sessions of the control arm, which never ran the variant.
    """
    retained = [num_bytes for num_bytes in memory.lengths.values() if num_bytes]
    if len(retained) < 2:  # noqa: PLR2004 - growth needs two points
        return 0.0
    return (sum(retained) - min(retained)) / (len(retained) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Excess:
    """A bound that is broken, both numbers in bytes."""

    num_bytes: float
    allowed_bytes: float
    why: str


def _excesses(memory: MemoryEvidence, gate: MemoryGate) -> Iterable[_Excess]:
    growth = growth_per_length(memory)
    num_retained = sum(num_bytes > 0 for num_bytes in memory.lengths.values())
    is_growth = num_retained >= min(gate.least_lengths, LEAST_RETAINED)
    if is_growth and growth > gate.growth_per_length_at_most:
        why = (
            f"keeps {_mib(growth)} for each distinct first-forward length"
            f" ({num_retained} seen), {_mib(gate.growth_per_length_at_most)} allowed"
        )
        yield _Excess(num_bytes=growth, allowed_bytes=gate.growth_per_length_at_most, why=why)
    if not memory.limit_bytes:
        return
    allowed = gate.usage_at_most * memory.limit_bytes
    if memory.resident_bytes > allowed:
        usage = memory.resident_bytes / memory.limit_bytes
        why = f"uses {usage:.1%} of its memory limit, {share_text(gate.usage_at_most)} allowed"
        yield _Excess(num_bytes=memory.resident_bytes, allowed_bytes=allowed, why=why)
    elif is_growth and gate.num_domain_lengths is not None:
        # A length that was met keeps what it keeps; every other one of the domain, met once, would
        # add as much as those did on average.
        num_to_come = max(0, gate.num_domain_lengths - num_retained)
        needed = memory.resident_bytes + growth * num_to_come
        why = (
            f"keeps {_mib(growth)} for each of {num_retained} lengths; all"
            f" {gate.num_domain_lengths} would need {_mib(needed)}, {_mib(allowed)} allowed"
        )
        if needed > allowed:
            yield _Excess(num_bytes=needed, allowed_bytes=allowed, why=why)


def _is_recent(memory: MemoryEvidence, case: Case, *, now: datetime) -> bool:
    is_since_exposure = case.exposed_since is None or memory.received_at >= case.exposed_since
    return is_since_exposure and now - memory.received_at <= case.policy.gates.freshness.at_most


def _mib(num_bytes: float) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"
