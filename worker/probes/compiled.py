"""A subject with what writes its cache compiled, and the count of the graphs that were made.

That is where a compiler was seen to be wrong without a word: a write that is not declared is
dropped, and a cursor that is a Python number makes a graph a step.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch

from worker.engine.session import Chosen
from worker.probes.subject import Subject

EAGER = "eager"
# `aot_eager` finds what a compiler does to writes and shapes, without the seconds of inductor.
BACKENDS = (EAGER, "aot_eager", "inductor")


class GraphCounter(Protocol):
    """Whoever compiles."""

    @property
    def num_graphs(self) -> int:
        """Compiled so far; read without waiting for a device."""
        ...


class TooManyGraphsError(RuntimeError):
    """Torch compiles this function no more; it would be run eager without a word."""


class NoGraphs:
    """Of an eager subject."""

    num_graphs = 0


class Compiler:
    """Compiles functions whole by one backend, and counts."""

    def __init__(self, backend: str) -> None:
        """Import the compiler, which takes a second or two."""
        from torch._dynamo import exc
        from torch._dynamo.backends import registry

        self._limit_hit = exc.FailOnRecompileLimitHit
        self.num_graphs = 0
        self._lookup, self._backend = registry.lookup_backend, backend
        self._made: dict[Any, Any] = {}

    def form(self, function: Any) -> Any:
        """`function` compiled; the same for the same function.

        A call raises: TooManyGraphsError; what torch raises for what is not one graph.
        """
        if function not in self._made:
            # Fixed shapes: a length that is compiled in has to show as a graph of its own.
            compiled = torch.compile(function, backend=self._counted, fullgraph=True, dynamic=False)
            self._made[function] = self._limited(compiled)
        return self._made[function]

    def _limited(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return compiled(*args, **kwargs)
            except self._limit_hit as error:
                message = f"more graphs are needed than torch allows; {self.num_graphs} were made"
                raise TooManyGraphsError(message) from error

        return run

    def _counted(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.num_graphs += 1
        run: Callable[..., Any] = self._lookup(self._backend)(graph, inputs)
        return run


def subject_by(backend: str, subject: Subject) -> tuple[Subject, GraphCounter]:
    """`subject` as `backend` runs it, and who counts its graphs."""
    if backend == EAGER:
        return subject, NoGraphs()
    compiler = Compiler(backend)

    def chosen_of(flags: Mapping[str, str]) -> Chosen:
        chosen = subject.chosen_of(flags)
        return replace(chosen, pre_attention=compiler.form(chosen.pre_attention))

    return replace(subject, chosen_of=chosen_of), compiler
