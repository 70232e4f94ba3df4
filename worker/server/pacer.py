"""When each frame is due. Pure arithmetic on given times."""

# Above the 24 fps that a session is held to: at the target itself every jitter would be a miss.
RATE_FPS = 25.0


class Pacer:
    """A steady beat that a late chunk moves and nothing catches up."""

    def __init__(self, *, rate_fps: float) -> None:
        self._period_s = 1 / rate_fps
        self._next_at: float | None = None

    def chunk_came(self, now: float) -> None:
        """A chunk is at hand; if its first frame was due before, the beat starts anew from now."""
        if self._next_at is None or now > self._next_at:
            self._next_at = now

    def due(self) -> float:
        """When the next frame is due; each call counts one frame."""
        assert self._next_at is not None, "a frame belongs to a chunk that came"
        due_at = self._next_at
        self._next_at += self._period_s
        return due_at
