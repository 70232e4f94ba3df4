"""A device whose stream goes on only when a test says so, and which nobody may wait for."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Stream:
    """What was put into it, and how far the device is."""

    now_ms: float = 0.0  # where the end of the stream stands
    num_recorded: int = 0
    num_passed: int = 0
    num_events: int = 0

    def event(self) -> "FakeEvent":
        self.num_events += 1
        return FakeEvent(self)

    def work(self, took_ms: float) -> None:
        self.now_ms += took_ms

    def catch_up(self) -> None:
        self.num_passed = self.num_recorded


@dataclass(slots=True)
class FakeEvent:
    stream: Stream
    at_ms: float = 0.0
    number: int = 0
    num_queries: int = field(default=0)

    def record(self) -> None:
        self.stream.num_recorded += 1
        self.number, self.at_ms = self.stream.num_recorded, self.stream.now_ms

    def query(self) -> bool:
        self.num_queries += 1
        return self.number <= self.stream.num_passed

    def elapsed_time(self, end_event: object, /) -> float:
        assert isinstance(end_event, FakeEvent)
        # CUDA raises here; a host that reads too early would have to wait.
        assert max(self.number, end_event.number) <= self.stream.num_passed, "read before it was"
        return end_event.at_ms - self.at_ms

    def synchronize(self) -> None:
        raise AssertionError("the host waited for the device")

    def wait(self) -> None:
        raise AssertionError("the device was made to wait")
