"""What the worker may be asked for, and how it says no."""

import json
from dataclasses import replace

import pytest

from worker import config, flags


def test_what_is_left_out_is_at_its_fallback() -> None:
    """A worker asked for nothing runs the fallback: what holds the deadline, not the oracle."""
    assert flags.resolved({}, has_demo_variants=False) == {
        "fused_allreduce": "nccl",
        "kv_cache": "write_time_bf16",
        "position_reset": "delta_window",
        "pre_attention": "unfused",
        "decoder": "dedicated",
        "execution": "eager",
    }


def test_every_oracle_and_every_fallback_can_be_asked_for() -> None:
    """Without the variants for demonstrations."""
    for asked in (flags.plain(), flags.fallback()):
        assert flags.resolved(asked, has_demo_variants=False) == asked


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"kv_cash": "ring"},
            (f"unknown flag 'kv_cash' (variant 'ring'); allowed: {', '.join(flags.REGISTRY)}"),
        ),
        (
            {"fused_allreduce": "fused"},
            "flag 'fused_allreduce' has no variant 'fused'; allowed: nccl, fused_steady, fused_all",
        ),
        (
            {"fused_allreduce": "fused_small_tiles"},
            (
                "flag 'fused_allreduce' has no variant 'fused_small_tiles'; "
                "allowed: nccl, fused_steady, fused_all"
            ),
        ),
    ],
)
def test_unknown_words_are_refused_with_what_is_allowed(
    asked: dict[str, str], sentence: str
) -> None:
    """Never a silent default; variants for demonstrations are unknown in production."""
    with pytest.raises(flags.UnknownFlagError) as refused:
        flags.resolved(asked, has_demo_variants=False)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("running", ["dedicated", "shared"])
def test_only_a_flag_that_applies_at_a_restart_waits_for_one(running: str) -> None:
    """What is left out is at its fallback, here as everywhere."""
    now = flags.fallback() | {"decoder": running}
    asked = {"fused_allreduce": "fused_steady", "kv_cache": "write_time_fp8"}
    for wanted in (asked, asked | {"decoder": "dedicated"}, asked | {"decoder": "shared"}):
        waits = wanted.get("decoder", "dedicated") != running
        assert flags.need_restart(wanted, running=now) == (("decoder",) if waits else ())
        taken = flags.until_restart(wanted, running=now)
        assert flags.need_restart(taken, running=now) == ()
        assert taken.items() >= asked.items()


@pytest.mark.parametrize(
    ("name", "variant"),
    [(flag.name, variant) for flag in flags.REGISTRY.values() for variant in flag.variants],
)
def test_a_set_of_flags_survives_its_word(name: str, variant: str) -> None:
    """The word is what a step plan carries."""
    asked = flags.fallback() | {name: variant}
    assert flags.from_word(flags.word(asked)) == asked


def test_the_digest_tells_sets_apart_and_ignores_their_order() -> None:
    """It is how two ranks are compared."""
    assert flags.digest({"a": "1", "b": "2"}) == flags.digest({"b": "2", "a": "1"})
    assert flags.digest({"a": "1"}) != flags.digest({"a": "2"})


@pytest.mark.parametrize("preset", sorted(config.PRESETS))
def test_a_configuration_survives_its_trip_to_the_fork_server(preset: str) -> None:
    """The ranks must be built from what the supervisor holds."""
    fault = config.Injection(kind=config.InjectedFault.NAN, rank=1)
    held = replace(config.PRESETS[preset](), faults=(fault,))
    assert config.from_fields(json.loads(json.dumps(config.to_fields(held)))) == held


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_ranks", 5),
        ("group_timeout_s", 0.0),
        ("memory_headroom_bytes", 5),
        ("max_chunks_ahead", 0),
        ("jpeg_quality", 100),
        ("compile_timeout_s", 0.0),
        ("compile_backend", "eager"),
    ],
)
def test_a_worker_value_that_is_not_allowed_is_named(key: str, value: object) -> None:
    """Key, value and what is allowed."""
    with pytest.raises(config.ConfigError, match=f"{key} is {value!r}; allowed: "):
        config.from_fields({**config.to_fields(config.tiny()), key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_heads", 7),
        ("rope_split", (8, 4, 2)),
        ("reset_period", 4),
        ("num_passes", 0),
        ("first_forward_bounds", (0, 4)),
        ("cache_dtype", "float8"),
        ("pixels_per_token", 12),
        ("decoder", "large"),
        ("decoder_widths", (16, 8)),
        ("decoder_widths", (16, 8, 0)),
    ],
)
def test_a_model_value_that_is_not_allowed_is_named(key: str, value: object) -> None:
    """Before any process is forked."""
    with pytest.raises(config.ConfigError) as refused:
        replace(config.TINY_MODEL, **{key: value})  # type: ignore[arg-type]  # wrong on purpose
    assert (refused.value.key, refused.value.value) == (key, value)


def test_a_checkpoint_survives_the_trip_to_the_fork_server() -> None:
    """With a digest and without one."""
    for digest in (None, "0123456789abcdef" * 4):
        source = config.CheckpointSource(folder="/weights", digest=digest)
        held = replace(config.tiny(), checkpoint=source)
        assert config.from_fields(json.loads(json.dumps(config.to_fields(held)))) == held


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("folder", "weights"),
        ("folder", ""),
        ("digest", ""),
        ("digest", "0" * 63),
        ("digest", "A" * 64),
        ("digest", "0" * 64 + "\n"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_refused_by_key(key: str, value: str) -> None:
    """The fork server may stand in another folder; a digest that is none would match nothing."""
    with pytest.raises(config.ConfigError, match=f"checkpoint.{key} is ") as refused:
        config.CheckpointSource(**{"folder": "/weights", key: value})
    assert refused.value.value == value
