"""The process group of the ranks: gloo on the CPU, the place that NCCL has on a GPU.

Used for collectives only. A rank that waits idle in one dies at the group's timeout, so control
messages travel over channels.
"""

from datetime import timedelta

import torch.distributed as dist
from torch import Tensor

from worker.parallel.channel import PeerLostError


def join(*, rendezvous: int, rank: int, num_ranks: int, timeout_s: float) -> None:
    """Meet the other ranks of this launch; once in the life of a process.

    The rendezvous file is a memory file that all ranks inherited: nothing is left on a disk.

    Raises: PeerLostError if the others do not come in time.
    """
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file:///proc/self/fd/{rendezvous}",
            rank=rank,
            world_size=num_ranks,
            timeout=timedelta(seconds=timeout_s),
        )
    except (RuntimeError, ValueError) as error:
        message = f"the process group did not come up: {error}"
        raise PeerLostError(message) from error


def sum_(partial: Tensor) -> Tensor:
    """Replace `partial` by its sum over all ranks and return it. Raises: PeerLostError."""
    try:
        dist.all_reduce(partial)
    except RuntimeError as error:
        if "allocate memory" in str(error):
            raise
        message = f"an all-reduce failed: {str(error).splitlines()[0]}"
        raise PeerLostError(message) from error
    return partial


def least_(value: Tensor) -> Tensor:
    """Replace `value` by its minimum over all ranks and return it. Raises: PeerLostError."""
    try:
        dist.all_reduce(value, op=dist.ReduceOp.MIN)
    except RuntimeError as error:
        message = f"an all-reduce failed: {str(error).splitlines()[0]}"
        raise PeerLostError(message) from error
    return value
