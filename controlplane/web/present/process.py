"""What a worker's newest process window says of its steps, its clamped numbers and its GPUs."""

from controlplane.contract import vocabulary
from controlplane.contract.telemetry import Clamps, GpuReading, StepTimes
from controlplane.store.session_views import ProcessView
from controlplane.web.present import words


def facts(process: ProcessView) -> tuple[tuple[str, str], ...]:
    """Names and sentences; of what the worker does not tell there is none."""
    found = []
    if process.steps and process.steps.num_steps:
        found += [("steps", _steps(process.steps)), ("mean of a step", _parts(process.steps))]
    if process.clamps:
        found.append(("clamped to FP8", _clamps(process.clamps)))
    if process.power_w is not None:
        found.append(("power", f"{process.power_w:.0f} W"))
    found += [(f"GPU {gpu.index}", _gpu(gpu)) for gpu in process.gpus or ()]
    return tuple(found)


def _steps(steps: StepTimes) -> str:
    # A count and no share: rounded, 99.97 % would hide the late ones.
    return (
        f"{steps.num_steps:,} in this incarnation, {steps.num_late:,} of them longer than"
        f" {vocabulary.STEP_DEADLINE_MS:.1f} ms"
    )


def _parts(steps: StepTimes) -> str:
    means = {
        "diffusion": steps.diffusion_ms / steps.num_steps,
        "decoder": steps.decoder_ms / steps.num_steps,
        "encoder": steps.encode_ms / steps.num_steps,
    }
    reduce_ms = steps.reduce_ms / steps.num_steps
    told = ", ".join(f"{name} {mean:.1f} ms" for name, mean in means.items())
    return f"{sum(means.values()):.1f} ms: {told}; {reduce_ms:.1f} ms of the diffusion in sums"


def _clamps(clamps: Clamps) -> str:
    total = f"{clamps.num_keys:,} of keys, {clamps.num_values:,} of values"
    if not clamps.worst:
        return total
    worst = clamps.worst[0]
    most = worst.num_keys + worst.num_values
    return f"{total}; most in block {worst.block}, head {worst.head}: {most:,}"


def _gpu(gpu: GpuReading) -> str:
    told = []
    if gpu.power_w is not None:
        told.append(f"{gpu.power_w:.0f} W")
    if gpu.sm_clock_mhz is not None:
        told.append(f"{gpu.sm_clock_mhz:.0f} MHz")
    if gpu.memory_used_bytes is not None:
        told.append(f"{words.size(gpu.memory_used_bytes)} used")
    if gpu.throttle_reasons:
        told.append("held down by " + ", ".join(map(words.spoken, gpu.throttle_reasons)))
    return ", ".join(told) or words.NOTHING
