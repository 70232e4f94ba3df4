"""All checks of one set of flags in the order of their run, for people and for scripts."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from worker import flags as flag_registry
from worker.config import ConfigError
from worker.probes import check, compiled, graphs, numerics, synchronisation
from worker.probes.check import Check, Verdict
from worker.probes.subject import MODELS, Subject

SCHEMA = 1  # of the JSON: rises when a field changes its meaning or goes
SEED = 20260801
DEVICES = ("cpu", "cuda")
# The flags that act in a session of one rank.
_COVERED = frozenset(
    flag.name
    for flag in (flag_registry.KV_CACHE, flag_registry.POSITION_RESET, flag_registry.PRE_ATTENTION)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to probe."""

    preset: str
    flags: Mapping[str, str]  # what it leaves out is at its fallback
    backends: Sequence[str] = (compiled.EAGER, "aot_eager")
    seed: int = SEED
    device: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found."""

    asked: Asked
    flags: Mapping[str, str]  # the full set
    checks: Sequence[Check]

    @property
    def verdict(self) -> Verdict:
        """Of all checks."""
        return check.overall(self.checks)


def run(asked: Asked, *, note: Callable[[str], None]) -> Report:
    """Run every check, telling `note` of each.

    Raises:
        ConfigError, UnknownFlagError: a preset, backend, flag or variant that is none; what is
            allowed is in the message.
    """
    if asked.preset not in MODELS:
        raise ConfigError("preset", asked.preset, ", ".join(MODELS))
    for backend in asked.backends:
        if backend not in compiled.BACKENDS:
            raise ConfigError("backends", backend, ", ".join(compiled.BACKENDS))
    flags = flag_registry.resolved(asked.flags, has_demo_variants=True)
    if asked.device not in DEVICES:
        raise ConfigError("device", asked.device, ", ".join(DEVICES))
    if asked.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", asked.device, "cpu: this machine has no CUDA device")
    checks = []
    with torch.device(asked.device):
        for each in _checks(asked, Subject(model=MODELS[asked.preset], flags=flags)):
            note(f"{each.verdict:<10} {each.name}")
            checks.append(each)
    return Report(asked=asked, flags=flags, checks=checks)


def _checks(asked: Asked, subject: Subject) -> Iterator[Check]:
    yield from _not_covered(subject.flags)
    with tempfile.TemporaryDirectory() as folder:
        for backend in asked.backends:
            form = compiled.subject_by(backend, subject, folder=Path(folder))
            yield from numerics.run(form, name=backend, seed=asked.seed)
            yield graphs.run(form, name=backend, seed=asked.seed)
    device = synchronisation.CudaWaits()
    yield from synchronisation.run(subject, seed=asked.seed, device=device)


def _not_covered(flags: Mapping[str, str]) -> Iterator[Check]:
    """What was asked for and means nothing to one rank alone must not look as if it had passed."""
    for name, flag in flag_registry.REGISTRY.items():
        if name not in _COVERED and flags[name] not in (flag.plain, flag.fallback):
            why = f"one rank of its own has no use for {flags[name]}; a trial on a worker has"
            yield check.unmeasured(f"numerics/{name}", why)


def to_json(report: Report) -> str:
    """For scripts."""
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "verdict": report.verdict.value,
        "preset": report.asked.preset,
        "flags": dict(report.flags),
        "seed": report.asked.seed,
        "device": report.asked.device,
        "torch": torch.__version__,
        "checks": [check.to_fields(each) for each in report.checks],
    }
    return json.dumps(fields, indent=1, allow_nan=False)


def table(report: Report) -> str:
    """For a person."""
    rows = [("check", "verdict", "value", "bound", "")]
    rows += [
        (each.name, each.verdict.value, _number(each.value), _number(each.bound), each.detail)
        for each in report.checks
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    ]
    return "\n".join([*(line.rstrip() for line in lines), f"verdict: {report.verdict.value}"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
