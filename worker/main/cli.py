"""`steadyframe-worker`: run a worker, or look after one on its own machine.

run --config FILE
local status|force-fallback|clear --state-dir DIR [--json]
flags [--hardware NAME] [--json]
checkpoint write FOLDER --preset NAME [--seed N] [--json]
checkpoint verify FOLDER [--digest DIGEST] [--preset NAME] [--json]
probe --preset NAME [--flags NAME=VARIANT,...] [--json]
"""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from worker import flags, profiles
from worker.agent import breakglass
from worker.agent.folder import StateDirInUseError
from worker.config import PRESETS
from worker.engine.engine import WeightsRefusedError
from worker.main import local, probe_command, run, settings
from worker.main.settings import SettingsError
from worker.model.manifest import CheckpointError

EXIT_OK = 0
EXIT_REFUSED = 2
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; ends the process with 0, or with 2 and a sentence on standard error."""
    sys.exit(_main(_parser().parse_args(arguments)))


def _main(options: argparse.Namespace) -> int:
    if options.command == "run":
        return _run(options.config)
    if options.command == "flags":
        return _flags(options.hardware, as_json=options.json)
    if options.command == "checkpoint":
        return _checkpoint(options)
    if options.command == "probe":
        return probe_command.run(options, say=_say)
    return _local(options.action, options.state_dir, as_json=options.json)


def _run(path: Path) -> int:
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    # They log every request and every connection.
    for name in ("httpx", "websockets"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        asyncio.run(run.run(settings.load(path)))
    except (SettingsError, StateDirInUseError, WeightsRefusedError) as error:
        _say(str(error), file_number=2)
        return EXIT_REFUSED
    return EXIT_OK


def _local(action: str, state_dir: Path, *, as_json: bool) -> int:
    if action == "force-fallback":
        breakglass.force(state_dir)
    elif action == "clear":
        breakglass.clear(state_dir)
    fields = asdict(local.status(state_dir))
    if as_json:
        _say(json.dumps(fields, indent=1))
    else:
        _say("\n".join(f"{key:<24} {value}" for key, value in fields.items()))
    return EXIT_OK


def _flags(hardware: str, *, as_json: bool) -> int:
    profile = profiles.of(hardware)
    rows = {
        name: {
            "fallback": profile.fallback[name],
            "default": default.variant,
            "variants": list(flags.REGISTRY[name].variants),
            "applies": flags.REGISTRY[name].applies.value,
            "measurement": default.measurement,
        }
        for name, default in profile.defaults.items()
    }
    if as_json:
        _say(json.dumps({"hardware": profile.hardware, "flags": rows}, indent=1))
        return EXIT_OK
    for name, row in rows.items():
        _say(f"{name:<16} {row['default']:<16} fallback {row['fallback']}")
        _say(f"{'':<16} {row['measurement']}")
    return EXIT_OK


def _checkpoint(options: argparse.Namespace) -> int:
    from worker.main import checkpoints  # imports torch, which takes seconds

    def say(text: str) -> None:
        _say(text, file_number=2)

    try:
        if options.action == "write":
            contents = checkpoints.write(
                options.folder, preset=options.preset, seed=options.seed, say=say
            )
        else:
            contents = checkpoints.verify(
                options.folder, digest=options.digest, preset=options.preset, say=say
            )
    except CheckpointError as error:
        say(f"checkpoint {options.folder}: {error}")
        return EXIT_REFUSED
    fields = asdict(contents)
    if options.json:
        _say(json.dumps(fields, indent=1))
    else:
        _say("\n".join(f"{key:<12} {value}" for key, value in fields.items()))
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="steadyframe-worker", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="serve until SIGTERM")
    run_parser.add_argument("--config", type=Path, required=True, help="JSON file")
    flags_parser = commands.add_parser("flags", help="what each flag is set to on a hardware")
    flags_parser.add_argument("--hardware", default="cpu", help="such as h100x4, b200x3, cpu")
    flags_parser.add_argument("--json", action="store_true")
    _add_checkpoint(commands.add_parser("checkpoint", help="weights as files"))
    probe_command.add_to(commands.add_parser("probe", help="hold a set of flags to the plain path"))
    local_parser = commands.add_parser("local", help="works without a network")
    local_parser.add_argument("action", choices=("status", "force-fallback", "clear"))
    local_parser.add_argument("--state-dir", type=Path, required=True)
    local_parser.add_argument("--json", action="store_true")
    return parser


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    write = actions.add_parser("write", help="the weights of a seed, into an empty folder")
    write.add_argument("--preset", choices=sorted(PRESETS), required=True)
    write.add_argument("--seed", type=_seed, help="else the one that workers draw from")
    verify = actions.add_parser("verify", help="read all of it, and tell its digest")
    verify.add_argument("--digest", help="that it must have")
    verify.add_argument("--preset", choices=sorted(PRESETS), help="that it must be made for")
    for each in (write, verify):
        each.add_argument("folder", type=Path)
        each.add_argument("--json", action="store_true")


def _seed(text: str) -> int:
    seed = int(text)
    if not 0 <= seed < 2**63:
        raise argparse.ArgumentTypeError(f"{text} is not allowed; allowed: 0 to 2**63 - 1")
    return seed


def _say(text: str, *, file_number: int = 1) -> None:
    """The one place where the command speaks."""
    stream = sys.stdout if file_number == 1 else sys.stderr
    stream.write(f"{text}\n")
