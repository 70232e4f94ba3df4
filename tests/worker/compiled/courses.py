"""The rows of the grid: what a session goes through, and how close two ways to run it must be."""

from tests.worker.compiled.life import FIRST_RESET, MODEL, Course

# Two resets and a full window after them.
CYCLE = FIRST_RESET + MODEL.reset_period + MODEL.window

FORMATS = ("write_time_bf16", "write_time_fp8", "recompute")
FORMS = ("unfused", "fused")
RESETS = ("delta_window", "delta_sinks", "rebuild")

# E1 for what is held in float32: the order of the sums. E2 for e4m3: a last bit before the cast
# may become a step, and every later frame sees it.
E1, E2 = 1e-5, 0.05


def bound(course: Course) -> float:
    """E2 as soon as any step is held in FP8."""
    chosen = [course.flags, *course.flips.values()]
    return E2 if any(f.get("kv_cache") == "write_time_fp8" for f in chosen) else E1


def courses() -> dict[str, Course]:
    """All rows by name."""
    rows: dict[str, Course] = {}
    for kv_cache in FORMATS:
        for form in FORMS:
            flags = {"kv_cache": kv_cache, "pre_attention": form}
            rows[f"fill-{kv_cache}-{form}"] = Course(num_steps=MODEL.window, flags=flags)
            rows[f"wrap-{kv_cache}-{form}"] = Course(num_steps=FIRST_RESET, flags=flags)
            for reset in RESETS:
                chosen = {**flags, "position_reset": reset}
                rows[f"reset-{reset}-{kv_cache}-{form}"] = Course(num_steps=CYCLE, flags=chosen)
    rows["flip"] = FLIPS
    return rows


# Every format to every other, on both sides of a reset, in both forms.
FLIPS = Course(
    num_steps=CYCLE + 2,
    flips={
        1: {"pre_attention": "fused"},
        2: {"kv_cache": "write_time_fp8"},
        4: {"kv_cache": "recompute"},
        5: {"kv_cache": "write_time_fp8", "pre_attention": "unfused"},
        6: {"kv_cache": "write_time_bf16", "position_reset": "delta_sinks"},
        7: {"pre_attention": "fused"},
        8: {"kv_cache": "write_time_fp8", "position_reset": "rebuild"},
        10: {"kv_cache": "recompute"},
        11: {"kv_cache": "write_time_bf16"},
    },
)
# What `make test` takes of the grid; `make test-all` takes all of it.
FEW = (
    "fill-write_time_bf16-fused",
    "wrap-write_time_bf16-unfused",
    "reset-delta_window-write_time_bf16-fused",
    "reset-delta_sinks-write_time_fp8-fused",
    "reset-rebuild-write_time_bf16-fused",
    "flip",
)
