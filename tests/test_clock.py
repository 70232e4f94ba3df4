"""Ids sort by the time they were made, and the clock knows its zone."""

import time
import uuid
from datetime import UTC

from controlplane.clock import SystemClock, SystemNewId


def test_an_id_is_a_uuid_of_version_7_with_the_time_in_it() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(SystemNewId()())
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    # RFC 9562: the first 48 bits are Unix milliseconds.
    assert before <= made.int >> 80 <= after


def test_ids_differ_within_a_millisecond() -> None:
    new_id = SystemNewId()
    assert len({new_id() for _ in range(1000)}) == 1000


def test_the_time_is_utc_and_the_other_clock_never_steps_back() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()
