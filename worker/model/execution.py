"""How the pure parts of a forward are run: as they are written, or compiled. From outside.

`EAGER` hands every part back untouched. `Compiled` is for the steady shape only: a first forward
has the length of its prompt, always runs eager, and so never makes a graph. The compiler takes
seconds and 100 MB to import, so only a rank that was told to compile imports it.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


class Execution(Protocol):
    """What runs the parts of a forward."""

    @property
    def num_graphs(self) -> int:
        """Compiled so far; read without waiting for a device."""
        ...

    def form(self, part: Callable[P, R]) -> Callable[P, R]:
        """What to call in place of `part`; the same for the same part."""
        ...

    def seal(self) -> None:
        """Compile nothing more: whatever a session may meet has been met."""
        ...


class UnseenInputsError(RuntimeError):
    """A part was given inputs that no graph fits, after the start."""


class TooManyGraphsError(RuntimeError):
    """A part needs more graphs than torch allows: what it is given or holds never comes again."""


class ExecutionRefusedError(RuntimeError):
    """This rank cannot run what was asked for; the message says what it can run."""


class Eager:
    """Every part as it is written."""

    num_graphs = 0

    def form(self, part: Callable[P, R]) -> Callable[P, R]:
        """`part` itself."""
        return part

    def seal(self) -> None:
        """Nothing was compiled."""


EAGER = Eager()


class Compiled:
    """Each part as one graph, without breaks, for exactly the shapes that it is given."""

    def __init__(self, *, backend: str, folder: Path | None) -> None:
        """Import the compiler; `folder` is where "inductor" keeps its code for the next start.

        `folder` holds for the whole process: torch reads it from the environment.
        Raises: ExecutionRefusedError without a folder for a backend that writes one.
        """
        if backend == "inductor":
            if folder is None:
                message = (
                    "execution 'compiled' needs a folder for its code and has none; "
                    "allowed: eager, or a compiler_folder in the configuration"
                )
                raise ExecutionRefusedError(message)
            _settle_inductor(folder)
        from torch._dynamo import exc
        from torch._dynamo.backends import registry

        self._failed, self._at_limit = exc.BackendCompilerFailed, exc.FailOnRecompileLimitHit
        self._lookup = functools.partial(registry.lookup_backend, backend)
        self._forms: dict[Callable[..., Any], Callable[..., Any]] = {}
        self._num_graphs = 0
        self._is_sealed = False

    @property
    def num_graphs(self) -> int:
        """Of all parts."""
        return self._num_graphs

    def form(self, part: Callable[P, R]) -> Callable[P, R]:
        """`part`, compiled when it is first called.

        A call raises: UnseenInputsError after `seal`; TooManyGraphsError; what torch raises for a
        part that is not one graph.
        """
        if part not in self._forms:
            self._forms[part] = self._compiled(part)
        return self._forms[part]

    def seal(self) -> None:
        """From now on an input that would need another graph is an error, told by its part."""
        self._is_sealed = True

    def _compiled(self, part: Callable[P, R]) -> Callable[P, R]:
        name = getattr(part, "__qualname__", type(part).__qualname__)

        def counted(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            if self._is_sealed:
                message = f"{name} was given inputs that nothing at the start had; not compiled"
                raise UnseenInputsError(message)
            self._num_graphs += 1
            run: Callable[..., Any] = self._lookup()(graph, inputs)
            return run

        compiled = torch.compile(part, backend=counted, fullgraph=True, dynamic=False)

        @functools.wraps(part)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return compiled(*args, **kwargs)
            except self._failed as error:  # torch's wrapping hides whose fault it was
                raise error.inner_exception from error
            except self._at_limit as error:
                raise TooManyGraphsError(f"{name} needs another graph in every call") from error

        return run


def _settle_inductor(folder: Path) -> None:
    """One process that writes into `folder` and nowhere else."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    from torch._inductor import config

    config.compile_threads = 1  # else it starts a pool of processes that outlives a killed rank
    # Compiled headers would lie in the temporary folder of the system, for good.
    config.cpp_cache_precompile_headers = False


def build(variant: str, *, backend: str, folder: Path | None) -> Execution:
    """What `variant` of the flag `execution` names, on this machine.

    Raises: ExecutionRefusedError naming the variant, why not, and what is allowed.
    """
    match variant:
        case "eager":
            return EAGER
        case "compiled":
            return Compiled(backend=backend, folder=folder)
        case _:
            has_cuda = torch.cuda.is_available()
            reason = (
                "the kernels of this build run on the CPU" if has_cuda else "this machine has none"
            )
            message = (
                f"execution {variant!r} records CUDA graphs and needs a CUDA device: {reason}; "
                "allowed: eager, compiled"
            )
            raise ExecutionRefusedError(message)
