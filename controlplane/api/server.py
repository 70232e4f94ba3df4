"""One uvicorn server on a socket that is bound before, and an orderly end.

A signal to stop ends the process in order and with exit code 0; a second one ends it at once.
"""

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from controlplane.api.signals import Signals

# Held calls are answered at once when the process stops; this is for what else is in flight.
GRACE_S = 5
_STOPPING = (signal.SIGINT, signal.SIGTERM)


def answer(app: FastAPI, listener: socket.socket, *, signals: Signals) -> None:
    """Answer on `listener` until the process is told to stop."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody but a configured proxy may say where a request is from
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=GRACE_S,
    )
    _Server(config, signals=signals).run(sockets=[listener])


def url_of(listener: socket.socket) -> str:
    """Where `listener` can be reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Lets go of held calls before it waits for what is in flight."""

    def __init__(self, config: uvicorn.Config, *, signals: Signals) -> None:
        super().__init__(config)
        self._signals = signals

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, held calls first."""
        self._signals.close()
        await asyncio.sleep(0)  # lets the held calls see it
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal; uvicorn would raise it again and so cut our own end short."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _STOPPING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
