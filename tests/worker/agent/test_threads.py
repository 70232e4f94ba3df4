"""A thread of the agent ends when the agent does and not before."""

import threading
from pathlib import Path

import httpx
import pytest

from tests.worker import control_plane as planes
from tests.worker.agent.build import CAPABILITIES, FALLBACK, FAST, MemoryControlPlane, desired
from tests.worker.agent.build import agent as quiet_agent
from worker.agent import threads
from worker.agent.agent import Agent
from worker.agent.config import AgentConfig
from worker.agent.control import HttpControlPlane, UnreachableError


def test_a_loop_that_fails_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose thread had died would hear of no rollback."""
    monkeypatch.setattr(threads, "RESTART_S", 0.0)
    stopping, num_runs = threading.Event(), []

    def loop(_: threading.Event) -> None:
        num_runs.append(1)
        if len(num_runs) < 3:
            raise KeyError("a fault of ours")

    (thread,) = threads.started({"x": loop}, stopping=stopping)
    thread.join(30)
    assert len(num_runs) == 3


def test_a_server_that_fails_in_its_callback_still_hears(tmp_path: Path) -> None:
    """The fault of a foreign server is not the end of its agent."""
    heard: list[int] = []

    def on_change(wanted: object) -> None:
        heard.append(1)
        if len(heard) == 1:
            raise RuntimeError(wanted)

    config = {"fleet": "demo", "worker": "w1", "hardware": "cpu", "state_dir": tmp_path}
    with planes.control_plane(desired(5, FALLBACK)) as plane:
        agent = Agent(
            AgentConfig(**config, url=plane.url, fallback=FALLBACK, capabilities=CAPABILITIES)  # type: ignore[arg-type]
        )
        agent.start(on_change=on_change)
        plane.wait_for(lambda: bool(heard))
        plane.want(flags=FAST)
        plane.wait_for(lambda: agent.generation() == 6)
        agent.stop()
    assert len(heard) >= 2


@pytest.mark.parametrize("token", [b"\xff\xfe\x00", "sf_ü€".encode(), b"a\nb", b"\r\nX: y\x00"])
def test_a_token_file_of_rubbish_is_as_good_as_no_answer(tmp_path: Path, token: bytes) -> None:
    """It may be half written: the next request reads it again."""
    file = tmp_path / "token"
    file.write_bytes(token)
    # A port that nobody listens on, should the token get so far.
    subject = HttpControlPlane("http://127.0.0.1:9", fleet="f", worker="w", token_file=file)
    with pytest.raises(UnreachableError):
        subject.desired(after=0, incarnation="i")
    subject.close()


@pytest.mark.parametrize("value", ["²", "1e9", "-1", "nan", "soon", ""])
def test_a_retry_after_that_is_no_number_is_not_waited_for(value: str) -> None:
    subject = HttpControlPlane("http://plane", fleet="f", worker="w", token_file=None)
    headers = [(b"Retry-After", value.encode("latin-1"))]
    answer = httpx.Response(503, headers=headers)
    subject._client = httpx.Client(
        base_url="http://plane", transport=httpx.MockTransport(lambda _: answer)
    )
    assert subject.post_logs(b"").retry_after_s is None


def test_records_wait_until_the_life_they_are_of_is_known(tmp_path: Path) -> None:
    """Rejected as of an unknown incarnation they would be lost: a rejection is final."""
    plane = MemoryControlPlane(desired())
    with quiet_agent(tmp_path, plane=plane) as agent:
        with agent.open_session(first_forward_length=1):
            pass
        agent._sender.attempt()
        assert plane.records == []
        agent.on_desired(desired())
        agent._sender.attempt()
        assert len(plane.records) == 2
