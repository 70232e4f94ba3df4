"""A subject as a compiler runs it: the parts of a block and what writes its cache, as in a worker.

That is where a compiler was seen to be wrong without a word: a write that is not declared is
dropped, and a cursor that is a Python number makes a graph a step.
"""

from dataclasses import replace
from pathlib import Path

from worker.model.execution import Compiled
from worker.probes.subject import Subject

EAGER = "eager"
# `aot_eager` finds what a compiler does to writes and shapes, without the seconds of inductor.
BACKENDS = (EAGER, "aot_eager", "inductor")


def subject_by(backend: str, subject: Subject, *, folder: Path) -> Subject:
    """`subject` as `backend` runs it, which keeps its code in `folder` if it makes any."""
    if backend == EAGER:
        return subject
    return replace(subject, execution=Compiled(backend=backend, folder=folder))
