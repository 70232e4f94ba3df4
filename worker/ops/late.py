"""A tensor of a device as it was some copies ago, for a host that must not wait for it."""

import torch
from torch import Tensor

from worker.ops import timing
from worker.ops.timing import Event, NewEvent


class LateCopies:
    """Copies of one tensor on their way to the host, each in a buffer of its own."""

    def __init__(
        self, source: Tensor, *, num_behind: int = 1, new_event: NewEvent | None = None
    ) -> None:
        """Copy `source` whenever told, and read what is `num_behind` copies old, never newer.

        `new_event` is for a device; without, and on a CPU, a copy is done when it has begun.
        """
        assert num_behind >= 1, "what is read at once is waited for"
        self._source = source
        if new_event is None and source.is_cuda:
            new_event = timing.cuda_event
        self._new_event = new_event
        num_buffers = num_behind + 1
        self._host = [
            torch.zeros(source.shape, dtype=source.dtype, device="cpu", pin_memory=source.is_cuda)
            for _ in range(num_buffers)
        ]
        self._events: list[Event | None] = [None] * num_buffers
        self._num_copies = 0

    def start(self) -> None:
        """Start a copy; waits for nothing."""
        number = self._num_copies % len(self._host)
        self._host[number].copy_(self._source, non_blocking=True)
        if self._new_event is not None:
            event = self._events[number] or self._new_event()
            event.record()
            self._events[number] = event
        self._num_copies += 1

    def read(self) -> Tensor | None:
        """The source as it was `num_behind` copies before the last; None until that is surely here.

        Never waits.
        """
        if self._num_copies < len(self._host):
            return None
        oldest = self._num_copies % len(self._host)
        event = self._events[oldest]
        return self._host[oldest].clone() if event is None or event.query() else None
