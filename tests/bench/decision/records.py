"""The same streams as session records: through the product's own counting of blocks.

Where the whole worker is the arm, each session here being a worker of its own: then units are
sessions, in the tables of the study as in the product's. Strata of the product are canaries of
their own, so the scenarios with two hardware kinds are left out.
"""

from collections.abc import Iterator
from datetime import timedelta

from controlplane.contract.vocabulary import ARM_CANARY, ARM_CONTROL, Outcome, Reason
from controlplane.domain import blocks
from controlplane.domain.blocks import FAILED, Block, Design
from controlplane.domain.evidence import SessionEvidence
from tests.bench.decision.counts import OPENED_AT, WINDOW
from tests.bench.decision.streams import NUM_BLOCKS, Arm, Streams

_STREAMED_S = 60.0


def written(streams: Streams, stream: int) -> Iterator[tuple[Block, ...]]:
    """What the product writes at the end of each window, from records alone."""
    canary = _sessions(streams.canary, stream, arm_name=ARM_CANARY)
    control = _sessions(streams.control, stream, arm_name=ARM_CONTROL)
    design = Design(
        since=OPENED_AT,
        width=WINDOW,
        horizon=timedelta(seconds=120),
        exposed={session.worker for session in canary},
        is_by_worker=True,
    )
    known: list[Block] = []
    received: list[SessionEvidence] = []
    for index in range(NUM_BLOCKS):
        received += _of_window(canary, index) + _of_window(control, index)
        now = OPENED_AT + (index + 1) * WINDOW
        new = list(blocks.closed(received, design=design, known=known, now=now))
        failed = blocks.failed(received, design=design, known=known, now=now)
        new += [failed] if failed is not None else []
        known += new
        yield tuple(new)


def as_written(windows: Iterator[tuple[Block, Block]]) -> Iterator[tuple[Block, ...]]:
    """Counted blocks as the product writes them: none of failures where nobody failed."""
    for of_sessions, of_failures in windows:
        tables = of_failures.tables[FAILED]
        has_failures = any(table.canary_bad or table.control_bad for table in tables)
        yield (of_sessions, of_failures) if has_failures else (of_sessions,)


def _of_window(sessions: list[SessionEvidence], index: int) -> list[SessionEvidence]:
    size = len(sessions) // NUM_BLOCKS
    return sessions[index * size : (index + 1) * size]


def _sessions(arm: Arm, stream: int, *, arm_name: str) -> list[SessionEvidence]:
    rows = zip(arm.failed[stream].tolist(), arm.fps[stream].tolist(), strict=True)
    return [
        _session(
            f"{arm_name}-{number}",
            arm=arm_name,
            index=number // arm.num_a_block,
            fps=None if has_failed else fps,
        )
        for number, (has_failed, fps) in enumerate(rows)
    ]


def _session(name: str, *, arm: str, index: int, fps: float | None) -> SessionEvidence:
    started_at = OPENED_AT + index * WINDOW + timedelta(seconds=1)
    return SessionEvidence(
        id=name,
        worker=name,
        incarnation=name,
        arm=arm,
        started_at=started_at,
        updated_at=started_at + timedelta(seconds=_STREAMED_S),
        outcome=Outcome.FAILED if fps is None else Outcome.COMPLETED,
        reason=Reason.RANK_DIED if fps is None else None,
        fps=fps,
        streamed_s=_STREAMED_S,
        first_forward_length=300,
        is_synthetic=False,
        is_non_compliant=False,
        is_drawn=arm == ARM_CANARY,
    )
