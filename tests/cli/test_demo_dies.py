"""`steadyframe demo` whose control plane goes away: it fails, with the end of every log."""

import pytest

from controlplane.cli.demo import command
from controlplane.cli.demo import stage as stages
from controlplane.cli.demo.screen import PlainScreen
from controlplane.cli.demo.show import Show
from controlplane.cli.exits import CliError, Exit


def test_a_control_plane_that_dies_mid_way_ends_the_demo_with_the_end_of_its_log() -> None:
    """Its folder goes with it: what is not told then cannot be looked up."""
    with stages.opened() as stage:
        show = Show(stage, PlainScreen(now=stage.clock.now))
        stage.start_server(wait=show.wait)
        stage.kill_server()
        with pytest.raises(CliError) as ended, command.explained(stage):
            show.hold(60)
    assert ended.value.exit_code is Exit.DEMO_FAILED
    assert "killed by SIGKILL" in str(ended.value)
    assert "--- control-plane.log" in ended.value.detail
    assert "server_started" in ended.value.detail
    assert ended.value.next_step


@pytest.mark.parametrize(
    "exit_code",
    [Exit.REFUSED, Exit.CONFLICT, Exit.SERVER_AWAY, Exit.SERVER_FAULT, Exit.DEMO_FAILED],
)
def test_whatever_ends_the_demo_early_is_the_demo_that_failed(exit_code: Exit) -> None:
    """A script that runs it branches on 9, not on what happened to answer 5 or 7 inside."""
    with stages.opened() as stage, pytest.raises(CliError) as ended, command.explained(stage):
        raise CliError("no answer", exit_code=exit_code)
    assert ended.value.exit_code is Exit.DEMO_FAILED
    assert "no answer" in str(ended.value)


def test_an_interrupted_demo_is_no_failure() -> None:
    with stages.opened() as stage, pytest.raises(CliError) as ended, command.explained(stage):
        raise CliError("interrupted", exit_code=Exit.INTERRUPTED)
    assert ended.value.exit_code is Exit.INTERRUPTED


def test_a_kept_demo_whose_control_plane_dies_ends_as_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stages.opened() as stage:
        show = Show(stage, PlainScreen(now=stage.clock.now))
        stage.start_server(wait=show.wait)
        stage.kill_server()
        assert not command._keep(stage)
    told = capsys.readouterr().err
    assert "bin/activate" in told
    assert "--- control-plane.log" in told
