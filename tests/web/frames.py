"""What stands where a worker says it is: it answers every GET with what it is told to."""

import io
import math
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image

WIDTH, HEIGHT = 384, 256
_IMAGE = {"Content-Type": "image/jpeg"}


def picture() -> bytes:
    """A JPEG that is recognised at sight: waves of light."""
    image = Image.new("RGB", (WIDTH, HEIGHT))
    image.putdata([_pixel(index % WIDTH, index // WIDTH) for index in range(WIDTH * HEIGHT)])
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    return file.getvalue()


@contextmanager
def answering(
    body: bytes, *, status: int = 200, headers: Mapping[str, str] = _IMAGE
) -> Iterator[str]:
    """The address of a server on loopback, in the form in which workers give theirs."""
    made = type("Handler", (_Handler,), {"answer": (status, dict(headers), body)})
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def dripping(first: bytes, drop: bytes) -> Iterator[str]:
    """The address of a server that sends `first` and then `drop` after `drop`, without an end."""
    is_over = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(first)
            while not is_over.wait(0.01):
                connection.sendall(drop)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        try:
            yield f"ws://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    answer: tuple[int, dict[str, str], bytes]

    def do_GET(self) -> None:
        """Whatever was asked for."""
        status, headers, body = self.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


def _pixel(x: int, y: int) -> tuple[int, int, int]:
    wave = math.sin(x / 37 + math.sin(y / 23) * 1.7) + math.cos(y / 31 - x / 90)
    light = (wave + 2) / 4
    return int(30 + 200 * light), int(60 + 120 * light * light), int(120 + 90 * (1 - light))
