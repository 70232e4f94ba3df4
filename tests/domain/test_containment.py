"""How far a rollback has come on each worker."""

from datetime import timedelta
from typing import Any

import pytest

from controlplane.domain import containment
from controlplane.domain.canary import Phase
from controlplane.domain.containment import LEASE_MARGIN, Exposure
from controlplane.domain.fleet import Worker
from tests.domain import build
from tests.domain.build import FLAG, FUSED, NOW, PLAIN, seconds

WITHIN = timedelta(minutes=5)


def exposure(**changes: Any) -> Exposure:
    fields: dict[str, Any] = {
        "worker_id": "id-worker-1",
        "worker": "worker-1",
        "incarnation": "incarnation-worker-1",
        "exposed_at": NOW - timedelta(hours=1),
        "flag_bytes_before": 0,
    }
    return Exposure(**{**fields, **changes})


def back(**changes: Any) -> Worker:
    """A worker that has acknowledged the fallback and holds nothing of the flag's."""
    fields: dict[str, Any] = {
        "desired_generation": 5,
        "effective_generation": 5,
        "flag_bytes": {FLAG: 0},
        "flag_bytes_at": NOW - seconds(1),
        "effective_at": NOW - seconds(1),
    }
    return build.worker(**{**fields, **changes})


def advance(seen: Exposure, *workers: Worker, since_s: float = 10, **canary: Any) -> Exposure:
    fields: dict[str, Any] = {
        "phase": Phase.ROLLING_BACK,
        "phase_since": NOW - seconds(since_s),
        **canary,
    }
    (after,) = containment.advanced(
        [seen],
        workers=workers,
        canary=build.canary(**fields),
        variants={build.FLAG: build.FUSED},
        within=WITHIN,
        now=NOW,
    )
    return after


def test_an_acknowledged_fallback_with_nothing_left_is_contained_and_verified() -> None:
    after = advance(exposure(), back())
    assert (after.contained_at, after.verified_at, after.quarantined_at) == (NOW, NOW, None)


NOT_BACK = [
    {"effective_generation": 4},
    {"effective_generation": 0},
    {"desired_generation": 0, "effective_generation": 0},
    {"effective_flags": {FLAG: FUSED}},
    {"effective_flags": {}},
    {"desired_flags": {FLAG: FUSED}},
]


@pytest.mark.parametrize("changes", NOT_BACK)
@pytest.mark.parametrize("incarnation", ["incarnation-worker-1", "another-life"])
def test_a_worker_that_has_not_acknowledged_is_not_contained(
    changes: dict[str, Any], incarnation: str
) -> None:
    """Whatever life it is in: a new one may have been told the variant before the rollback."""
    after = advance(exposure(), back(incarnation=incarnation, **changes))
    assert (after.contained_at, after.verified_at) == (None, None)


@pytest.mark.parametrize("workers", [(), (back(effective_generation=4),)])
def test_a_silent_worker_is_contained_once_its_lease_has_lapsed(
    workers: tuple[Worker, ...],
) -> None:
    at_margin = advance(exposure(), *workers, lease_until=NOW - LEASE_MARGIN)
    assert at_margin.contained_at is None
    past = advance(exposure(), *workers, lease_until=NOW - LEASE_MARGIN - seconds(0.001))
    assert past.contained_at == NOW
    assert past.verified_at is None


def test_a_cordoned_worker_without_a_session_is_contained() -> None:
    for num_open, contained_at in ((0, NOW), (1, None)):
        seen = back(effective_generation=4, is_cordoned=True, num_open_sessions=num_open)
        assert advance(exposure(), seen).contained_at == contained_at


@pytest.mark.parametrize(
    "changes",
    [
        {"flag_bytes": {FLAG: 1}},
        {"flag_bytes_at": None},
        {"flag_bytes_at": NOW - timedelta(hours=1)},
        {"flag_bytes_at": NOW - timedelta(hours=2)},
    ],
)
def test_what_is_still_held_or_was_not_measured_since_is_not_verified(
    changes: dict[str, Any],
) -> None:
    after = advance(exposure(), back(**changes))
    assert after.is_out
    assert after.verified_at is None


def test_bytes_that_were_never_reported_are_not_zero() -> None:
    """An agent that does not account for the flag's memory has not shown that it is gone."""
    assert advance(exposure(), back(flag_bytes={})).verified_at is None


def test_a_worker_that_does_not_settle_in_time_is_quarantined() -> None:
    in_time = advance(exposure(), since_s=300)
    assert in_time.quarantined_at is None
    late = advance(exposure(), since_s=300.001)
    assert late.quarantined_at == NOW
    assert late.is_out
    assert late.is_settled


def test_a_contained_worker_that_keeps_its_memory_is_quarantined_too() -> None:
    kept = back(flag_bytes={FLAG: 7})
    late = advance(exposure(contained_at=NOW - seconds(400)), kept, since_s=400)
    assert late.quarantined_at == NOW


def test_marks_are_never_taken_back() -> None:
    marked = exposure(
        contained_at=NOW - seconds(5),
        verified_at=NOW - seconds(4),
    )
    assert advance(marked, back(effective_flags={FLAG: FUSED}), since_s=400) == marked


def test_a_worker_is_known_by_its_id_not_its_name() -> None:
    other = back(name="worker-1", id="id-of-another")
    assert advance(exposure(), other).contained_at is None


def test_the_plain_variant_is_what_a_worker_comes_back_to() -> None:
    assert back().effective_flags == {FLAG: PLAIN}


def test_a_baseline_with_buffers_of_its_own_is_verified_at_what_it_kept_before() -> None:
    """The baseline may be a promoted fast path: its slots are not the variant's leak."""
    seen = exposure(flag_bytes_before=3_000_000)
    assert advance(seen, back(flag_bytes={FLAG: 3_000_000})).verified_at is not None
    assert advance(seen, back(flag_bytes={FLAG: 3_000_001})).verified_at is None
