"""The supervisor's side of the fork server: starts it, asks it for groups, ends it. No torch."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from worker import config as worker_config
from worker.config import WorkerConfig
from worker.model import manifest
from worker.parallel import channel
from worker.parallel.channel import Assembly, Message

_PACKET_BYTES = 64 * 1024
_END_TIMEOUT_S = 5.0
_PERCENT_A_LINE = 5
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    # 1 GiB each: with the defaults the allocator's own drift of several MB hides a leak.
    "MALLOC_MMAP_THRESHOLD_": str(1024 * worker_config.MIB),
    "MALLOC_TRIM_THRESHOLD_": str(1024 * worker_config.MIB),
    "PYTHONWARNINGS": "ignore::UserWarning",  # torch without numpy warns at import; we need none
}


logger = logging.getLogger(__name__)


class LaunchError(Exception):
    """The fork server has gone or did not answer in time."""


class CheckpointRefusedError(LaunchError):
    """The checkpoint is not what it must be; asking again does not change that."""

    def __init__(self, folder: str, key: str, value: str, allowed: str) -> None:
        """`value` as it is to be read, in quotes if it is a text."""
        super().__init__(f"checkpoint {folder}: {key} is {value}; allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class ForkServerClient:
    """One fork server; outlives its groups, so that the next needs no import of torch."""

    def __init__(self, *, start_timeout_s: float) -> None:
        """Start nothing yet."""
        self._start_timeout_s = start_timeout_s
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock = asyncio.Lock()
        self._num_requests = 0
        self._num_keys = 0

    @property
    def pid(self) -> int | None:
        """Of the fork server, while it runs."""
        return self._server.pid if self._server and self._server.poll() is None else None

    def new_key(self) -> int:
        """A number for a group that no other group of this server has."""
        self._num_keys += 1
        return self._num_keys

    async def prove(self, config: WorkerConfig) -> str:
        """Have the checkpoint of `config` read, if this server has not; returns its digest.

        Takes as long as it takes, minutes for the largest; only silence is limited. A server that
        is given up in the middle ends, and its groups with it.

        Raises: CheckpointRefusedError, LaunchError.
        """
        assert config.checkpoint, "no checkpoint to prove"
        folder = config.checkpoint.folder
        fields = {"config": worker_config.to_fields(config)}
        on_progress = _logged(folder)
        async with self._lock:
            await self._ensure_running()
            try:
                answer = await self._asked(
                    "prove", fields, [], timeout_s=self._start_timeout_s, on_progress=on_progress
                )
            except BaseException:
                await self._stop()
                raise
        if "refusal" in answer:
            raise CheckpointRefusedError(folder, *answer["refusal"])
        logger.info("checkpoint_proven folder=%s digest=%s", folder, answer["digest"])
        return str(answer["digest"])

    async def launch(
        self,
        config: WorkerConfig,
        *,
        key: int,
        launch: int,
        flags: Mapping[str, str],
        generation: int,
        fds: list[int],
    ) -> dict[str, int]:
        """Fork a group; returns the pid of each process by name.

        `fds` are the board, what is kept of the session, and the far ends of the supervisor's
        channels, in the order of the indexes. Raises: LaunchError.
        """
        fields = {
            "config": worker_config.to_fields(config),
            "key": key,
            "launch": launch,
            "flags": dict(flags),
            "generation": generation,
        }
        async with self._lock:
            await self._ensure_running()
            answer = await self._asked("launch", fields, fds, timeout_s=self._start_timeout_s)
        if "error" in answer:
            raise LaunchError(answer["error"])
        return dict(answer["pids"])

    async def end(self, key: int) -> dict[str, int]:
        """Kill and reap the group; returns how each process had ended, by name.

        If the fork server has gone its groups have gone with it, and the result is empty.
        """
        async with self._lock:
            if self._control is None:
                return {}
            try:
                answer = await self._asked("end", {"key": key}, [], timeout_s=_END_TIMEOUT_S)
            except LaunchError:
                await self._stop()
                return {}
        return dict(answer["statuses"])

    async def stop(self) -> None:
        """End the fork server and with it every group; harmless if it has ended."""
        async with self._lock:
            await self._stop()

    async def _ensure_running(self) -> None:
        if self.pid is not None and self._control is not None:
            return
        await self._stop()
        ours, theirs = channel.pair()
        ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
        # From the thread that lives as long as the supervisor: the kernel ties the life of the
        # server to the thread that started it.
        self._server = subprocess.Popen(  # noqa: ASYNC220, S603 - a few milliseconds; our own module
            [sys.executable, "-m", "worker.engine.forkserver", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._control = ours
        await self._answer(0, timeout_s=self._start_timeout_s)

    async def _asked(
        self,
        kind: str,
        fields: Mapping[str, Any],
        fds: list[int],
        *,
        timeout_s: float,
        on_progress: manifest.Progress | None = None,
    ) -> Mapping[str, Any]:
        assert self._control is not None, "the fork server does not run"
        self._num_requests += 1
        numbered = {**fields, "number": self._num_requests}
        try:
            for packet in channel.packets(Message(kind=kind, fields=numbered)):
                socket.send_fds(self._control, [packet], fds)
        except OSError as error:
            message = f"the fork server has gone: {error}"
            raise LaunchError(message) from error
        return await self._answer(self._num_requests, timeout_s=timeout_s, on_progress=on_progress)

    async def _answer(
        self, number: int, *, timeout_s: float, on_progress: manifest.Progress | None = None
    ) -> Mapping[str, Any]:
        """The answer to request `number`; one that was given up may have left its own unread.

        Every word of progress on the way to it gives the server another `timeout_s`.
        """
        assert self._control is not None, "the fork server does not run"
        assembly = Assembly()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s) as limit:
                while True:
                    packet = await loop.sock_recv(self._control, _PACKET_BYTES)
                    message = assembly.add(packet) if packet else None
                    if not packet:
                        raise LaunchError("the fork server has gone")
                    if message is None or message.fields["number"] != number:
                        continue
                    if "progress" not in message.fields:
                        return message.fields
                    limit.reschedule(loop.time() + timeout_s)
                    if on_progress is not None:
                        on_progress(*message.fields["progress"])
        except TimeoutError as error:
            text = f"the fork server did not answer within {timeout_s} s"
            raise LaunchError(text) from error
        except ConnectionResetError as error:  # it ended without reading the request
            raise LaunchError("the fork server has gone") from error

    async def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._server is not None:
            server, self._server = self._server, None
            await _reaped(server)


def _logged(folder: str) -> manifest.Progress:
    """Logs how far the reading of `folder` is, at every twentieth."""

    def told(done: int, total: int) -> None:
        logger.info(
            "checkpoint_being_verified folder=%s mib=%d percent=%d",
            folder,
            done // worker_config.MIB,
            100 * done // total,
        )

    return manifest.by_percent(_PERCENT_A_LINE, told)


async def _reaped(server: "subprocess.Popen[bytes]") -> None:
    """Wait for the end of `server`, which has lost its socket; kill it if that does not do."""
    for _ in range(int(_END_TIMEOUT_S / 0.01)):
        if server.poll() is not None:
            return
        await asyncio.sleep(0.01)
    server.kill()
    server.wait()
