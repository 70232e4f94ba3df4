"""What makes the host wait inside a step is found, and a clean step is left in peace."""

# ruff: noqa: N803 - shape suffixes in names; the legend is in `worker.model.transformer`

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from tests.worker.probes import faults
from worker import flags as flag_registry
from worker.probes import synchronisation
from worker.probes.check import Check, Verdict
from worker.probes.subject import Subject
from worker.probes.synchronisation import CudaWaits, DeviceWaits, HostReads


class FakeDevice:
    """Waits at a read, as a GPU does."""

    def why_not(self, latent_GC: Tensor) -> str:
        del latent_GC
        return ""

    @contextmanager
    def watched(self) -> Iterator[None]:
        with HostReads() as reads:
            yield
        if reads.seen:
            raise RuntimeError("called a synchronizing CUDA operation")


def _found(subject: Subject, device: DeviceWaits | None = None) -> dict[str, Check]:
    checks = synchronisation.run(subject, seed=7, device=device or FakeDevice())
    return {check.name.rpartition("/")[2]: check for check in checks}


@pytest.mark.parametrize("pre_attention", flag_registry.PRE_ATTENTION.variants)
@pytest.mark.parametrize("position_reset", flag_registry.POSITION_RESET.variants)
@pytest.mark.parametrize("kv_cache", flag_registry.KV_CACHE.variants)
def test_no_step_of_ours_reads_a_number_back(
    kv_cache: str, position_reset: str, pre_attention: str
) -> None:
    """The calibration of FP8 does, once a session between two steps, and is left out."""
    subject = faults.subject(
        kv_cache=kv_cache, position_reset=position_reset, pre_attention=pre_attention
    )
    found = _found(subject)
    assert [check.verdict for check in found.values()] == [Verdict.PASS, Verdict.PASS]


def test_an_item_in_a_kernel_is_found_by_both_detectors() -> None:
    found = _found(faults.with_op(faults.reads_back))
    assert [check.verdict for check in found.values()] == [Verdict.FAIL, Verdict.FAIL]
    # 4 passes through 2 blocks, in each of the 7 steps up to the one after the first reset.
    assert found["operations"].value == 4 * 2 * 7
    assert "56 x aten::item" in found["operations"].detail
    assert "synchronizing" in found["device"].detail


def test_a_mask_as_an_index_is_found() -> None:
    assert _found(faults.with_op(faults.selects))["operations"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: int(x.sum()),
        lambda x: float(x.max()),
        lambda x: x.nonzero(),
        lambda x: torch.equal(x, x),
        lambda x: x[x > 0],
        lambda x: x.index_put_((x > 0,), torch.zeros(())),
        lambda x: x.masked_select(x > 0),
        lambda x: x.unique(),
    ],
)
def test_every_way_to_read_a_number_back_is_known(read: object) -> None:
    assert callable(read)
    numbers = torch.ones(3)
    with HostReads() as reads:
        read(numbers)
    assert reads.seen.total() >= 1


def test_what_a_device_does_by_itself_is_no_read() -> None:
    numbers = torch.ones(3, 3)
    with HostReads() as reads:
        numbers[torch.tensor([0, 2])].add_(1).softmax(dim=0)
        numbers.masked_fill_(numbers > 0, 2)
        torch.where(numbers > 0, numbers, 0)
    assert reads.seen.total() == 0


def test_without_a_device_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    check = _found(faults.subject(), CudaWaits())["device"]
    assert check.verdict is Verdict.UNMEASURED
    assert check.detail == "this machine has no CUDA device"


@pytest.mark.cuda
def test_the_detector_of_cuda_finds_an_item_and_leaves_a_product_in_peace() -> None:
    numbers = torch.ones(8, 8, device="cuda")
    assert CudaWaits().why_not(numbers) == ""
    with CudaWaits().watched():
        product = numbers @ numbers
    with pytest.raises(RuntimeError, match="synchroniz"), CudaWaits().watched():
        product.sum().item()
    assert product.sum().item() == 512  # the mode of before came back


@pytest.mark.cuda
def test_a_step_that_does_not_use_the_device_is_not_called_clean() -> None:
    assert "computes on cpu" in CudaWaits().why_not(torch.ones(1))
