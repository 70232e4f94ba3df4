"""A server of someone else's, in a few lines, with the agent's threads and real HTTP."""

import subprocess
import sys
from pathlib import Path

from controlplane.contract.records import SessionStarted
from controlplane.contract.vocabulary import Outcome
from tests.worker import control_plane as planes
from tests.worker.agent.build import CAPABILITIES, FALLBACK, FAST, desired
from worker.agent.agent import Agent
from worker.agent.config import AgentConfig


def test_a_foreign_server_needs_only_the_agent(tmp_path: Path) -> None:
    """Desired flags, a report of what runs, sessions with their records: nothing else to do."""
    with planes.control_plane(desired(5, FAST)) as plane:
        agent = Agent(
            AgentConfig(
                fleet="demo", worker="w1", hardware="cpu", url=plane.url, state_dir=tmp_path,
                fallback=FALLBACK, capabilities=CAPABILITIES,
            )
        )  # fmt: skip
        agent.start(
            on_change=lambda wanted: agent.report_effective(
                wanted.flags, generation=wanted.generation
            )
        )
        plane.wait_for(lambda: bool(plane.effectives) and plane.effectives[-1].flags == FAST)
        with agent.open_session(first_forward_length=77) as session:
            for at in (0.0, 0.16, 0.32):
                session.deliver(num_frames=4, at=at)
        plane.wait_for(lambda: len(plane.ended()) == 1)
        agent.stop()
    ended = plane.ended()[0]
    assert (ended.outcome, ended.num_frames, ended.num_non_compliant_steps) == (
        Outcome.COMPLETED, 12, 0,
    )  # fmt: skip
    assert isinstance(plane.records[0][1], SessionStarted)


def test_neither_agent_nor_supervisor_nor_viewer_loads_torch() -> None:
    """A foreign image has none, and the supervisor must start before the ranks' 1.5 s import."""
    program = (
        "import sys, worker.agent.agent, worker.viewer.cli, worker.main.cli\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
