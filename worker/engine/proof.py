"""Which variants this rank may run compiled: tried once, at the start, and looked up ever after.

So a flip compiles nothing in the middle of a stream, and a variant that is right only when it is
run eagerly is refused by name. Each rank for itself: no collective, so no limit of one.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from worker import flags as flag_registry
from worker.cache.variants import KvCache
from worker.config import WorkerConfig
from worker.engine.session import PRE_ATTENTION, Chosen
from worker.model import execution, self_test
from worker.model.execution import Execution
from worker.model.self_test import SelfTestError, Subject
from worker.model.weights import Weights


class Proofs:
    """How this rank runs the parts of a block, and what must not be run like that."""

    def __init__(
        self, parts: Execution, refusals: Mapping[tuple[KvCache, str], str] | None = None
    ) -> None:
        """`refusals` say why by format of the cache and variant of `pre_attention`."""
        self.execution = parts
        self._refusals = refusals or {}

    def refusal(self, flags: Mapping[str, str]) -> str:
        """Why `flags` must not be run, or nothing."""
        form = flags[flag_registry.PRE_ATTENTION.name]
        reason = self._refusals.get((Chosen.of(flags).kv_cache, form), "")
        return reason and f"cannot prepare {flag_registry.PRE_ATTENTION.name} {form!r}: {reason}"


def proven(
    flags: Mapping[str, str], config: WorkerConfig, held: Weights, *, beat: Callable[[], None]
) -> Proofs:
    """What `execution` of `flags` asks for, every variant tried with every format of the cache.

    Takes minutes where nothing has been compiled before; calls `beat` now and then.
    Raises: ExecutionRefusedError.
    """
    parts = execution.build(
        flags[flag_registry.EXECUTION.name],
        backend=config.compile_backend,
        folder=None if config.compiler_folder is None else Path(config.compiler_folder),
    )
    if parts is execution.EAGER:  # nothing to prove: it is what the others are compared with
        return Proofs(parts)
    subject = Subject(model=config.model, weights=held, num_ranks=config.num_ranks, execution=parts)
    allowed = flag_registry.PRE_ATTENTION.allowed(has_demo_variants=config.has_demo_variants)
    refusals: dict[tuple[KvCache, str], str] = {}
    for kv_cache in KvCache:
        for form in allowed:
            beat()
            refusals[kv_cache, form] = _refusal(subject, kv_cache, form)
    parts.seal()
    return Proofs(parts, refusals)


def _refusal(subject: Subject, kv_cache: KvCache, form: str) -> str:
    try:
        self_test.check(subject, kv_cache, pre_attention=PRE_ATTENTION[form], name=form)
    # A compiler may fail with anything; what cannot be compiled is refused by name.
    except (SelfTestError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""
