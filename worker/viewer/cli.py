"""`python -m worker.viewer --url ws://HOST:PORT --sessions N --seconds S --lengths A,B --json`."""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from controlplane.contract import vocabulary
from worker.viewer import drive, script
from worker.viewer.drive import Plan, Summary
from worker.viewer.playback import Reading
from worker.viewer.session import Seen

T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; ends the process with 1 if a session never began."""
    options = _parser().parse_args(arguments)
    plan = Plan(
        num_sessions=options.sessions,
        seconds=options.seconds,
        lengths=options.lengths,
        prompt=options.prompt,
        lines=options.lines,
        pauses=options.pauses,
        num_start_chunks=options.start_chunks,
        receive_bytes=options.receive_bytes,
        seed=options.seed,
        patience_s=options.patience,
        is_synthetic=not options.live,
    )
    on_seen = _say_session if options.json_lines else _say_nothing
    summary = asyncio.run(drive.drive(options.url, plan, on_seen=on_seen))
    if not options.json_lines:
        _say(json.dumps(report(summary), indent=1) if options.json else _sentences(summary))
    sys.exit(1 if summary.errors else 0)


def report(summary: Summary) -> dict[str, Any]:
    """The summary as JSON values."""
    rates = [seen.fps for seen in summary.seen if seen.fps is not None]
    return {
        "num_sessions": len(summary.seen),
        "num_slow": sum(vocabulary.is_slow(fps) for fps in rates),
        "lowest_fps": min(rates, default=None),
        "errors": summary.errors,
        "sessions": [_session_fields(seen) for seen in summary.seen],
    }


def _session_fields(seen: Seen) -> dict[str, Any]:
    return {
        "session": seen.session,
        "first_forward_length": seen.first_forward_length,
        "flags": dict(seen.flags),
        "fps": seen.fps,
        "num_frames": seen.num_frames,
        "num_first_chunk_frames": seen.num_first_chunk_frames,
        "streamed_s": seen.streamed_s,
        "first_frame_ms": seen.first_frame_ms,
        "longest_gap_ms": seen.longest_gap_ms,
        "num_late_chunks": seen.num_late_chunks,
        "longest_stall_ms": seen.longest_stall_ms,
        "num_step_gaps": seen.num_step_gaps,
        "playback": _playback_fields(seen.playback),
        "paused_s": seen.paused_s,
        "prompt_steps": list(seen.prompt_steps),
        "rejections": [dict(rejection) for rejection in seen.rejections],
        "outcome": seen.outcome,
        "reason": seen.reason,
    }


def _playback_fields(reading: Reading) -> dict[str, Any]:
    return {
        "num_stalls": len(reading.stalls),
        "stalled_s": reading.stalled_s,
        "longest_stall_ms": reading.longest_stall_s * 1000,
        "lowest_level": reading.lowest_level,
        "level": reading.level,
    }


def _sentences(summary: Summary) -> str:
    lines = [
        f"{seen.session}  {_rate(seen)}  {seen.num_frames} frames  {seen.outcome}"
        for seen in summary.seen
    ]
    return "\n".join([*lines, *(f"never began: {error}" for error in summary.errors)])


def _rate(seen: Seen) -> str:
    return "no rate" if seen.fps is None else f"{seen.fps:.2f} fps"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m worker.viewer", description=__doc__)
    parser.add_argument("--url", required=True, help="ws://HOST:PORT of a worker")
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="to watch of each session")
    parser.add_argument("--lengths", type=_read(_lengths, "TOKENS,TOKENS,..."), default=[16],
                        help="tokens, e.g. 8,40,128")  # fmt: skip
    parser.add_argument("--prompt", help="words that every session begins with, not a length")
    _add_script(parser)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to ask a busy worker")
    parser.add_argument("--live", action="store_true", help="count as a person's sessions")
    parser.add_argument("--json", action="store_true", help="one report at the end")
    parser.add_argument("--json-lines", action="store_true", help="a line as each session ends")
    return parser


def _add_script(parser: argparse.ArgumentParser) -> None:
    """What a viewer does at given steps; each may be given several times."""
    for name, line, form in (
        ("--prompt-at", script.prompt_line, "STEP:WORDS"),
        ("--audio-at", script.audio_line, "STEP:NUMBER,NUMBER,..."),
        ("--control-at", script.control_line, "STEP:NUMBER,NUMBER,..."),
    ):
        parser.add_argument(
            name, type=_read(line, form), dest="lines", action="append", default=[], metavar=form
        )
    form = "STEP:SECONDS"
    parser.add_argument(
        "--pause-at", type=_read(script.pause, form), dest="pauses", action="append", default=[],
        metavar=form, help="read nothing for so long",
    )  # fmt: skip
    parser.add_argument("--receive-bytes", type=int, help="of its socket, to be a slow viewer")
    parser.add_argument(
        "--start-chunks", type=int, default=1, help="that the modelled player waits for"
    )


def _read(parse: Callable[[str], T], form: str) -> Callable[[str], T]:
    """`parse`, with an error that says what is allowed."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            message = f"{text!r}; allowed: {form}"
            raise argparse.ArgumentTypeError(message) from error

    return read


def _lengths(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _say_session(seen: Seen) -> None:
    _say(json.dumps(_session_fields(seen)))


def _say_nothing(_seen: Seen) -> None:
    """The report at the end says it all."""


def _say(text: str) -> None:
    """The one place where the command speaks; at once, since another program may be reading."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
