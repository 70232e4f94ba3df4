"""The agent as a server uses it, with a control plane in memory and a clock that is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.contract.records import ProcessWindow, SessionEnded, SessionStarted, SessionWindow
from controlplane.contract.vocabulary import Outcome, Reason
from tests.worker.agent import build
from tests.worker.agent.build import (
    CAPABILITIES,
    FALLBACK,
    FAST,
    Clock,
    MemoryControlPlane,
    desired,
    experiment,
)
from worker.agent import breakglass
from worker.agent.agent import Agent, NotAdmittingError
from worker.agent.config import AgentConfig
from worker.agent.folder import StateDirInUseError
from worker.agent.intent import Cause, Wanted
from worker.agent.spool import SpoolFullError


def spooled(folder: Path) -> list[dict[str, Any]]:
    """Records in the file, whether or not anyone has read them."""
    content = (folder / "spool").read_bytes()
    found = []
    for part in content.split(b'{"identity"')[1:]:
        text = (b'{"identity"' + part).decode(errors="ignore")
        found.append(json.JSONDecoder().raw_decode(text)[0])
    return found


def test_started_is_on_disk_when_the_session_opens(tmp_path: Path) -> None:
    """Before the first forward: a death in it leaves a record."""
    with build.agent(tmp_path) as agent:
        session = agent.open_session(first_forward_length=77)
        (written,) = spooled(tmp_path)
        assert written["event"] == "session.started"
        assert written["record"]["session"] == session.id
        assert written["record"]["first_forward_length"] == 77


def test_records_are_numbered_without_gaps_and_arrive_at_the_stop(tmp_path: Path) -> None:
    """A gap in the numbers means a loss, so there must be none without one."""
    plane, clock = MemoryControlPlane(desired()), Clock()
    with build.agent(tmp_path, plane=plane, clock=clock) as agent:
        agent.on_desired(desired())
        for _ in range(2):
            with agent.open_session(first_forward_length=1) as session:
                for _ in range(40):
                    clock.advance(0.16)
                    session.deliver(num_frames=4)
                    agent.beat()
        agent.write_process_window({"resident_bytes": 5})
    found = [record for _, record in plane.records]
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    assert [type(record) for record in found] == [
        SessionStarted, SessionWindow, SessionEnded,
        SessionStarted, SessionWindow, SessionEnded, ProcessWindow,
    ]  # fmt: skip
    assert isinstance(found[-1], ProcessWindow)
    assert found[-1].num_sessions_started == 2


def test_an_exception_in_the_server_ends_the_session_as_failed(tmp_path: Path) -> None:
    """A foreign server need not think of it."""
    plane = MemoryControlPlane(desired())

    def broken(agent: Agent) -> None:
        agent.on_desired(desired())
        with agent.open_session(first_forward_length=1):
            raise RuntimeError("no such kernel")

    with build.agent(tmp_path, plane=plane) as agent, pytest.raises(RuntimeError):
        broken(agent)
    ended = plane.records[-1][1]
    assert isinstance(ended, SessionEnded)
    assert (ended.outcome, ended.detail) == (Outcome.FAILED, "RuntimeError: no such kernel")


def test_a_session_held_up_by_its_viewer_is_viewer_limited(tmp_path: Path) -> None:
    """Left out in both arms: it says nothing of the kernel."""
    clock = Clock()
    with build.agent(tmp_path, clock=clock) as agent:
        session = agent.open_session(first_forward_length=1)
        for _ in range(10):
            session.deliver(num_frames=4)
            session.send_began()
            clock.advance(1)
            session.send_ended()
        ended = session.end(Outcome.COMPLETED)
    assert ended.outcome is Outcome.VIEWER_LIMITED
    assert ended.viewer_wait_s == pytest.approx(10)
    assert ended.streamed_s == 0


def test_a_short_send_is_no_wait_for_the_viewer(tmp_path: Path) -> None:
    """Else every frame would shorten the session by the event loop's own time."""
    clock = Clock()
    with build.agent(tmp_path, clock=clock) as agent:
        session = agent.open_session(first_forward_length=1)
        for _ in range(50):
            session.send_began()
            clock.advance(0.004)
            session.send_ended()
            session.deliver(num_frames=1)
        assert session.reading().viewer_wait_s == 0


def test_the_server_is_told_once_for_each_change(tmp_path: Path) -> None:
    """And after a trip without waiting for anyone."""
    told: list[Wanted] = []
    with build.agent(tmp_path) as agent:
        agent._on_change = told.append
        for state in (desired(5), desired(5), desired(6, flags=FALLBACK), desired(7)):
            agent.on_desired(state)
        agent.trip(Reason.NAN, flags=FAST)
    assert [(wanted.generation, wanted.cause) for wanted in told] == [
        (5, Cause.DESIRED), (6, Cause.DESIRED), (7, Cause.DESIRED), (7, Cause.BREAKER_OPEN),
    ]  # fmt: skip
    assert told[-1].flags == FALLBACK


def test_a_trip_names_the_experiment_of_its_session(tmp_path: Path) -> None:
    """One hard stop rolls its canary back, so it must be known which."""
    plane = MemoryControlPlane(desired())
    with build.agent(tmp_path, plane=plane) as agent:
        agent.on_desired(desired(5, flags=FALLBACK, experiment=experiment(share=1.0)))
        session = agent.open_session(first_forward_length=1)
        agent.trip(Reason.NAN, flags=FAST, session=session.id, rank=1)
    (trip,) = plane.trips
    assert (trip.canary, trip.session, trip.rank, trip.generation) == ("c-1", session.id, 1, 5)
    assert trip.flags == FAST


def test_an_unknown_variant_is_reported_as_refused_once(tmp_path: Path) -> None:
    """With what runs instead; the held-open call repeats itself, the report does not."""
    plane = MemoryControlPlane(desired())
    with build.agent(tmp_path, plane=plane) as agent:
        agent.report_effective(FALLBACK, generation=0)
        bad = desired(9, flags={"fused_allreduce": "magic"})
        assert [agent.on_desired(bad), agent.on_desired(bad)] == [9, 9]
    refused = [report for report in plane.effectives if report.refused]
    assert len(refused) == 1
    assert "no variant magic" in refused[0].refused
    assert (refused[0].generation, refused[0].flags) == (9, FALLBACK)


def test_a_lapse_that_changes_no_flag_is_reported_all_the_same(tmp_path: Path) -> None:
    """The control arm ran the fallback anyway; the control plane still has to hear of the lapse."""
    plane, clock = MemoryControlPlane(desired()), Clock()
    with build.agent(tmp_path, plane=plane, clock=clock) as agent:
        agent.on_desired(desired(5, flags=FALLBACK, lease_s=10))
        agent.report_effective(FALLBACK, generation=5)
        clock.advance(11)
        agent.beat()
    assert [report.is_lease_lapsed for report in plane.effectives] == [False, True]


def test_break_glass_is_seen_at_the_next_beat_and_undone_only_by_removing_it(
    tmp_path: Path,
) -> None:
    """A file, so that it works without this process and without a network."""
    with build.agent(tmp_path) as agent:
        agent.on_desired(desired(5))
        breakglass.force(tmp_path)
        agent.beat()
        agent.on_desired(desired(6))
        assert agent.wanted == Wanted(flags=FALLBACK, generation=6, cause=Cause.BREAK_GLASS)
        breakglass.clear(tmp_path)
        agent.beat()
        assert agent.wanted.flags == FAST


@pytest.mark.parametrize("fields", [{"is_admitting": False}, {"is_draining": True}])
def test_a_worker_out_of_service_takes_no_session(fields: dict[str, Any], tmp_path: Path) -> None:
    """Asked for by the control plane; undone by the next generation."""
    with build.agent(tmp_path) as agent:
        agent.on_desired(desired(5, **fields))
        with pytest.raises(NotAdmittingError):
            agent.open_session(first_forward_length=1)
        agent.on_desired(desired(6))
        agent.open_session(first_forward_length=1).end(Outcome.COMPLETED)


def test_a_superseded_worker_takes_no_session(tmp_path: Path) -> None:
    """Two lives of one worker must not both count."""
    with build.agent(tmp_path) as agent:
        agent.on_superseded()
        with pytest.raises(NotAdmittingError, match="another life"):
            agent.open_session(first_forward_length=1)


def test_no_session_is_taken_that_cannot_be_recorded(tmp_path: Path) -> None:
    """And a refused one leaves no number unused."""
    with build.agent(tmp_path, spool_limit_bytes=450) as agent:
        agent.open_session(first_forward_length=1)
        with pytest.raises(SpoolFullError):
            agent.open_session(first_forward_length=1)
        assert agent._num_sessions_started == 1
        assert agent._ledger._seq == 1


def test_two_agents_cannot_share_a_folder(tmp_path: Path) -> None:
    """Their records would be mixed."""
    with build.agent(tmp_path), pytest.raises(StateDirInUseError), build.agent(tmp_path):
        pass


def test_the_registration_says_how_this_life_stands(tmp_path: Path) -> None:
    """From the disk before, and from the engine as soon as it has spoken."""
    with build.agent(tmp_path) as agent:
        agent.on_desired(desired(8))
    with build.agent(tmp_path) as agent:
        agent.report_effective(FAST, generation=8)
        registration = agent.registration()
    assert (registration.generation, registration.flags) == (8, FAST)
    assert registration.capabilities == {k: list(v) for k, v in CAPABILITIES.items()}
    assert "python" in registration.stack


def test_a_fallback_that_this_build_cannot_run_is_refused() -> None:
    """Nothing would be left to flee to."""
    with pytest.raises(ValueError, match=r"fallback\.fused_allreduce is 'magic', allowed: nccl"):
        AgentConfig(
            fleet="demo", worker="w1", hardware="cpu", url="", state_dir=Path("/nowhere"),
            fallback={"fused_allreduce": "magic"}, capabilities=CAPABILITIES,
        )  # fmt: skip


def test_urgent_records_are_not_kept_waiting(tmp_path: Path) -> None:
    """The first window under the floor, and a bad end."""
    clock = Clock()
    urgent: list[bool] = []
    with build.agent(tmp_path, clock=clock) as agent:
        agent._ledger._on_append = urgent.append
        session = agent.open_session(first_forward_length=1)
        for _ in range(120):
            clock.advance(0.2)  # 20 fps
            session.deliver(num_frames=4)
            agent.beat()
        session.end(Outcome.COMPLETED)
    assert urgent == [False, True, False, False, False, True]
