"""How long to wait before trying again."""

import random


class Backoff:
    """Waits that double up to a limit, each jittered so that workers spread out."""

    def __init__(
        self, randomness: random.Random, *, first_s: float = 0.25, limit_s: float = 15.0
    ) -> None:
        self._randomness = randomness
        self._first_s = first_s
        self._limit_s = limit_s
        self._ceiling_s = first_s

    def next_s(self) -> float:
        """Seconds to wait now; the next answer is about twice as long."""
        wait_s = self._ceiling_s * (0.5 + 0.5 * self._randomness.random())
        self._ceiling_s = min(self._ceiling_s * 2, self._limit_s)
        return wait_s

    def reset(self) -> None:
        """Start again from the shortest wait."""
        self._ceiling_s = self._first_s
