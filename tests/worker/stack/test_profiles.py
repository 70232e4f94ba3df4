"""What each flag is set to on each hardware."""

import pytest

from worker import flags, profiles
from worker.main import cli

every_profile = pytest.mark.parametrize("hardware", sorted(profiles.PROFILES))


@every_profile
def test_every_flag_has_a_line_that_this_build_can_run_outside_a_demonstration(
    hardware: str,
) -> None:
    """A new flag without a line, or a line for a flag that has gone, would be found here."""
    profile = profiles.of(hardware)
    assert set(profile.defaults) == set(profile.fallback) == set(flags.REGISTRY)
    chosen = {name: default.variant for name, default in profile.defaults.items()}
    for asked in (chosen, dict(profile.fallback)):
        assert flags.resolved(asked, has_demo_variants=False) == asked


@every_profile
def test_nothing_leaves_the_fallback_without_a_measurement(hardware: str) -> None:
    """A default that nobody measured is a guess."""
    profile = profiles.of(hardware)
    for name, default in profile.defaults.items():
        is_fallback = default.variant == profile.fallback[name]
        assert is_fallback or any(letter.isdigit() for letter in default.measurement)


def test_the_right_value_of_one_flag_depends_on_the_hardware() -> None:
    """The FP8 cache: on for H100, off for B200."""
    assert profiles.of("h100x4").defaults["kv_cache"].variant == "write_time_fp8"
    assert profiles.of("b200x3").defaults["kv_cache"].variant == "write_time_bf16"


def test_unknown_hardware_has_every_flag_at_its_fallback() -> None:
    """No figure of other hardware is carried over."""
    profile = profiles.of("mi400x2")
    assert {n: d.variant for n, d in profile.defaults.items()} == flags.fallback()
    assert {d.measurement for d in profile.defaults.values()} == {profiles.UNMEASURED}


def test_the_table_can_be_read_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With the measurement beside each value."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["flags", "--hardware", "h100x4"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for name, default in profiles.of("h100x4").defaults.items():
        assert name in shown
        assert default.variant in shown
        assert default.measurement in shown
