"""The process that imports torch once and forks every group: `python -m` this, with a socket.

It runs no torch operation itself, so that a fork inherits no thread and no lock. Its answers come
in the order of the requests; when the supervisor has gone it ends its groups and itself.
"""

import gc
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from worker import config as worker_config
from worker.engine import lifeline, role, wiring
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


class ForkServer:
    """Forks groups and reaps them."""

    def __init__(self, control: socket.socket) -> None:
        """Take over the socket to the supervisor."""
        self._control = control
        self._assembly = Assembly()
        self._groups: dict[int, dict[str, int]] = {}

    def serve(self) -> None:
        """Answer requests until the supervisor has gone."""
        self._reply(0, {})
        while True:
            try:
                packet, fds, _, _ = socket.recv_fds(self._control, 64 * 1024, _MAX_FDS)
            except ConnectionResetError:  # the supervisor went without reading an answer
                return
            if not packet:
                return
            request = self._assembly.add(packet)
            assert request is not None, "a request is one packet"
            if request.kind == "launch":
                self._launch(request.fields, fds)
            else:
                statuses = self._end(request.fields["key"])
                self._reply(request.fields["number"], {"statuses": statuses})

    def end_all(self) -> None:
        """Kill and reap every group."""
        for key in tuple(self._groups):
            self._end(key)

    def _launch(self, fields: Mapping[str, Any], fds: list[int]) -> None:
        config = worker_config.from_fields(fields["config"])
        board, *supervisor = fds
        num_floats = config.model.width * max(
            config.model.tokens_per_frame, config.model.first_forward_bounds[1]
        )
        group = wiring.connected(
            num_ranks=config.num_ranks,
            board=board,
            supervisor={index: socket.socket(fileno=end) for index, end in enumerate(supervisor)},
            slot_bytes=slots.size_bytes(num_floats=num_floats, num_ranks=config.num_ranks),
        )
        start = role.Start(
            config=config,
            launch=fields["launch"],
            flags=fields["flags"],
            generation=fields["generation"],
        )
        pids = {ends.name: self._fork(ends, group, start) for ends in group}
        wiring.close_all(group)
        self._groups[fields["key"]] = pids
        self._reply(fields["number"], {"pids": pids})

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
        """Answer the request of that number; 0 is the word that torch is imported."""
        for packet in packets(Message(kind="answer", fields={"number": number, **fields})):
            try:
                self._control.send(packet)
            except BrokenPipeError:  # noticed by the next read
                return


if __name__ == "__main__":
    main()
