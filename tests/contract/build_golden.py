"""Values behind the golden files: one full example of every message and record.

A file is the contract; this is only where it is written from when the contract is meant to change:
`python -m tests.contract.build_golden`.
"""

from pathlib import Path

from pydantic import BaseModel

from controlplane.contract.messages import (
    Arm,
    BreakerTrip,
    DesiredState,
    EffectiveReport,
    Experiment,
    FlagReason,
    LengthProbe,
    Probe,
    ProbeReport,
    RankReport,
    Registration,
)
from controlplane.contract.records import (
    LengthBytes,
    ProcessWindow,
    Segment,
    SessionEnded,
    SessionStarted,
    SessionWindow,
)
from controlplane.contract.telemetry import Clamps, GpuReading, HeadClamps, StepTimes
from controlplane.contract.vocabulary import Outcome, Reason

FOLDER = Path(__file__).parent / "golden"
FALLBACK = {"fused_allreduce": "nccl"}
FAST = {"fused_allreduce": "fused_steady"}
DIGEST = "0123456789abcdef"

RANK = RankReport(
    rank=1, generation=17, digest=DIGEST, step=4242, flag_bytes={"fused_allreduce": 8}
)
EXPERIMENT = Experiment(
    canary="c-17",
    salt="s-17",
    arms=[
        Arm(name="canary", share=0.5, flags=FAST),
        Arm(name="control", share=0.5, flags=FALLBACK),
    ],
)
PROBE = Probe(
    id="c-17-2",
    canary="c-17",
    flag="fused_allreduce",
    flags=FAST,
    lengths=[8, 64, 120],
    seed=5,
    retained_at_most=1_048_576,
)
COUNTERS = {
    "seq": 9,
    "generation": 17,
    "session": "018f-session",
    "flags": FAST,
    "canary": "c-17",
    "arm": "canary",
    "first_forward_length": 77,
    "is_synthetic": True,
    "num_frames": 2880,
    "num_first_chunk_frames": 4,
    "streamed_s": 119.5,
    "viewer_wait_s": 0.25,
    "num_late_chunks": 3,
    "longest_stall_ms": 96.5,
    "worst_second_frames": 20,
    "num_steps": 720,
    "num_non_compliant_steps": 2,
    "diffusion_ms_mean": 162.5,
    "reduce_ms_mean": 11.25,
    "decoder_ms_mean": 9.5,
    "encode_ms_mean": 1.5,
}
STARTED = ("seq", "generation", "session", "flags", "canary", "arm", "first_forward_length")

GOLDEN: dict[str, BaseModel] = {
    "registration": Registration(
        fleet="video-eu", worker="w-3", incarnation="i-3", hardware="h100x4",
        stack={"torch": "2.13.0", "nccl": "2.29"}, generation=16, flags=FALLBACK,
        capabilities={"fused_allreduce": ["nccl", "fused_steady"]}, address="ws://10.0.0.3:9000",
    ),
    "desired_state": DesiredState(
        fleet="video-eu", worker="w-3", generation=17, flags=FALLBACK, lease_s=90.0,
        experiment=EXPERIMENT, probe=PROBE, is_admitting=True, is_draining=False,
        reasons=[
            FlagReason(flag="fused_allreduce", variant="nccl", layer="fallback", reason="base")
        ],
    ),
    "effective_report": EffectiveReport(
        incarnation="i-3", generation=17, flags=FAST, ranks=[RANK], is_lease_lapsed=False,
        is_break_glass=False, refused="",
    ),
    "breaker_trip": BreakerTrip(
        incarnation="i-3", trip="t-1", reason=Reason.NAN, flags=FAST, generation=17, rank=1,
        session="018f-session", canary="c-17", detail="rank 1: not finite after block 2",
    ),
    "probe_report": ProbeReport(
        incarnation="i-3", probe="c-17-2", canary="c-17",
        lengths=[LengthProbe(length=8, retained_bytes=16_777_216)], flag_bytes_before=8,
        rollback_ms=41.5, flag_bytes_left=8, fault=Reason.OUT_OF_MEMORY, detail="rank 0",
    ),
    "session.started": SessionStarted.model_validate(
        {**{key: COUNTERS[key] for key in STARTED}, "is_synthetic": True}
    ),
    "session.window": SessionWindow.model_validate(COUNTERS),
    "session.ended": SessionEnded.model_validate(
        {
            **COUNTERS, "outcome": Outcome.FAILED, "reason": Reason.NAN, "detail": "block 2",
            "segments": [
                Segment(flags=FALLBACK, num_frames=880, streamed_s=36.5),
                Segment(flags=FAST, num_frames=2000, streamed_s=83.0),
            ],
        }
    ),
    "process.window": ProcessWindow(
        seq=10, generation=17, resident_bytes=3_000_000_000, limit_bytes=4_000_000_000,
        flag_bytes={"fused_allreduce": 8}, lengths=[LengthBytes(length=77, retained_bytes=8)],
        num_sessions_started=5, power_w=612.5,
        steps=StepTimes(
            num_steps=721, num_at_most=[0, *range(1, 19), 720], diffusion_ms=108_000.5,
            reduce_ms=8_000.25, decoder_ms=1_100.5, encode_ms=360.5,
        ),
        clamps=Clamps(
            num_keys=41, num_values=3,
            worst=[HeadClamps(block=2, head=59, num_keys=40, num_values=0)],
        ),
        gpus=[
            GpuReading(
                index=0, power_w=612.5, sm_clock_mhz=1755.0, memory_used_bytes=70_000_000_000,
                throttle_reasons=["sw_power_cap"],
            )
        ],
    ),
}  # fmt: skip


def text(value: BaseModel) -> str:
    """The file's content."""
    return value.model_dump_json(indent=1) + "\n"


if __name__ == "__main__":
    for name, value in GOLDEN.items():
        (FOLDER / f"{name}.json").write_text(text(value))
