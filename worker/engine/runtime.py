"""What every rank does with a plan: flags first, then the session's computation.

Leader and follower drive the same `Runtime`; it decides nothing.
"""

# ruff: noqa: N806, N815 - shape suffixes in names; the legend is below

import os
import resource
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from worker import flags as flag_registry
from worker.cache.store import RingCache
from worker.config import InjectedFault, WorkerConfig
from worker.engine.api import RankEffective
from worker.engine.switch import ReduceSwitch
from worker.engine.wiring import Ends
from worker.model.transformer import Transformer
from worker.ops.reduce import ReducePlace
from worker.parallel import group
from worker.parallel.board import Line
from worker.parallel.plan import Action, Control, StepPlan
from worker.parallel.slots import SlotPlace

_SEED_STRIDE = 1_000_003  # a prime, so that step k of one seed is not step 0 of a near one
_SEED_BITS = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What one rank has to tell after a plan."""

    latent_GC: Tensor | None = None
    diffusion_ms: float = 0.0
    reduce_ms: float = 0.0
    refusal: str = ""  # after PREPARE: why not
    effective: RankEffective | None = None  # after COMMIT


class Runtime:
    """Model, flags and at most one session of this rank."""

    def __init__(self, ends: Ends, config: WorkerConfig, line: Line) -> None:
        """Join the group and draw the weights. Raises: PeerLostError."""
        self.rank, self.line, self.config = ends.index, line, config
        group.join(
            rendezvous=ends.rendezvous,
            rank=ends.index,
            num_ranks=config.num_ranks,
            timeout_s=config.group_timeout_s,
        )
        slots = SlotPlace(
            memory=ends.slots,
            rank=ends.index,
            num_ranks=config.num_ranks,
            bells=ends.bells,
            timeout_s=config.group_timeout_s,
        )
        self._switch = ReduceSwitch(ReducePlace(line=line, slots=slots, config=config))
        self._transformer = Transformer(config.model, rank=ends.index, num_ranks=config.num_ranks)
        self._generator = torch.Generator()
        self._cache: RingCache | None = None
        self._limit_bytes: int | None = None

    def warm_up(self, flags: Mapping[str, str]) -> None:
        """Prove every variant, run the longest session shape, take `flags`, then set the limit.

        Raises: PeerLostError; SelfTestError or RuntimeError if a variant does not work here.
        """
        allowed = flag_registry.FUSED_ALLREDUCE.allowed(
            has_demo_variants=self.config.has_demo_variants
        )
        for variant in allowed:
            self._must(self._switch.prepare(variant))
        self._rehearse()
        wanted = flags[ReduceSwitch.name]
        self._must(self._switch.prepare(wanted))
        self._switch.commit(wanted)
        self._limit()

    def execute(self, plan: StepPlan) -> StepOutcome:
        """Carry out one plan. Raises: PeerLostError, or what torch raises."""
        self.line.begin_step(plan.step)
        outcome = self._controlled(plan)
        match plan.action:
            case Action.NOOP:
                return outcome
            case Action.END:
                self._cache = None
                return outcome
            case Action.START | Action.STEP:
                return self._computed(plan, outcome)

    def memory(self) -> dict[str, Any]:
        """What `MemorySample` asks of one rank, as JSON values."""
        return {
            "resident_bytes": _resident_bytes(),
            "limit_bytes": self._limit_bytes,
            "flag_bytes": {ReduceSwitch.name: self._switch.num_bytes},
            "retained_by_length": {str(k): v for k, v in self._switch.retained_by_length.items()},
        }

    def effective(self, flags: Mapping[str, str], *, generation: int, step: int) -> RankEffective:
        """What this rank runs from `step` on."""
        return RankEffective(
            rank=self.rank,
            generation=generation,
            digest=flag_registry.digest(flags),
            step=step,
            flag_bytes={ReduceSwitch.name: self._switch.num_bytes},
        )

    def injected(self, kind: InjectedFault, *, session_step: int | None = None) -> bool:
        """True if this rank was told to do `kind` wrong now."""
        return any(
            fault.kind is kind
            and fault.rank == self.rank
            and session_step in (None, fault.session_step)
            for fault in self.config.faults
        )

    def _controlled(self, plan: StepPlan) -> StepOutcome:
        if plan.control is Control.NONE:
            return StepOutcome()
        if plan.control is Control.DISCARD:
            self._switch.discard()
            return StepOutcome()
        flags = flag_registry.from_word(plan.word)
        variant = flags[ReduceSwitch.name]
        if plan.control is Control.PREPARE:
            must_fail = self.injected(InjectedFault.REFUSE_PREPARE)
            return StepOutcome(refusal=self._switch.prepare(variant, must_fail=must_fail))
        self._switch.commit(variant)
        return StepOutcome(
            effective=self.effective(flags, generation=plan.generation, step=plan.step)
        )

    def _computed(self, plan: StepPlan, outcome: StepOutcome) -> StepOutcome:
        begun_s = time.perf_counter()
        self._misbehave(plan)
        if plan.action is Action.START:
            self._cache = self._transformer.new_cache()
            prompt_LD = self._noise(
                plan.seed, -1, plan.first_forward_length, self.config.model.width
            )
            self._transformer.first_forward(prompt_LD, self._cache, reduce=self._switch.current)
        assert self._cache is not None, "a step without a session"
        latent_GC = self._denoised(plan, self._cache)
        reduce_s = self._switch.current.hold_step(time.perf_counter() - begun_s)
        return StepOutcome(
            latent_GC=latent_GC,
            refusal=outcome.refusal,
            effective=outcome.effective,
            diffusion_ms=(time.perf_counter() - begun_s) * 1e3,
            reduce_ms=reduce_s * 1e3,
        )

    def _denoised(self, plan: StepPlan, cache: RingCache) -> Tensor:
        if plan.shift:
            cache.shift_window(plan.shift)
        model = self.config.model
        num_cells = model.grid[0] * model.grid[1]
        noise_GC = self._noise(plan.seed, plan.session_step, num_cells, model.latent_channels)
        if self.injected(InjectedFault.NAN, session_step=plan.session_step):
            noise_GC = noise_GC * float("nan")
        return self._transformer.denoised(
            noise_GC, cache, slot=plan.slot, position=plan.position, reduce=self._switch.current
        )

    def _noise(self, seed: int, step: int, *shape: int) -> Tensor:
        """The same on every rank; a function of the seed and the step only."""
        self._generator.manual_seed((seed + (step + 1) * _SEED_STRIDE) % _SEED_BITS)
        return torch.randn(shape, generator=self._generator)

    def _misbehave(self, plan: StepPlan) -> None:
        if self.injected(InjectedFault.RAISE, session_step=plan.session_step):
            raise RuntimeError("told to raise by the configuration")
        if self.injected(InjectedFault.DIE, session_step=plan.session_step):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.injected(InjectedFault.HANG, session_step=plan.session_step):
            _hang()

    def _rehearse(self) -> None:
        """One short session of the longest first forward: later sessions allocate nothing new."""
        model = self.config.model
        length = model.first_forward_bounds[1]
        for session_step in range(model.window):
            action = Action.STEP if session_step else Action.START
            plan = StepPlan(
                launch=0,
                step=0,
                action=action,
                first_forward_length=length,
                slot=session_step,
                position=session_step,
            )
            self._denoise_only(plan)
        self._cache = None

    def _denoise_only(self, plan: StepPlan) -> None:
        faults, self.config = self.config, self.config.for_launch(-1)
        self._computed(plan, StepOutcome())
        self.config = faults

    def _limit(self) -> None:
        headroom = self.config.memory_headroom_bytes
        if headroom is None:
            return
        # The limit counts mapped private memory, the sample resident memory: the same head-room
        # above the level of each, so that the two can be compared by whoever watches them.
        limit = _status_bytes("VmData") + headroom
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
        self._limit_bytes = _resident_bytes() + headroom

    def _must(self, refusal: str) -> None:
        if refusal:
            raise RuntimeError(refusal)


def lift_limit() -> None:
    """Allow memory again, so that the reason for running out of it can be told."""
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _hang() -> NoReturn:
    while True:
        time.sleep(3600)


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    message = f"/proc/self/status has no {key}"
    raise RuntimeError(message)


def _resident_bytes() -> int:
    return _status_bytes("VmRSS")
