"""Who is connected to whom in one group, and how a process finds its ends after the fork.

Indexes: ranks 0 to R - 1, then the decoder at R, if it has a process of its own. No torch.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from worker import flags as flag_registry
from worker.parallel import bell, channel
from worker.parallel.bell import Bell


@dataclass(slots=True, kw_only=True)
class Ends:
    """What one process of the group holds after the fork; all else must be closed in it.

    An end that stays open in the wrong process hides the death of the right one.
    """

    index: int
    num_ranks: int
    supervisor: socket.socket
    board: int
    kept: int
    slots: int
    rendezvous: int
    plans: dict[int, socket.socket] = field(default_factory=dict)  # leader: by follower; else {0}
    bells: dict[int, Bell] = field(default_factory=dict)  # by other rank
    latents: socket.socket | None = None  # rank 0 and a decoder of its own process

    @property
    def name(self) -> str:
        """How logs, errors and `pids` call this process."""
        return name(self.index, num_ranks=self.num_ranks)

    def sockets(self) -> list[socket.socket]:
        """Every socket that belongs to this process."""
        own = [self.supervisor, *self.plans.values()]
        return [*own, self.latents] if self.latents else own

    def links(self) -> set[int]:
        """File descriptors of every socket and doorbell that belongs to this process."""
        rung = {own.rung for own in self.bells.values()}
        heard = {own.heard for own in self.bells.values()}
        return {end.fileno() for end in self.sockets()} | rung | heard


def name(index: int, *, num_ranks: int) -> str:
    """`rank0`, `rank1`, ... or `decoder`."""
    return f"rank{index}" if index < num_ranks else "decoder"


def num_processes(flags: Mapping[str, str], *, num_ranks: int) -> int:
    """How many a group that is launched with `flags` has."""
    return num_ranks + (flags[flag_registry.DECODER.name] == "dedicated")


def connected(
    *,
    num_ranks: int,
    supervisor: Mapping[int, socket.socket],
    board: int,
    kept: int,
    slot_bytes: int,
) -> tuple[Ends, ...]:
    """The ends of every process of a new group, with fresh links between them.

    There are as many processes as `supervisor` has ends: the ranks, and the decoder if it has one.
    The slots and the rendezvous are memory files without a name: nothing is left on a disk.
    """
    slot_memory = os.memfd_create("steadyframe-slots")
    os.ftruncate(slot_memory, slot_bytes)
    rendezvous = os.memfd_create("steadyframe-rendezvous")
    group = tuple(
        Ends(
            index=index,
            num_ranks=num_ranks,
            supervisor=supervisor[index],
            board=board,
            kept=kept,
            slots=slot_memory,
            rendezvous=rendezvous,
        )
        for index in range(len(supervisor))
    )
    for rank in range(1, num_ranks):
        group[0].plans[rank], group[rank].plans[0] = channel.pair()
    for low in range(num_ranks):
        for high in range(low + 1, num_ranks):
            group[low].bells[high], group[high].bells[low] = bell.pair()
    for decoder in group[num_ranks:]:
        group[0].latents, decoder.latents = channel.pair()
    return group


def close_all(group: tuple[Ends, ...]) -> None:
    """Close every link in the process that made them, once the group is forked."""
    first = group[0]
    for memory in (first.board, first.kept, first.slots, first.rendezvous):
        os.close(memory)
    for fileno in set().union(*(ends.links() for ends in group)):
        os.close(fileno)
    for ends in group:
        _forget(ends)


def keep_only(own: Ends, group: tuple[Ends, ...]) -> None:
    """In a forked process: close the ends that belong to the others."""
    theirs = set().union(*(ends.links() for ends in group)) - own.links()
    for fileno in theirs:
        os.close(fileno)
    for ends in group:
        if ends is not own:
            _forget(ends)


def _forget(ends: Ends) -> None:
    """Keep the socket objects from closing a number that may have been given away again."""
    for end in ends.sockets():
        end.detach()
