"""Who may take part in a canary, and which workers a step exposes."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain import fleet
from controlplane.domain.fleet import Worker
from controlplane.domain.policy import Workers
from tests.domain import build
from tests.domain.build import FLAG, FUSED, NOW, PLAIN, pin, seconds, worker


def workers(number: int) -> list[Worker]:
    return [worker(f"worker-{n:02}") for n in range(number)]


def names(number: int) -> list[str]:
    return [each.name for each in workers(number)]


# Rounded up, then held to half of the stratum, rounded down, and to at least one of two or more.
@pytest.mark.parametrize(
    ("wanted", "num_in_stratum", "num_exposed"),
    [
        (Workers(number=1), 0, 0),
        (Workers(number=1), 1, 0),
        (Workers(number=1), 2, 1),
        (Workers(number=1), 3, 1),
        (Workers(number=5), 3, 1),
        (Workers(number=5), 11, 5),
        (Workers(number=6), 11, 5),
        (Workers(share=Fraction(1, 4)), 2, 1),
        (Workers(share=Fraction(1, 4)), 4, 1),
        (Workers(share=Fraction(1, 4)), 5, 2),
        (Workers(share=Fraction(1, 100)), 100, 1),
        (Workers(share=Fraction(1, 100)), 101, 2),
        (Workers(share=Fraction(1, 2)), 7, 3),
    ],
)
def test_a_step_exposes_at_least_one_worker_and_at_most_half(
    wanted: Workers, num_in_stratum: int, num_exposed: int
) -> None:
    assert wanted.of(num_in_stratum) == num_exposed


SHARES = st.fractions(min_value=Fraction(1, 1000), max_value=1)
WANTED = st.one_of(
    st.integers(1, 40).map(lambda n: Workers(number=n)), SHARES.map(lambda s: Workers(share=s))
)


@given(st.integers(0, 40), st.sets(st.integers(0, 39)), WANTED)
def test_no_choice_exposes_more_than_half_or_takes_anyone_back(
    num_eligible: int, exposed_before: set[int], wanted: Workers
) -> None:
    before = {f"worker-{n:02}" for n in exposed_before}
    chosen = fleet.chosen_workers(workers(num_eligible), exposed=before, wanted=wanted)
    pool = before | set(names(num_eligible))
    assert before <= set(chosen) <= pool
    assert len(chosen) == len(set(chosen))
    # Those exposed before may be more than half by now, if others left; none is added then.
    assert len(chosen) <= max(len(before), len(pool) // 2)


@given(st.permutations(workers(8)), WANTED)
def test_the_choice_does_not_depend_on_the_order_of_workers(
    shuffled: list[Worker], wanted: Workers
) -> None:
    """Two controllers that look at the same fleet must choose the same workers."""
    assert fleet.chosen_workers(shuffled, exposed=(), wanted=wanted) == fleet.chosen_workers(
        workers(8), exposed=(), wanted=wanted
    )


def test_the_first_by_name_are_exposed_and_stay_so() -> None:
    first = fleet.chosen_workers(workers(8), exposed=(), wanted=Workers(number=1))
    assert first == ("worker-00",)
    later = fleet.chosen_workers(workers(8), exposed=["worker-05"], wanted=Workers(number=2))
    assert later == ("worker-05", "worker-00")


def test_an_exposed_worker_that_is_no_longer_eligible_counts_all_the_same() -> None:
    chosen = fleet.chosen_workers(workers(4), exposed=["gone"], wanted=Workers(number=1))
    assert chosen == ("gone",)


def eligible(**changes: Any) -> bool:
    return fleet.is_eligible(worker(**changes), variants={FLAG: FUSED}, now=NOW)


def test_a_healthy_worker_is_eligible() -> None:
    assert eligible()


@pytest.mark.parametrize(
    "changes",
    [
        {"capabilities": {}},
        {"capabilities": {FLAG: (PLAIN,)}},
        {"capabilities": {"kv_cache": (FUSED,)}},
        {"last_seen_at": NOW - timedelta(seconds=30.001)},
        {"trip": build.trip_of()},
        {"is_cordoned": True},
        {"is_quarantined": True},
        {"is_break_glass": True},
        {"pins": (pin(PLAIN),)},
        {"pins": (pin(FUSED),)},
    ],
)
def test_what_excludes_a_worker_from_a_canary(changes: dict[str, Any]) -> None:
    """A pin puts the worker in neither arm."""
    assert not eligible(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"last_seen_at": NOW - timedelta(seconds=30)},
        {"pins": (pin(PLAIN, expires_at=NOW),)},
        {"pins": (pin(PLAIN, flag="kv_cache"),)},
    ],
)
def test_what_does_not_exclude_a_worker(changes: dict[str, Any]) -> None:
    assert eligible(**changes)


@pytest.mark.parametrize(
    ("changes", "is_effective"),
    [
        ({}, True),
        ({"effective_generation": 0}, False),
        ({"desired_generation": 2}, False),
        ({"effective_flags": {FLAG: FUSED}}, False),
        ({"effective_flags": {}}, False),
        ({"effective_generation": 2}, True),
        ({"effective_flags": {FLAG: PLAIN, "not_steered": "fused"}}, True),
        ({"effective_flags": {FLAG: FUSED, "not_steered": "fused"}}, False),
    ],
)
def test_a_worker_is_effective_when_it_reports_what_is_wanted(
    changes: dict[str, Any],
    is_effective: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert worker(**changes).is_effective() is is_effective


def test_a_worker_is_compared_within_its_hardware_and_stack() -> None:
    assert worker().stratum == (build.HARDWARE, build.STACK)
    assert worker(last_seen_at=NOW - seconds(5)).is_reachable(now=NOW, within=seconds(5))
