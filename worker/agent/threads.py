"""The agent's threads: each is one loop, begun again after a fault until the agent stops."""

import logging
import threading
from collections.abc import Callable, Mapping

# Between a fault in one of the loops and its next try.
RESTART_S = 1.0

logger = logging.getLogger(__name__)

Loop = Callable[[threading.Event], None]


def started(loops: Mapping[str, Loop], *, stopping: threading.Event) -> list[threading.Thread]:
    """A running daemon thread for each loop; a loop that returns is done."""
    threads = [
        threading.Thread(
            target=_keep_up, args=(name, loop, stopping), name=f"agent-{name}", daemon=True
        )
        for name, loop in loops.items()
    ]
    for thread in threads:
        thread.start()
    return threads


def _keep_up(name: str, loop: Loop, stopping: threading.Event) -> None:
    # A worker whose thread had died would be blind for ever; the fault may be the server's, too,
    # whose `on_change` is called from here.
    while not stopping.is_set():
        try:
            loop(stopping)
        except Exception:
            logger.exception("agent_loop_failed loop=%s", name)
            stopping.wait(RESTART_S)
        else:
            return
