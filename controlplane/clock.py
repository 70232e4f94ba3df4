"""The system's clock and the ids made from it: nothing else reads the time."""

import secrets
import time
import uuid
from datetime import UTC, datetime


class SystemClock:
    """Implements `ports.Clock` with the machine's clocks."""

    def now(self) -> datetime:
        """Aware UTC time."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds on a clock that never steps."""
        return time.monotonic()


class SystemNewId:
    """Implements `ports.NewId`: UUIDv7 as 36 characters, sorted by the millisecond it was made in.

    Source: RFC 9562, section 5.7.
    """

    def __call__(self) -> str:
        """A new id."""
        # 48 bits of Unix milliseconds, then version, 12 random bits, variant and 62 random bits.
        milliseconds = time.time_ns() // 1_000_000
        value = (milliseconds & (2**48 - 1)) << 80
        value |= 0x7 << 76 | secrets.randbits(12) << 64
        value |= 0b10 << 62 | secrets.randbits(62)
        return str(uuid.UUID(int=value))
