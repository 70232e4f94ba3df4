"""A process that may allocate little and loads one rank of a checkpoint, for each of several cases.

Arguments: folder, then `<number of ranks>:<bytes>` for each case, the bytes being what it may
allocate beyond what it has. Prints a word a case: `loaded`, or `refused` when the limit was met.
"""

import resource
import sys
import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    import torch

from tests.worker.model import folders
from worker.model import checkpoint
from worker.model.manifest import CheckpointError


def _allocated_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))


def _outcome(opened: checkpoint.Checkpoint, *, num_ranks: int, allowed_bytes: int) -> str:
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (_allocated_bytes() + allowed_bytes, hard))
    try:
        checkpoint.load(opened, rank=num_ranks - 1, num_ranks=num_ranks)
    except (RuntimeError, MemoryError, CheckpointError) as error:
        return "refused" if "memory" in str(error).lower() else repr(error)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    return "loaded"


def _main(folder: Path, cases: list[str]) -> None:
    torch.set_num_threads(1)
    opened = checkpoint.opened(folder, folders.LARGE)
    checkpoint.load(opened, rank=0, num_ranks=8)  # what is imported and kept at the first time
    for case in cases:
        num_ranks, allowed_bytes = (int(number) for number in case.split(":"))
        outcome = _outcome(opened, num_ranks=num_ranks, allowed_bytes=allowed_bytes)
        sys.stdout.write(outcome + "\n")


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
