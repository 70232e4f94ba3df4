"""What the answers of the control plane mean to the agent, over real HTTP."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from controlplane.contract.messages import DesiredState, RankReport, Registration
from tests.worker import control_plane as planes
from tests.worker.agent import build
from tests.worker.agent.build import Clock, MemoryControlPlane, desired
from worker.agent.control import (
    HttpControlPlane,
    RefusedError,
    SupersededError,
    UnknownWorkerError,
    UnreachableError,
)
from worker.agent.desired import DesiredWatch
from worker.agent.reports import MAX_WAITING, Reports


def client(
    answer: Callable[[httpx.Request], httpx.Response], *, token_file: Path | None = None
) -> HttpControlPlane:
    made = HttpControlPlane("http://plane", fleet="demo", worker="w1", token_file=token_file)
    made._client = httpx.Client(base_url="http://plane", transport=httpx.MockTransport(answer))
    return made


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (409, SupersededError),
        (404, UnknownWorkerError),
        (400, RefusedError),
        (422, RefusedError),
        (401, UnreachableError),
        (503, UnreachableError),
    ],
)
def test_each_status_stands_for_one_error(status: int, error: type[Exception]) -> None:
    """Only what a repeat cannot mend is final."""
    subject = client(lambda _request: httpx.Response(status, json={"title": "no"}))
    with pytest.raises(error, match=str(status)):
        subject.desired(after=1, incarnation="i")


def test_an_answer_that_is_not_of_the_contract_is_as_good_as_none() -> None:
    """A login page of some proxy must not be taken for a desired state."""
    subject = client(lambda _request: httpx.Response(200, text="<html>"))
    with pytest.raises(UnreachableError):
        subject.desired(after=1, incarnation="i")


def test_the_token_is_read_anew_for_every_request_and_is_in_no_url(tmp_path: Path) -> None:
    """Kubernetes rotates it in the file."""
    token_file = tmp_path / "token"
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, content=desired().model_dump_json())

    subject = client(answer, token_file=token_file)
    for token in ("first-secret", "second-secret"):
        token_file.write_text(f"{token}\n")
        subject.desired(after=3, incarnation="i-1")
    assert [r.headers["Authorization"] for r in asked] == [
        "Bearer first-secret", "Bearer second-secret",
    ]  # fmt: skip
    assert asked[0].url == "http://plane/v1/fleets/demo/workers/w1/desired?after=3&incarnation=i-1"


class Listener:
    """Hears what the watch hears."""

    def __init__(self, stopping: threading.Event, *, enough: int) -> None:
        self.heard: list[DesiredState] = []
        self.is_superseded = False
        self._stopping = stopping
        self._enough = enough

    def registration(self) -> Registration:
        return Registration(
            fleet="demo", worker="w1", incarnation="i-1", hardware="cpu", stack={},
            generation=0, flags={}, capabilities={},
        )  # fmt: skip

    def on_desired(self, state: DesiredState) -> int:
        self.heard.append(state)
        if len(self.heard) == self._enough:
            self._stopping.set()
        return state.generation

    def on_superseded(self) -> None:
        self.is_superseded = True


def test_a_watch_registers_and_then_asks_after_what_it_has() -> None:
    """One registration for a life, then held-open calls."""
    stopping = threading.Event()
    listener = Listener(stopping, enough=2)
    with planes.control_plane(desired(5)) as plane:
        http = HttpControlPlane(plane.url, fleet="demo", worker="w1", token_file=None)
        watch = DesiredWatch(http, listener=listener, clock=Clock(), randomness=random.Random(1))
        timer = threading.Timer(0.1, lambda: plane.want(flags={}))
        timer.start()
        watch.run(stopping)
        timer.join()
        http.close()
    assert [state.generation for state in listener.heard] == [5, 6]
    assert len(plane.registrations) == 1


def test_a_watch_ends_when_another_life_has_registered() -> None:
    """To go on asking would fight with it."""
    plane = MemoryControlPlane()
    plane.error = SupersededError("older incarnation")
    listener = Listener(threading.Event(), enough=1)
    DesiredWatch(plane, listener=listener, clock=Clock(), randomness=random.Random(1)).run(
        threading.Event()
    )
    assert listener.is_superseded


def test_reports_wait_in_order_while_the_control_plane_is_away(tmp_path: Path) -> None:
    """A flip that was not told was not made, as far as the control plane knows."""
    plane = MemoryControlPlane()
    with build.agent(tmp_path, plane=plane) as agent:
        for generation in (1, 2):
            agent.report_effective(build.FAST, generation=generation)
        assert not agent._reports.post_one()
        plane.state = desired()
        assert agent._reports.post_one()
        assert agent._reports.post_one()
        assert not agent._reports.post_one()
    assert [report.generation for report in plane.effectives] == [1, 2]


def test_when_too_many_reports_wait_trips_are_kept(tmp_path: Path) -> None:
    """What is effective is said again; a trip is said once."""
    plane = MemoryControlPlane()
    with build.agent(tmp_path, plane=plane) as agent:
        agent.trip(build.Reason.NAN, flags=build.FAST)
        for generation in range(MAX_WAITING + 5):
            agent.report_effective(build.FAST, generation=generation)
        plane.state = desired()
    assert len(plane.trips) == 1
    assert plane.effectives[-1].generation == MAX_WAITING + 4


def test_a_report_that_is_refused_does_not_hold_up_the_next() -> None:
    """The control plane understood it and will not understand it better tomorrow."""
    plane = MemoryControlPlane(desired())
    plane.error = RefusedError("422")
    reports = Reports(plane, randomness=random.Random(1))
    reports.put(
        build.EffectiveReport(
            incarnation="i",
            generation=1,
            flags={},
            ranks=[RankReport(rank=0, generation=1, digest="0" * 16, step=0)],
        )
    )
    assert reports.post_one()
    assert not reports.post_one()
