"""Wall clocks that are wrong: nothing that protects a viewer may wait for them to be right."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane.clock import SystemClock
from controlplane.reconcilers.loop import Loop
from controlplane.store import leader as leader_store
from controlplane.store.transaction import Database
from tests.api.control_plane import FLAG, FLEET, ControlPlane, bearer
from tests.api.otlp_bodies import RESOURCE, attributes, request
from tests.api.otlp_bodies import record as otlp_record
from tests.clock import FakeClock

TTL = timedelta(seconds=15)
WRONG = [datetime(1970, 1, 1, tzinfo=UTC), datetime(2031, 5, 5, tzinfo=UTC)]


def test_a_leader_from_the_future_is_not_waited_for(database: Database, clock: FakeClock) -> None:
    """Its machine said 2031 and died: until then no canary would have a judge."""
    with database.write() as conn:
        first = leader_store.acquire(conn, holder="a", now=WRONG[1], ttl=TTL)
        assert leader_store.acquire(conn, holder="b", now=clock.now(), ttl=TTL) == 2
        assert first == 1
        assert leader_store.acquire(conn, holder="c", now=clock.now(), ttl=TTL) is None


def test_a_clock_that_is_ahead_by_seconds_still_leads(database: Database, clock: FakeClock) -> None:
    """Clocks of two machines always differ: that is no reason to lead in turns."""
    ahead = clock.now() + timedelta(seconds=30)
    with database.write() as conn:
        leader_store.acquire(conn, holder="a", now=ahead, ttl=TTL)
        assert leader_store.acquire(conn, holder="b", now=clock.now(), ttl=TTL) is None


@pytest.mark.parametrize("back", [timedelta(minutes=1), timedelta(days=20_000)], ids=str)
def test_a_clock_set_back_gives_no_longer_lease(plane: ControlPlane, back: timedelta) -> None:
    """A lease of seconds must not become one of years, nor an answer that the worker refuses."""
    plane.fleet("w-1", "w-2", "w-3")
    plane.done("/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="demo")
    plane.tick()
    plane.tick()

    plane.clock.advance(seconds=-back.total_seconds())

    assert plane.desired("w-1", after=0).json()["lease_s"] == 10  # `lease: 10s` of demo.yaml


@pytest.mark.parametrize("wrong", WRONG, ids=lambda at: str(at.year))
def test_the_control_plane_ticks_and_answers_at_any_date(
    plane: ControlPlane, wrong: datetime
) -> None:
    """A canary that was begun at the right time is judged on, and ends, at a wrong one."""
    plane.fleet("w-1", "w-2", "w-3")
    plane.done("/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="demo")
    plane.tick()
    plane.clock.advance(seconds=(wrong - plane.clock.now()).total_seconds())

    plane.tick()
    plane.done(f"/v1/canaries/{FLAG.replace('_', '-')}-1/requests", kind="abort")
    plane.tick()

    canary = plane.get(f"/v1/canaries/{FLAG.replace('_', '-')}-1")["canary"]
    assert canary["phase"] in {"rolling_back", "contained", "rolled_back"}, canary["phase"]
    assert plane.desired("w-1", after=0).json()["flags"] == {FLAG: "nccl"}


@pytest.fixture
def loop_of_50_ms(sqlite_database: Database) -> Iterator[tuple[Loop, threading.Semaphore]]:
    ticked = threading.Semaphore(0)

    class Ticking:
        def beats(self, now: datetime, *, epoch: int) -> Iterator[Any]:
            del now, epoch
            ticked.release()
            yield from ()

    tick = timedelta(seconds=0.05)
    loop = Loop(sqlite_database, (Ticking(),), clock=SystemClock(), holder="a", tick=tick)
    loop.start()
    yield loop, ticked
    loop.stop()


def test_a_timer_that_wall_time_left_behind_ticks_on(
    loop_of_50_ms: tuple[Loop, threading.Semaphore],
) -> None:
    """What a clock set back by an hour leaves: the next tick is due in an hour."""
    loop, ticked = loop_of_50_ms
    assert ticked.acquire(timeout=30)
    assert loop._job is not None
    loop._job.modify(next_run_time=SystemClock().now() + timedelta(hours=1))
    while ticked.acquire(blocking=False):
        pass
    assert ticked.acquire(timeout=30)


def _with_open_session(plane: ControlPlane) -> dict[str, str]:
    """A worker that has said that a session began; returns what its records say of it."""
    plane.fleet("w-1")
    life = plane.get(f"/v1/fleets/{FLEET}/workers/w-1")
    resource = {
        **RESOURCE,
        "service.instance.id": life["incarnation"],
        "steadyframe.worker": "w-1",
        "steadyframe.stack": life["stack"],
    }
    started = otlp_record("session.started", session="s-1", seq=1)
    assert plane.logs("w-1", request(started, resource=resource)).status_code == 200
    plane.tick()
    return resource


@pytest.mark.parametrize("jump", [timedelta(minutes=10), timedelta(days=3000)], ids=str)
def test_a_clock_that_jumps_ahead_loses_no_session(plane: ControlPlane, jump: timedelta) -> None:
    """Nobody was silent for that long: it is the clock that went on, not the workers' time."""
    resource = _with_open_session(plane)

    plane.clock.advance(seconds=jump.total_seconds())
    plane.tick()

    assert plane.get("/v1/sessions")["items"] == []
    ended = otlp_record("session.ended", session="s-1", seq=2)
    assert plane.logs("w-1", request(ended, resource=resource)).status_code == 200
    assert [one["outcome"] for one in plane.get("/v1/sessions")["items"]] == ["completed"]


def test_a_clock_that_jumps_again_and_again_loses_no_worker_that_speaks(
    plane: ControlPlane,
) -> None:
    _with_open_session(plane)

    for _ in range(60):
        plane.clock.advance(seconds=600)
        plane.desired("w-1", after=0)
        plane.tick()

    assert plane.get("/v1/sessions")["items"] == []


def test_a_worker_that_is_really_silent_loses_its_sessions_all_the_same(
    plane: ControlPlane,
) -> None:
    """Two minutes of ticks, however far the clock jumps in between."""
    _with_open_session(plane)
    plane.clock.advance(seconds=86_400)

    for _ in range(30):  # of 5 s each, where 120 s are too much
        plane.clock.advance(seconds=5)
        plane.tick()

    assert [one["outcome"] for one in plane.get("/v1/sessions")["items"]] == ["lost"]


@pytest.mark.parametrize("nanoseconds", [0, 1_935_000_000_000_000_000, 2**64 - 1])
def test_the_time_in_a_record_is_for_display_only(plane: ControlPlane, nanoseconds: int) -> None:
    """Receipt orders and dates the evidence, whatever the worker's clock says."""
    plane.fleet("w-1")
    life = plane.get(f"/v1/fleets/{FLEET}/workers/w-1")
    resource = {
        **RESOURCE,
        "service.instance.id": life["incarnation"],
        "steadyframe.worker": "w-1",
        "steadyframe.stack": life["stack"],
    }
    told = otlp_record("session.started", session="s-1", seq=1)
    told.time_unix_nano = told.observed_time_unix_nano = nanoseconds
    told.attributes.extend(attributes({"at": "1970-01-01T00:00:00Z"}))

    answer = plane.logs("w-1", request(told, resource=resource))

    assert (answer.status_code, answer.content) == (200, b"")
    seen = plane.get(f"/v1/fleets/{FLEET}/workers/w-1")
    assert seen["last_record_at"] == plane.clock.now().isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("date", ["Thu, 01 Jan 1970 00:00:00 GMT", "Mon, 05 May 2031 00:00:00 GMT"])
def test_the_date_of_a_request_is_not_looked_at(sqlite_plane: ControlPlane, date: str) -> None:
    headers = {**sqlite_plane.admin, "Date": date, "If-Modified-Since": date}

    assert sqlite_plane.client.get("/v1/fleets", headers=headers).status_code == 200
    assert sqlite_plane.client.get("/livez", headers=bearer("x")).status_code == 200
