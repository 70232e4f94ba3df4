"""Plays the scenes and tells how they ended: the body of `steadyframe demo`."""

import json
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from controlplane.cli import importing, output, sample
from controlplane.cli.demo import scenes, story
from controlplane.cli.demo import stage as stages
from controlplane.cli.demo import summary as summaries
from controlplane.cli.demo.scenes import Scene
from controlplane.cli.demo.screen import LiveScreen, PlainScreen, Screen
from controlplane.cli.demo.show import SceneFailedError, Show
from controlplane.cli.demo.stage import Stage
from controlplane.cli.demo.story import SceneResult
from controlplane.cli.demo.summary import Summary
from controlplane.cli.exits import CliError, Exit


def play(*, is_kept: bool, as_json: bool, summary_file: Path | None) -> Exit:
    """Play every scene on a stage of its own. Returns: how it went.

    Raises: CliError: a process of the demo did not start or died.
    """
    with _ending_on_sigterm(), stages.opened() as stage, explained(stage):
        summary = _played(stage, is_live=not as_json and sys.stderr.isatty())
        _tell(summary, as_json=as_json, file=summary_file)
        if not summary.is_as_expected:
            output.say(stage.logs())
        if is_kept and not _keep(stage):
            return Exit.DEMO_FAILED
    return Exit.OK if summary.is_as_expected else Exit.DEMO_FAILED


@contextmanager
def explained(stage: Stage) -> Iterator[None]:
    """Whatever ends the demo before its time, ends it as failed and with the end of every log.

    Its folder is removed with it, so that nothing but what is told here is left.
    """
    try:
        yield
    except CliError as error:
        if error.exit_code is Exit.INTERRUPTED:
            raise
        raise CliError(
            _ended(stage) or str(error),
            exit_code=Exit.DEMO_FAILED,
            detail="\n".join(part for part in (error.detail, stage.logs()) if part),
        ) from error


def _ended(stage: Stage) -> str:
    """That the control plane has ended and how; empty while it runs."""
    code = stage.server_exit_code()
    if code is None:
        return ""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    return f"the demo's control plane {how} before its time"


# On a shared machine a stall of seconds is no rarity; twice in one scene is a machine too busy.
MAX_REPLAYS: Final = 2


def _played(stage: Stage, *, is_live: bool) -> Summary:
    now = stage.clock.now
    screen: Screen = LiveScreen(now=now) if is_live else PlainScreen(now=now)
    show = Show(stage, screen)
    began_s = show.now_s()
    try:
        show.scene("starting the control plane")
        stage.start_server(wait=show.wait)
        show.say(f"the control plane answers at {stage.client.url}")
        _import_sample(show)
        results = tuple(_results(show))
    finally:
        screen.close()
    return Summary(
        scenes=results,
        num_scenes=len(scenes.SCENES),
        took_s=show.now_s() - began_s,
        peak_memory_bytes=show.peak_memory_bytes,
        lowest_healthy_fps=min(
            (each.lowest_healthy_fps for each in results if each.lowest_healthy_fps), default=None
        ),
        num_sessions=len(show.sessions),
        worker_cpu_percent=show.worker_cpu_percent(),
    )


def _import_sample(show: Show) -> None:
    """Seven weeks that are over, so that the report has something to show."""
    content = importing.body(sample.table(), fleet=sample.FLEET, is_sample=True)
    body = {**content, "reason": "the demo's weekly report"}
    show.stage.client.post(importing.PATH, body, timeout_s=importing.TIMEOUT_S)
    show.say(f"{len(content['rows'])} made-up sessions of seven weeks in fleet {sample.FLEET}")


def _results(show: Show) -> Iterator[SceneResult]:
    """The scenes in order, up to the first that ends otherwise than it must."""
    for number, scene in enumerate(scenes.SCENES, start=1):
        title = (scene.__doc__ or "").splitlines()[0]
        show.scene(f"{number}/{len(scenes.SCENES)} {title}")
        result = _result(show, scene, number=number)
        for _ in range(MAX_REPLAYS):
            if not result.is_disturbed:
                break
            # What slows the workers that take no part is the machine: the scene shows nothing.
            show.say("workers that took no part were late, too: the scene is played again")
            scenes.settle(show)
            result = _result(show, scene, number=number)
        yield result
        if not result.is_as_expected:
            return


def _result(show: Show, scene: Scene, *, number: int) -> SceneResult:
    began_s = show.now_s()
    try:
        result = scene(show)
    except SceneFailedError as error:
        result = SceneResult(
            title=f"{number} {scene.__name__}",
            is_as_expected=False,
            outcome="unfinished",
            reason=str(error),
            took_s=show.now_s() - began_s,
            lowest_healthy_fps=story.lowest_fps(show.sessions),
            problems=(str(error),),
        )
    show.say(f"{result.outcome}: {result.reason}")
    return result


def _tell(summary: Summary, *, as_json: bool, file: Path | None) -> None:
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(summary.as_json(), indent=2) + "\n")
    if as_json:
        output.write_json(summary.as_json())
    else:
        summaries.write(summary)


def _keep(stage: Stage) -> bool:
    """Leave everything running until Ctrl-C. Returns: whether that is how it ended."""
    output.say(
        f"\nstill running: open {stage.client.url} and log in with the token in\n"
        f"  {stage.token_file}\n"
        "or in another terminal:\n"
        f"{_activation()}"
        f"  export STEADYFRAME_URL={stage.client.url}\n"
        f"  export STEADYFRAME_TOKEN_FILE={stage.token_file}\n"
        "  steadyframe worker list demo\n"
        "  steadyframe canary list\n"
        f"  steadyframe report weekly --fleet {sample.FLEET} --anchor 2026-10-08\n"
        "Ctrl-C ends it and removes its folder."
    )
    pause = threading.Event()
    try:
        while stage.server_exit_code() is None:
            stage.tend()
            stage.viewers.collect()
            pause.wait(1)
    except KeyboardInterrupt:
        output.say("ending")
        return True
    output.say(f"{_ended(stage)}; the end of every log:\n{stage.logs()}")
    return False


def _activation() -> str:
    """The line that puts `steadyframe` on the path of another shell, where it is in a venv."""
    script = Path(sys.prefix) / "bin" / "activate"
    return f"  source {shlex.quote(str(script))}\n" if script.is_file() else ""


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """A polite kill ends the demo as Ctrl-C does: in order."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
