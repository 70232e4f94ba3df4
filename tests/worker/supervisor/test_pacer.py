"""When frames are due."""

import pytest

from worker.server.pacer import Pacer


def due(pacer: Pacer, *, num_frames: int = 4) -> list[float]:
    return [pacer.due() for _ in range(num_frames)]


def test_frames_follow_a_steady_beat_however_early_chunks_come() -> None:
    """Frame i at t0 + i / rate."""
    pacer = Pacer(rate_fps=25)
    found = []
    for came_at in (10.0, 10.01, 10.30):
        pacer.chunk_came(came_at)
        found.extend(due(pacer))
    assert found == pytest.approx([10 + i / 25 for i in range(12)])


def test_a_late_chunk_moves_the_beat_and_nothing_catches_up() -> None:
    """A faster stretch after a stall would hide it from the mean, not from the viewer."""
    pacer = Pacer(rate_fps=25)
    pacer.chunk_came(0.0)
    due(pacer)
    pacer.chunk_came(0.5)
    assert due(pacer) == pytest.approx([0.5, 0.54, 0.58, 0.62])
