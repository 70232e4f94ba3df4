"""One canonical form for what is signed off, so that equal content has one digest."""

import hashlib
import json


def canonical(value: object) -> str:
    """`value` as JSON with sorted keys, no spaces, no NaN.

    Raises:
        TypeError: something in it is not JSON.
        ValueError: a number in it is not finite.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: object) -> str:
    """SHA-256 of the canonical form, 64 hex digits. Raises as `canonical` does."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
