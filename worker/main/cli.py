"""`steadyframe-worker`: run a worker, or look after one on its own machine.

run --config FILE
local status|force-fallback|clear --state-dir DIR [--json]
flags [--hardware NAME] [--json]
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
from worker.main import local, run, settings
from worker.main.settings import SettingsError

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
    return _local(options.action, options.state_dir, as_json=options.json)


def _run(path: Path) -> int:
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    # They log every request and every connection.
    for name in ("httpx", "websockets"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        asyncio.run(run.run(settings.load(path)))
    except (SettingsError, StateDirInUseError) as error:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="steadyframe-worker", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="serve until SIGTERM")
    run_parser.add_argument("--config", type=Path, required=True, help="JSON file")
    flags_parser = commands.add_parser("flags", help="what each flag is set to on a hardware")
    flags_parser.add_argument("--hardware", default="cpu", help="such as h100x4, b200x3, cpu")
    flags_parser.add_argument("--json", action="store_true")
    local_parser = commands.add_parser("local", help="works without a network")
    local_parser.add_argument("action", choices=("status", "force-fallback", "clear"))
    local_parser.add_argument("--state-dir", type=Path, required=True)
    local_parser.add_argument("--json", action="store_true")
    return parser


def _say(text: str, *, file_number: int = 1) -> None:
    """The one place where the command speaks."""
    stream = sys.stdout if file_number == 1 else sys.stderr
    stream.write(f"{text}\n")
