"""What makes the host wait for a device inside a step: one `.item()` in a kernel costs 109.5 ms.

Two detectors. One watches the operations of a step, runs everywhere, and knows those that have to
read a number back. The other is the device's own and sees every wait; it needs a GPU. Neither
looks at what is once a step or rarer by design: the leader's check that a latent is finite comes
after the step, and the calibration of FP8 is once a session.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from worker.probes import check
from worker.probes.check import Check, Verdict
from worker.probes.numerics import PROMPT_LENGTH
from worker.probes.subject import Drive, Subject

# They answer with a number, or with a shape that depends on numbers: the host has to have them.
# `.item()`, `bool()`, `int()`, `float()` of a tensor and `if tensor:` all are the first.
_READS = frozenset(
    {
        "aten::_local_scalar_dense",
        "aten::item",
        "aten::is_nonzero",
        "aten::equal",
        "aten::nonzero",
        "aten::nonzero_numpy",
        "aten::argwhere",
        "aten::masked_select",
        "aten::_unique2",
        "aten::unique_dim",
        "aten::unique_consecutive",
        "aten::bincount",
        "aten::repeat_interleave",
        "aten::allclose",
    }
)
_INDEXING = frozenset(
    {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
)


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves it untyped
    """Counts the operations within that a device would have to be waited for.

    A copy to the host is none here: on a machine without a device there is nothing to copy from.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # as above
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Note `func` and run it."""
        del types
        name = func.name().partition(".")[0]
        if name in _READS or (name in _INDEXING and _has_mask(args[1])):
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


class DeviceWaits(Protocol):
    """The detector of a device."""

    def why_not(self, latent_GC: Tensor) -> str:  # noqa: N803 - shape suffix
        """Why a step that made `latent_GC` cannot be watched; empty if it can."""
        ...

    def watched(self) -> AbstractContextManager[None]:
        """Within, whatever waits for the device raises RuntimeError."""
        ...


class CudaWaits:
    """That of CUDA."""

    def why_not(self, latent_GC: Tensor) -> str:  # noqa: N803 - shape suffix
        """Without a CUDA device, or a step that does not use it, nothing would be seen."""
        if not torch.cuda.is_available():
            return "this machine has no CUDA device"
        if not latent_GC.is_cuda:
            return f"the step computes on {latent_GC.device}, where nothing waits for CUDA"
        return ""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See `DeviceWaits.watched`; the mode of before comes back."""
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def run(subject: Subject, *, seed: int, device: DeviceWaits) -> list[Check]:
    """Both detectors over a session that fills, wraps and resets."""
    return [_operations(subject, seed=seed), _waits(subject, seed=seed, device=device)]


def _operations(subject: Subject, *, seed: int) -> Check:
    drive = Drive(subject, seed=seed, length=PROMPT_LENGTH)
    seen: Counter[str] = Counter()
    num_watched = 0
    for _ in range(_num_steps(subject)):
        was = drive.session.format
        with HostReads() as reads:
            drive.step()
        if drive.session.format is was:
            seen += reads.seen
            num_watched += 1
    told = ", ".join(f"{number} x {name}" for name, number in seen.most_common(5))
    detail = f"operations in {num_watched} steps that read a number back" + f": {told}" * bool(told)
    return check.held("synchronisation/operations", seen.total(), bound=0, detail=detail)


def _waits(subject: Subject, *, seed: int, device: DeviceWaits) -> Check:
    name = "synchronisation/device"
    drive = Drive(subject, seed=seed, length=PROMPT_LENGTH)
    # The first steps convert and calibrate, which may wait.
    for _ in range(subject.model.window):
        latent_GC = drive.step()  # noqa: N806 - shape suffix
    if why_not := device.why_not(latent_GC):
        return check.unmeasured(name, why_not)
    num_steps = _num_steps(subject) - subject.model.window
    try:
        with device.watched():
            for _ in range(num_steps):
                drive.step()
    except RuntimeError as error:
        return Check(name=name, verdict=Verdict.FAIL, detail=str(error)[:500])
    return check.held(name, 0, bound=0, detail=f"waits in {num_steps} steps")


def _num_steps(subject: Subject) -> int:
    """Until a step after the first reset."""
    return subject.model.reset_period + subject.model.window + 2


def _has_mask(indices: Any) -> bool:
    return any(isinstance(index, Tensor) and index.dtype == torch.bool for index in indices)
