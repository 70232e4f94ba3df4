"""How long the steps of one incarnation took: counts in fixed classes, and sums of their parts.

Counted where a chunk is delivered, so that it costs no rank anything. No torch.
"""

import math
import threading

from controlplane.contract import vocabulary
from controlplane.contract.telemetry import StepTimes
from worker.agent.measure import Parts


class StepTally:
    """Adds up steps in constant memory; safe in any thread."""

    def __init__(self) -> None:
        """No step yet."""
        self._lock = threading.Lock()
        self._num_steps = 0
        self._num_at_most = [0] * len(vocabulary.STEP_BOUNDS_MS)
        self._sums_ms = [0.0, 0.0, 0.0, 0.0]

    def add(self, parts: Parts) -> None:
        """Count one step; one whose times are no finite times is none that was measured."""
        times_ms = (parts.diffusion_ms, parts.reduce_ms, parts.decoder_ms, parts.encode_ms)
        if not all(math.isfinite(time_ms) and time_ms >= 0 for time_ms in times_ms):
            return
        step_ms = parts.diffusion_ms + parts.decoder_ms + parts.encode_ms
        with self._lock:
            self._num_steps += 1
            for place, bound_ms in enumerate(vocabulary.STEP_BOUNDS_MS):
                self._num_at_most[place] += step_ms <= bound_ms
            self._sums_ms = [a + b for a, b in zip(self._sums_ms, times_ms, strict=True)]

    def times(self) -> StepTimes | None:
        """What a process window says; None before the first step: a zero would be a measurement."""
        with self._lock:
            if self._num_steps == 0:
                return None
            diffusion_ms, reduce_ms, decoder_ms, encode_ms = self._sums_ms
            return StepTimes(
                num_steps=self._num_steps,
                num_at_most=list(self._num_at_most),
                diffusion_ms=diffusion_ms,
                reduce_ms=reduce_ms,
                decoder_ms=decoder_ms,
                encode_ms=encode_ms,
            )
