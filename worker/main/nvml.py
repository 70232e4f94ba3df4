"""GPUs by NVIDIA's management library, through `nvidia-ml-py`: the extra `gpu`, imported late.

The library counts every GPU of the host. Those of this worker are the ones that CUDA shows its
ranks, so that the power of a neighbour is never counted here.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from worker.main.gpus import Board, GpuError

VISIBLE = "CUDA_VISIBLE_DEVICES"
# The library's constants, in our words.
REASONS = {
    "GpuIdle": "gpu_idle",
    "ApplicationsClocksSetting": "clocks_setting",
    "SwPowerCap": "sw_power_cap",
    "HwSlowdown": "hw_slowdown",
    "SyncBoost": "sync_boost",
    "SwThermalSlowdown": "sw_thermal_slowdown",
    "HwThermalSlowdown": "hw_thermal_slowdown",
    "HwPowerBrakeSlowdown": "hw_power_brake_slowdown",
    "DisplayClockSetting": "display_clock_setting",
}
# All that is asked of it.
CALLS = (
    "nvmlInit",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetCurrentClocksEventReasons",
)
_WATTS_PER_MILLIWATT = 1e-3


def boards() -> Sequence[Board]:
    """The GPUs of this worker. Raises: GpuError where library, driver or one of them is absent."""
    wanted = visible(os.environ)
    library = _library()
    library.call("nvmlInit")
    if wanted is None:
        wanted = tuple(str(number) for number in range(library.call("nvmlDeviceGetCount")))
    return [_Nvml(library, _handle(library, name)) for name in wanted]


def visible(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Numbers or ids of the GPUs that CUDA shows; None: all of them.

    Numbers are taken as the library counts, by bus; CUDA counts so with
    `CUDA_DEVICE_ORDER=PCI_BUS_ID`, and without on a host whose GPUs are all of one kind.
    Raises: GpuError if an entry is neither.
    """
    told = environment.get(VISIBLE)
    if told is None:
        return None
    names = tuple(name.strip() for name in told.split(",") if name.strip())
    if names[:1] == ("-1",):
        return ()
    for name in names:
        if not (name.isascii() and name.isdigit()) and not name.startswith(("GPU-", "MIG-")):
            message = (
                f"{VISIBLE} has {name!r}; allowed: numbers, or ids that begin with GPU- or MIG-"
            )
            raise GpuError(message)
    return names


class _Library:
    """`pynvml`, with one kind of error."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def call(self, function: str, *arguments: Any) -> Any:
        """What `function` answers. Raises: GpuError."""
        assert function in CALLS, f"{function} is not among the calls that are proven to exist"
        try:
            return getattr(self.module, function)(*arguments)
        except self.module.NVMLError as error:
            message = f"{function}: {error}"
            raise GpuError(message) from error


def _library() -> _Library:
    try:
        import pynvml
    except ImportError as error:
        message = "nvidia-ml-py is not installed; it comes with the extra `gpu`"
        raise GpuError(message) from error
    return _Library(pynvml)


def _handle(library: _Library, name: str) -> Any:
    if name.isdigit():
        return library.call("nvmlDeviceGetHandleByIndex", int(name))
    return library.call("nvmlDeviceGetHandleByUUID", name)


class _Nvml:
    """One GPU; see `Board`."""

    def __init__(self, library: _Library, handle: Any) -> None:
        self._library, self._handle = library, handle
        self.index: int = self._ask("nvmlDeviceGetIndex")

    def power_w(self) -> float:
        """See `Board.power_w`."""
        return float(self._ask("nvmlDeviceGetPowerUsage")) * _WATTS_PER_MILLIWATT

    def sm_clock_mhz(self) -> float:
        """See `Board.sm_clock_mhz`."""
        return float(self._ask("nvmlDeviceGetClockInfo", self._library.module.NVML_CLOCK_SM))

    def memory_used_bytes(self) -> int:
        """See `Board.memory_used_bytes`."""
        return int(self._ask("nvmlDeviceGetMemoryInfo").used)

    def throttle_reasons(self) -> list[str]:
        """See `Board.throttle_reasons`."""
        return reasons(
            self._ask("nvmlDeviceGetCurrentClocksEventReasons"),
            constant=lambda name: getattr(self._library.module, f"nvmlClocksEventReason{name}"),
        )

    def _ask(self, function: str, *arguments: Any) -> Any:
        return self._library.call(function, self._handle, *arguments)


def reasons(bits: int, *, constant: Callable[[str], int]) -> list[str]:
    """The reasons in `bits`, in our words; a bit that is newer than these words by its number."""
    known = {constant(name): word for name, word in REASONS.items()}
    set_bits = (1 << place for place in range(64) if bits >> place & 1)
    return [known.get(bit, f"bit_{bit.bit_length() - 1}") for bit in set_bits]
