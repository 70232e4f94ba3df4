"""A worker's word for where it is: what is fetched from there, and what is not."""

import asyncio
import ipaddress
import socket

import pytest

from controlplane.web import preview
from controlplane.web.preview import NoFrameError
from tests.web import frames

JPEG = b"\xff\xd8\xff\xe0 a frame \xff\xd9"


def fetched(address: str) -> bytes:
    return asyncio.run(preview.fetch(address, networks=()))


def test_a_frame_comes_from_the_worker() -> None:
    with frames.answering(JPEG) as address:
        assert fetched(address) == JPEG
        assert fetched(address.replace("ws:", "http:").replace("127.0.0.1", "localhost")) == JPEG


@pytest.mark.parametrize(
    ("body", "status", "headers"),
    [
        (b"<script>alert(1)</script>", 200, {"Content-Type": "image/jpeg"}),
        (b"", 200, {}),
        (JPEG[:-2], 200, {}),
        (JPEG, 404, {}),
        (JPEG, 302, {"Location": "http://127.0.0.1:1/preview.jpg"}),
        (b"\xff\xd8\xff" + bytes(preview.MAX_BYTES) + b"\xff\xd9", 200, {}),
    ],
    ids=["script", "empty", "cut", "missing", "elsewhere", "huge"],
)
def test_what_is_no_frame_is_not_passed_on(
    body: bytes, status: int, headers: dict[str, str]
) -> None:
    with (
        frames.answering(body, status=status, headers=headers) as address,
        pytest.raises(NoFrameError),
    ):
        fetched(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "worker-1",
        "ws://127.0.0.1",
        "https://127.0.0.1:80",
        "file://127.0.0.1:80/etc/passwd",
        "gopher://127.0.0.1:80",
        "http://admin:secret@127.0.0.1:80",
        "http://169.254.169.254:80",
        "http://10.0.0.1:80",
        "http://[::ffff:10.0.0.1]:80",
        "http://0.0.0.0:80",
        "http://127.0.0.1:99999",
        "http://[::1:80",
        "http://no-such-host.invalid:80",
    ],
)
def test_other_addresses_are_not_asked(address: str) -> None:
    """Metadata services and the insides of a network are what such a fetch is misused for."""
    with pytest.raises(NoFrameError):
        fetched(address)


@pytest.mark.parametrize(
    ("ip", "is_allowed"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("10.2.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),  # noqa: S104 - not bound, refused
        ("fd00::1", False),
    ],
)
def test_networks_beside_loopback_are_named(ip: str, is_allowed: bool) -> None:  # noqa: FBT001 - a column
    networks = [ipaddress.ip_network("10.1.0.0/16")]

    assert preview.is_allowed(ipaddress.ip_address(ip), networks=networks) is is_allowed


def test_a_worker_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "TIMEOUT_S", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(NoFrameError),
    ):
        fetched(f"http://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n\xff\xd8\xff", b"x"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"X-Many: x\r\n"),
        (b"", b"\x00"),
    ],
    ids=["body", "header", "headers", "no answer"],
)
def test_a_worker_that_never_ends_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, first: bytes, drop: bytes
) -> None:
    """Bytes that keep coming must not keep it waiting: the time is of the whole answer."""
    monkeypatch.setattr(preview, "TIMEOUT_S", 0.3)
    with frames.dripping(first, drop) as address, pytest.raises(NoFrameError):
        fetched(address)
