"""A worker in a process of its own, to be killed in the middle of a session.

Notes each session in a file once it is on record, then streams it in real time, until it is killed.
"""

import sys
import threading
from pathlib import Path

from tests.chaos.worker import Worker

CHUNK_S = 0.05
NUM_CHUNKS = 20
NOTES = "started.txt"


def main() -> None:
    """Serve for ever: `URL FOLDER TOKEN_FILE NAME`."""
    url, folder, token_file, name = sys.argv[1:]
    worker = Worker(name, url=url, folder=Path(folder), token_file=Path(token_file))
    agent = worker.agent
    agent.start(on_change=worker._flip)
    never = threading.Event()
    while True:  # until SIGKILL
        with agent.open_session(first_forward_length=64) as session:
            with (Path(folder) / NOTES).open("a") as notes:
                notes.write(f"{session.id}\n")
            for _ in range(NUM_CHUNKS):
                session.deliver(num_frames=4)
                never.wait(CHUNK_S)


if __name__ == "__main__":
    main()
