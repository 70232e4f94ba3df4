"""The process that imports torch once and forks every group: `python -m` this, with a socket.

It runs no torch operation itself, so that a fork inherits no thread and no lock: of a checkpoint it
reads bytes and headers, and its forks the tensors. Its answers come in the order of the requests;
when the supervisor has gone it ends its groups and itself.
"""

import gc
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from worker import config as worker_config
from worker.config import WorkerConfig
from worker.engine import lifeline, role, wiring
from worker.engine.proven_checkpoints import ProvenCheckpoints
from worker.model.checkpoint import Checkpoint
from worker.model.manifest import CheckpointError
from worker.parallel import slots
from worker.parallel.channel import Assembly, Message, packets

_MAX_FDS = 16


def main() -> None:
    """Serve the socket whose number is the first argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    lifeline.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    gc.freeze()  # what is shared now stays shared: collections in the forks touch no old object
    server = ForkServer(control)
    try:
        server.serve()
    finally:
        server.end_all()


class _SupervisorGoneError(Exception):
    """Nobody listens any more. No `OSError`: a file that is being read would be blamed for it."""


class ForkServer:
    """Proves checkpoints, forks groups and reaps them."""

    def __init__(self, control: socket.socket) -> None:
        """Take over the socket to the supervisor."""
        self._control = control
        self._assembly = Assembly()
        self._groups: dict[int, dict[str, int]] = {}
        self._checkpoints = ProvenCheckpoints()

    def serve(self) -> None:
        """Answer requests until the supervisor has gone."""
        try:
            self._reply(0, {})
            while True:
                packet, fds, _, _ = socket.recv_fds(self._control, 64 * 1024, _MAX_FDS)
                if not packet:
                    return
                request = self._assembly.add(packet)
                assert request is not None, "a request is one packet"
                self._answer(request, fds)
        except ConnectionResetError:  # the supervisor went without reading an answer
            return
        except _SupervisorGoneError:
            return

    def _answer(self, request: Message, fds: list[int]) -> None:
        number = request.fields["number"]
        match request.kind:
            case "prove":
                self._reply(number, self._proven(request.fields, number))
            case "launch":
                self._reply(number, self._launched(request.fields, fds))
            case "end":
                self._reply(number, {"statuses": self._end(request.fields["key"])})
            case _:
                raise AssertionError(f"unknown request {request.kind!r}")

    def end_all(self) -> None:
        """Kill and reap every group."""
        for key in tuple(self._groups):
            self._end(key)

    def _proven(self, fields: Mapping[str, Any], number: int) -> dict[str, Any]:
        """The digest of the checkpoint, or why it is refused."""

        def on_progress(done: int, total: int) -> None:
            self._reply(number, {"progress": [done, total]})

        config = worker_config.from_fields(fields["config"])
        try:
            found = self._checkpoints.prove(config, on_progress=on_progress)
        except CheckpointError as error:
            return {"refusal": [error.key, repr(error.value), error.allowed]}
        return {"digest": found.digest}

    def _launched(self, fields: Mapping[str, Any], fds: list[int]) -> dict[str, Any]:
        config = worker_config.from_fields(fields["config"])
        proven: Checkpoint | None = None
        if config.checkpoint:
            proven = self._checkpoints.of(config)
            if proven is None:  # this server is younger than the proof that was given
                for end in fds:
                    os.close(end)
                return {"error": "the checkpoint is not proven"}
        return {"pids": self._forked(config, fields, fds, proven)}

    def _forked(
        self,
        config: WorkerConfig,
        fields: Mapping[str, Any],
        fds: list[int],
        proven: Checkpoint | None,
    ) -> dict[str, int]:
        board, kept, *supervisor = fds
        num_floats = config.model.width * max(
            config.model.tokens_per_frame, config.model.first_forward_bounds[1]
        )
        group = wiring.connected(
            num_ranks=config.num_ranks,
            board=board,
            kept=kept,
            supervisor={index: socket.socket(fileno=end) for index, end in enumerate(supervisor)},
            slot_bytes=slots.size_bytes(num_floats=num_floats, num_ranks=config.num_ranks),
        )
        start = role.Start(
            config=config,
            launch=fields["launch"],
            flags=fields["flags"],
            generation=fields["generation"],
            checkpoint=proven,
        )
        pids = {ends.name: self._fork(ends, group, start) for ends in group}
        wiring.close_all(group)
        self._groups[fields["key"]] = pids
        return pids

    def _fork(self, own: wiring.Ends, group: tuple[wiring.Ends, ...], start: role.Start) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be(own, group, start, parent=parent)
        return pid

    def _be(
        self, own: wiring.Ends, group: tuple[wiring.Ends, ...], start: role.Start, *, parent: int
    ) -> NoReturn:
        """In the fork: become one process of the group."""
        lifeline.die_with_parent(signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getppid() != parent:
            os._exit(1)
        self._control.close()
        wiring.keep_only(own, group)
        role.run(own, start)

    def _end(self, key: int) -> dict[str, int]:
        """Kill and reap one group; returns how each process ended, minus a signal or exit code.

        A process that has ended is not reaped before, so its pid cannot belong to another.
        """
        pids = self._groups.pop(key, {})
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        return {
            name: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for name, pid in pids.items()
        }

    def _reply(self, number: int, fields: Mapping[str, Any]) -> None:
        """Answer the request of that number; 0 is the word that torch is imported.

        Raises: _SupervisorGoneError.
        """
        for packet in packets(Message(kind="answer", fields={"number": number, **fields})):
            try:
                self._control.send(packet)
            except (BrokenPipeError, ConnectionResetError) as error:
                raise _SupervisorGoneError from error


if __name__ == "__main__":
    main()
