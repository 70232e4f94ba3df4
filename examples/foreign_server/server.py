"""An inference server that is not ours, with Steadyframe's agent in it.

python server.py URL FLEET WORKER TOKEN_FILE STATE_DIR NUM_SESSIONS
"""

import sys
import threading
from pathlib import Path

from worker.agent.agent import Agent, NotAdmittingError
from worker.agent.config import AgentConfig

FLAG = "fused_allreduce"
FRAME_S = 1 / 25  # a little above the floor of 24 frames a second
CHUNK = 4


def main(url: str, fleet: str, worker: str, token_file: str, state_dir: str, number: str) -> None:
    """Serve some sessions, each of two seconds of pretended video."""
    agent = Agent(
        AgentConfig(
            fleet=fleet,
            worker=worker,
            hardware="cpu",
            url=url,
            token_file=Path(token_file),
            state_dir=Path(state_dir),
            fallback={FLAG: "nccl"},
            capabilities={FLAG: ["nccl", "fused_steady"]},
        )
    )
    # Here a real server would switch its kernels, between two steps; then it says so.
    agent.start(on_change=lambda w: agent.report_effective(w.flags, generation=w.generation))
    pace = threading.Event()
    served = 0
    while served < int(number):
        try:
            with agent.open_session(first_forward_length=8 + served) as session:
                for _ in range(13):
                    pace.wait(CHUNK * FRAME_S)  # "inference", under session.flags
                    session.deliver(num_frames=CHUNK)
            served += 1
        except NotAdmittingError:
            pace.wait(0.5)
    agent.stop()  # what is not delivered yet stays on disk, for the next start


if __name__ == "__main__":
    main(*sys.argv[1:])
