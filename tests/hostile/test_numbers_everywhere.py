"""Numbers that no honest sender has, in every numeric field: refused, or kept and harmless.

The fields are found in the schemas (`surfaces`), so a new one is tried by itself. Harmless means:
no fault of ours, every read answers finite numbers, the reconcilers go on, and no session gets a
rate that it did not have.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.contract import vocabulary
from tests import tally
from tests.api.control_plane import FLAG, FLEET, ControlPlane
from tests.hostile import reading
from tests.hostile.surfaces import CANARY, Surface, surfaces

pytestmark = pytest.mark.timeout(600)
NUMBERS = itertools.count(1000)
WRONG_KIND: list[Any] = [True, False, None, "", "12x", "0x10", [], {}]
HUGE = [2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**400, 1e18, 1.7e308]
NO_NUMBER = [math.nan, math.inf, -math.inf]
NEGATIVE = [-1, -0.5, -(2**63), -(2**63) - 1, -1.7e308]
FRACTIONS = [0, 0.5, -0.0, 5e-324, 1.0000000001]
VALUES = [*WRONG_KIND, *HUGE, *NO_NUMBER, *NEGATIVE, *FRACTIONS]
# Never a number in any field: neither a count, nor a measure, nor an id.
NEVER = [*WRONG_KIND[:2], *WRONG_KIND[3:], *NO_NUMBER, *NEGATIVE]
# A measure of the picture may lie on either side of 0: what is good is above a bound.
SIGNED = ("canaries/{name}/quality", ("value",))
SAID = {200, 201, 202, 204, 400, 403, 404, 409, 413, 422}
COLUMNS = ["streamed_s", "num_frames", "fps", "first_forward_length"]
CELLS = ["nan", "inf", "-1", "1e400", "0x10", "9" * 400, "\uff11", "1_000", "+5", "true", "1,5"]
DATES = [
    "0000-00-00",
    "0001-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "2031-05-05T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-23:59",
    "10000-01-01T00:00:00Z",
    "-0001-01-01T00:00:00Z",
    "1e9",
    "1794000000",
    "9223372036854775807",
    "NaN",
    "2026-02-30T00:00:00Z",
    "2026-10-08T25:00:00Z",
    "2026-10-08",
]


def test_every_number_in_every_field(sqlite_plane: ControlPlane) -> None:
    _try_every_number(sqlite_plane)


@pytest.mark.slow
def test_every_number_in_every_field_on_either_database(plane: ControlPlane) -> None:
    """PostgreSQL counts in columns that overflow, SQLite in any that comes."""
    _try_every_number(plane)


def _try_every_number(plane: ControlPlane) -> None:
    """Each field on its own, the rest of its document as it should be."""
    reading.people(plane)
    num_cases = num_taken = 0
    for surface in surfaces(plane):
        for place in surface.targets("number"):
            for value in VALUES:
                is_taken = _is_taken(plane, surface, place, value)
                num_cases += 1
                num_taken += is_taken
                is_never = any(value is one or value == one for one in NEVER if one != 0)
                is_never &= not (value in NEGATIVE and (surface.name, place) == SIGNED)
                assert not (is_taken and is_never), (surface.name, place, value)
    _check_harmless(plane)
    url = plane.parts.context.database.url
    tally.note("numbers_in_fields", test=f"[{url.partition(':')[0]}]", count=num_cases)
    assert num_taken > 100, "refusing everything would prove nothing"


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), value=st.one_of(st.integers(), st.floats(), st.booleans()))
def test_any_number_in_any_field(
    sqlite_plane: ControlPlane, data: st.DataObject, value: float
) -> None:
    if sqlite_plane.client.get(
        "/v1/canaries/fused-allreduce-1", headers=sqlite_plane.admin
    ).is_error:
        reading.people(sqlite_plane)
    surface, place = data.draw(st.sampled_from(list(_all_places(sqlite_plane))))
    is_taken = _is_taken(sqlite_plane, surface, place, value)
    is_wrong = isinstance(value, bool) or not math.isfinite(value)
    is_wrong |= value < 0 and (surface.name, place) != SIGNED
    assert not (is_taken and is_wrong)


def test_a_cell_of_a_file_is_a_plain_number(sqlite_plane: ControlPlane) -> None:
    """A table has text only, so a number in it has one spelling."""
    reading.people(sqlite_plane)
    rows = [one for one in surfaces(sqlite_plane) if one.kind == "row"]
    for column, cell in itertools.product(COLUMNS, CELLS):
        row = next(one for one in rows if column in one.document)
        said = row.send(sqlite_plane, row.with_value((column,), cell), number=1)
        assert not said.is_taken, (column, cell)
        assert said.status == 422
        assert column in said.why
    _check_harmless(sqlite_plane)


def test_a_date_of_a_file_or_a_report_is_one_or_is_refused(sqlite_plane: ControlPlane) -> None:
    """And a session of any week that was taken stands in a report that answers."""
    reading.people(sqlite_plane)
    (row, *_) = [one for one in surfaces(sqlite_plane) if one.kind == "row"]
    for date in DATES:
        said = row.send(sqlite_plane, row.with_value(("started_at",), date), number=1)
        assert said.is_taken or (said.status == 422 and "started_at" in said.why), said
        for key in ("anchor", "from", "to"):
            _check_report(sqlite_plane, key, date)
    _check_harmless(sqlite_plane)


def _check_report(plane: ControlPlane, key: str, date: str) -> None:
    for path in ("/v1/reports/weekly", "/v1/reports/weekly.csv"):
        answer = plane.client.get(path, params={key: date}, headers=plane.admin)
        assert answer.status_code in {200, 422}, (key, date, answer.text)
        assert answer.status_code == 200 or answer.json()["key"] == key


def test_numbers_that_are_none_pass_no_gate(plane: ControlPlane) -> None:
    """A session of the canary arm whose frames or time are nonsense is refused or not rated."""
    reading.people(plane)
    (ended,) = [one for one in surfaces(plane) if one.name == "session.ended"]
    canary = plane.get(f"/v1/canaries/{CANARY}")["canary"]["id"]
    fields = ("num_frames", "num_first_chunk_frames", "streamed_s", "viewer_wait_s")
    for field, value in itertools.product(fields, [*NO_NUMBER, *NEGATIVE, *HUGE, 0, 5e-324, True]):
        in_arm = replace(ended, document={**ended.document, "canary": canary, "arm": "canary"})
        _is_taken(plane, in_arm, (field,), value)
    for session in plane.get("/v1/sessions?limit=500")["items"]:
        rate = vocabulary.session_fps(
            num_frames=session["num_frames"],
            num_first_chunk_frames=session["num_first_chunk_frames"],
            streamed_s=session["streamed_s"],
        )
        assert rate is None or session["streamed_s"] < 1 or 0 <= rate <= 1000, session
    for _ in range(5):
        plane.clock.advance(seconds=5)
        reading.check_ticks(plane)
    assert plane.get(f"/v1/canaries/{CANARY}")["canary"]["phase"] != "promoted"
    assert plane.get(f"/v1/fleets/{FLEET}")["promoted"].get(FLAG) is None


def _all_places(plane: ControlPlane) -> Iterator[tuple[Surface, tuple[str | int, ...]]]:
    for surface in surfaces(plane):
        for place in surface.targets("number"):
            yield surface, place


def _is_taken(
    plane: ControlPlane, surface: Surface, place: tuple[str | int, ...], value: object
) -> bool:
    """Send it. A refusal must be one, and say which field it is about."""
    try:
        said = surface.send(plane, surface.with_value(place, value), number=next(NUMBERS))
    except (TypeError, ValueError, OverflowError):
        return False  # protobuf carries no such value at all
    where = (surface.name, place, str(value)[:40], said)
    assert said.status in SAID, where
    if not said.is_taken and said.status not in {400, 403, 404, 409, 413}:
        assert said.names(place), where
    return said.is_taken


def _check_harmless(plane: ControlPlane) -> None:
    reading.check_ticks(plane)
    reading.answers(plane)
