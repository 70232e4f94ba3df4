"""`steadyframe-worker probe`: a set of flags against the plain path, in this process.

Ends with 0 if every check passed, 1 if one failed, 3 if none failed and some could not be measured
on this machine (as the device's own detector without a GPU), 2 for a word that it does not know.
Progress goes to standard error; the table, or JSON with its schema's version, to standard output.
"""

import argparse
from collections.abc import Mapping
from typing import Protocol

from worker import flags
from worker.config import ConfigError
from worker.probes.check import Verdict

EXIT_REFUSED = 2
EXIT_CODES: Mapping[Verdict, int] = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNMEASURED: 3}


class Say(Protocol):
    """How the command speaks."""

    def __call__(self, text: str, *, file_number: int = 1) -> None:
        """Write a line; 2 is standard error."""
        ...


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--preset", required=True, help="tiny-edge, tiny, demo, or full (a cut)")
    parser.add_argument("--flags", default="", help="NAME=VARIANT,...; others are at the fallback")
    parser.add_argument("--backends", default="eager,aot_eager", help="eager, aot_eager, inductor")
    parser.add_argument("--device", default="cpu", help="cpu, cuda")
    parser.add_argument("--json", action="store_true")


def run(options: argparse.Namespace, *, say: Say) -> int:
    """Probe, tell, and return the code to end with."""
    # Torch takes a second and 100 MB; no other command has a use for it.
    import torch

    from worker.probes import report

    # More threads would only take turns: the model is small, and a worker may run beside it.
    torch.set_num_threads(1)
    try:
        asked = report.Asked(
            preset=options.preset,
            flags=parsed(options.flags),
            backends=tuple(options.backends.split(",")),
            device=options.device,
        )
        found = report.run(asked, note=lambda line: say(line, file_number=2))
    except (ConfigError, flags.UnknownFlagError) as error:
        say(str(error), file_number=2)
        return EXIT_REFUSED
    say(report.to_json(found) if options.json else report.table(found))
    return EXIT_CODES[found.verdict]


def parsed(text: str) -> dict[str, str]:
    """NAME=VARIANT,... as a mapping. Raises: ConfigError for a part that is none, or a repeat."""
    chosen: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, variant = part.partition("=")
        if not equals or name in chosen:
            allowed = f"NAME=VARIANT, each name once, of {', '.join(flags.REGISTRY)}"
            raise ConfigError("flags", part, allowed)
        chosen[name] = variant
    return chosen
