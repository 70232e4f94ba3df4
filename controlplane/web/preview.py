"""Fetches the newest frame from a worker, whose word its address is.

So it is not believed: only plain HTTP, only to loopback or networks that a setting names, to the
very address that was checked, without redirects, in bounded time and size, and only a JPEG.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from urllib.parse import urlsplit

import httpx
from starlette.concurrency import run_in_threadpool

from controlplane.api.context import Context
from controlplane.domain import errors
from controlplane.services import pages

JPEG = "image/jpeg"
PATH = "/preview.jpg"
MAX_BYTES = 1 << 20
TIMEOUT_S = 2.0
# A worker's address is that of its stream; it answers plain requests on the same port.
SCHEMES = ("http", "ws")
_BEGINS, _ENDS = b"\xff\xd8\xff", b"\xff\xd9"
_OK = 200
Network = IPv4Network | IPv6Network


class NoFrameError(errors.DomainError):
    """There is no frame to show, or none that may be fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a frame may be fetched."""

    host: str  # as the worker wrote it
    ip: str  # that was checked and is connected to
    port: int


async def address_of(here: Context, fleet: str, worker: str) -> str:
    """What the worker says of where it is. Raises: NotFoundError."""

    def read() -> str:
        with here.database.read() as conn:
            return pages.address_of(conn, fleet, worker)

    return await run_in_threadpool(read)


async def fetch(address: str, *, networks: Collection[Network]) -> bytes:
    """A JPEG from the worker at `address`. Raises: NoFrameError."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            target = await _target(address, networks=networks)
            return await _read(target)
    except TimeoutError:
        raise NoFrameError(f"the worker sent no frame within {TIMEOUT_S:g} s") from None
    except httpx.HTTPError as error:
        raise NoFrameError(f"the worker could not be asked: {type(error).__name__}") from error


def is_allowed(ip: IPv4Address | IPv6Address, *, networks: Collection[Network]) -> bool:
    """Whether a frame may be fetched from there."""
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    ip = mapped or ip
    return ip.is_loopback or any(
        ip.version == network.version and ip in network for network in networks
    )


async def _target(address: str, *, networks: Collection[Network]) -> Target:
    host, port = _parts(address)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NoFrameError("the worker's address has no IP address") from None
    for *_, where in found:
        ip = str(where[0])
        if is_allowed(ipaddress.ip_address(ip.partition("%")[0]), networks=networks):
            return Target(host=host, ip=ip, port=port)
    raise NoFrameError(
        "the worker's address is in no network that frames may be fetched from;"
        " name it in STEADYFRAME_PREVIEW_NETWORKS"
    )


def _parts(address: str) -> tuple[str, int]:
    try:
        split = urlsplit(address)
        host, port = split.hostname, split.port
    except ValueError:
        host = port = None
    if host is None or port is None or split.scheme not in SCHEMES or split.username is not None:
        raise NoFrameError("the worker gave no address of the form http://HOST:PORT")
    return host, port


async def _read(target: Target) -> bytes:
    ip = f"[{target.ip}]" if ":" in target.ip else target.ip
    # No proxy and no credentials of this process's environment.
    async with (
        httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=TIMEOUT_S) as client,
        client.stream(
            "GET",
            f"http://{ip}:{target.port}{PATH}",
            headers={"Host": f"{target.host}:{target.port}", "Accept-Encoding": "identity"},
        ) as answer,
    ):
        if answer.status_code != _OK:
            raise NoFrameError(f"the worker has no frame: it answered {answer.status_code}")
        body = bytearray()
        async for part in answer.aiter_raw():
            body += part
            if len(body) > MAX_BYTES:
                raise NoFrameError(f"the worker's frame is larger than {MAX_BYTES} bytes")
    if not (body.startswith(_BEGINS) and body.endswith(_ENDS)):
        raise NoFrameError("what the worker sent is not a JPEG")
    return bytes(body)
