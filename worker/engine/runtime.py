"""What every rank does with a plan: flags first, then the session's computation.

Leader and follower drive the same `Runtime`; it decides nothing.
"""

# ruff: noqa: N806 - shape suffixes in names; the legend is in `worker.model.transformer`

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from worker import flags as flag_registry
from worker.cache import self_test
from worker.cache.ring import RingCursor
from worker.cache.variants import KvCache
from worker.config import InjectedFault, WorkerConfig
from worker.engine import limit
from worker.engine.api import RankEffective
from worker.engine.injections import Injections
from worker.engine.noise import Noise
from worker.engine.proof import Proofs
from worker.engine.session import PRE_ATTENTION, Chosen, Seen, SessionCompute
from worker.engine.switch import ReduceSwitch
from worker.engine.wiring import Ends
from worker.model.conditioning import Conditioning
from worker.model.transformer import Denoised, Transformer
from worker.model.weights import Weights
from worker.ops.reduce import ReducePlace
from worker.parallel import group
from worker.parallel.board import Line
from worker.parallel.kept import KeptSteps
from worker.parallel.plan import Action, Control, StepPlan
from worker.parallel.slots import SlotPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What one rank has to tell after a plan."""

    made: Denoised | None = None
    diffusion_ms: float = 0.0
    reduce_ms: float = 0.0
    refusal: str = ""  # after PREPARE: why not
    effective: RankEffective | None = None  # after COMMIT


class Runtime:
    """Model, flags and at most one session of this rank."""

    def __init__(
        self, ends: Ends, config: WorkerConfig, line: Line, held: Weights, proofs: Proofs
    ) -> None:
        """Join the group, to compute with `held` as `proofs` says. Raises: PeerLostError."""
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
        self._proofs = proofs
        self._transformer = Transformer(
            config.model, held, num_ranks=config.num_ranks, execution=proofs.execution
        )
        self._conditioning = Conditioning(config.model)
        self.told = Injections(config.faults, rank=ends.index)
        self._noise = Noise()
        self.kept = KeptSteps(
            ends.kept, num_slots=config.num_kept_steps, latent_bytes=config.model.latent_bytes
        )
        self._chosen = Chosen.of(flag_registry.fallback())
        self._session: SessionCompute | None = None
        self._limit_bytes: int | None = None
        self._late: StepPlan | None = None  # a flip that an injected fault has put off

    def warm_up(self, flags: Mapping[str, str]) -> None:
        """Prove every variant, run the longest session shape, take `flags`, then set the limit.

        Raises: PeerLostError; SelfTestError or RuntimeError if a variant does not work here.
        """
        for variant in self._allowed(flag_registry.FUSED_ALLREDUCE):
            self._must(self._switch.prepare(variant))
        for kv_cache in KvCache:
            chosen = replace(self._chosen, kv_cache=kv_cache)
            for form in self._allowed(flag_registry.PRE_ATTENTION):
                self._must(self._unproven(replace(chosen, pre_attention=PRE_ATTENTION[form])))
            self._rehearse(chosen)
        self._must(self._prepared(flags))
        self._commit(flags)
        if self.config.memory_headroom_bytes is not None:
            self._limit_bytes = limit.set_above_now(self.config.memory_headroom_bytes)

    def execute(self, plan: StepPlan) -> StepOutcome:
        """Carry out one plan. Raises: PeerLostError, or what torch raises."""
        self.line.begin_step(plan.step)
        outcome = self._controlled(plan)
        match plan.action:
            case Action.NOOP:
                return outcome
            case Action.END:
                self._session = None
                return outcome
            case Action.START | Action.STEP | Action.RESUME:
                return self._computed(plan, outcome)

    def memory(self) -> dict[str, Any]:
        """What `MemorySample` asks of one rank, as JSON values."""
        return {
            "resident_bytes": limit.resident_bytes(),
            "limit_bytes": self._limit_bytes,
            "flag_bytes": self._flag_bytes(),
            "retained_by_length": {str(k): v for k, v in self._switch.retained_by_length.items()},
            "num_graphs": self._proofs.execution.num_graphs,
        }

    def effective(self, flags: Mapping[str, str], *, generation: int, step: int) -> RankEffective:
        """What this rank runs from `step` on."""
        return RankEffective(
            rank=self.rank,
            generation=generation,
            digest=flag_registry.digest(flags),
            step=step,
            flag_bytes=self._flag_bytes(),
        )

    def _controlled(self, plan: StepPlan) -> StepOutcome:
        if self._late:
            late, self._late = self._late, None
            return self._committed(late, step=plan.step)
        if plan.control is Control.NONE:
            return StepOutcome()
        if plan.control is Control.DISCARD:
            self._switch.discard()
            return StepOutcome()
        flags = flag_registry.from_word(plan.word)
        if plan.control is Control.PREPARE:
            must_fail = self.told.is_due(InjectedFault.REFUSE_PREPARE)
            return StepOutcome(refusal=self._prepared(flags, must_fail=must_fail))
        if self.told.is_due(InjectedFault.FLIP_LATE):
            self._late = plan
            return StepOutcome()
        return self._committed(plan, step=plan.step)

    def _committed(self, plan: StepPlan, *, step: int) -> StepOutcome:
        flags = flag_registry.from_word(plan.word)
        self._commit(flags)
        return StepOutcome(effective=self.effective(flags, generation=plan.generation, step=step))

    def _prepared(self, flags: Mapping[str, str], *, must_fail: bool = False) -> str:
        """Why this rank cannot take `flags`, or nothing; every rank has to take part."""
        refusal = self._switch.prepare(flags[ReduceSwitch.name], must_fail=must_fail)
        chosen = Chosen.of(flags)
        if refusal or chosen == self._chosen:
            return refusal
        if must_fail:
            return f"rank {self.rank} was told not to prepare {chosen.name}"
        # Every set was tried at the start: a flip in the middle of a stream has nothing to prove.
        reason = self._proofs.refusal(flags)
        return reason and f"rank {self.rank}: {reason}"

    def _unproven(self, chosen: Chosen) -> str:
        """Why this rank cannot run the cache of `chosen`, or nothing."""
        try:
            self_test.check(self.config.model, chosen.kv_cache, pre_attention=chosen.pre_attention)
        except (self_test.SelfTestError, MemoryError, RuntimeError) as error:
            return f"rank {self.rank} cannot prepare {chosen.name}: {error}"
        return ""

    def _commit(self, flags: Mapping[str, str]) -> None:
        self._switch.commit(flags[ReduceSwitch.name])
        self._chosen = Chosen.of(flags)
        if self._session:
            self._session.take(self._chosen)

    def _flag_bytes(self) -> dict[str, int]:
        """What the code of each flag keeps; a cache in the format of the fallback is no flag's."""
        fallback = flag_registry.KV_CACHE.fallback
        session = self._session
        cache_bytes = session.num_bytes if session and session.format != fallback else 0
        return {
            ReduceSwitch.name: self._switch.num_bytes,
            flag_registry.KV_CACHE.name: cache_bytes,
        }

    def _computed(self, plan: StepPlan, outcome: StepOutcome) -> StepOutcome:
        begun_s = time.perf_counter()
        self.told.misbehave(plan.session_step)
        reduce = self._switch.current
        if plan.action in (Action.START, Action.RESUME):
            self._session = self._begun(plan, self._chosen)
        session = self._session
        assert session is not None, "a step without a session"
        if plan.action is Action.RESUME:
            session.restore(self._kept_before(plan), reduce=reduce)
        elif plan.is_rebuilt:
            session.rebuild(self._prompt(plan), num_kept=plan.frame, reduce=reduce)
        made = session.step(
            self._noise_of(plan),
            self._cursor(plan),
            added_ED=self._conditioning.added(plan.features),
            reduce=reduce,
        )
        reduce_s = reduce.hold_step(time.perf_counter() - begun_s)
        return StepOutcome(
            made=made,
            refusal=outcome.refusal,
            effective=outcome.effective,
            diffusion_ms=(time.perf_counter() - begun_s) * 1e3,
            reduce_ms=reduce_s * 1e3,
        )

    def _begun(self, plan: StepPlan, chosen: Chosen) -> SessionCompute:
        return SessionCompute(
            self._transformer,
            self.config.model,
            chosen,
            prompt_LD=self._prompt(plan),
            reduce=self._switch.current,
        )

    def _kept_before(self, plan: StepPlan) -> list[Seen]:
        """What an earlier group has left of the session. Raises: LookupError if it is not there."""
        steps = self.kept.before(plan.session_step, session=plan.session, most=plan.frame)
        if len(steps) != plan.frame:
            message = f"{plan.frame} steps are to be taken over, {len(steps)} are there whole"
            raise LookupError(message)
        channels = self.config.model.latent_channels
        return [
            Seen(
                latent_GC=torch.frombuffer(bytearray(step.seen), dtype=torch.float32).view(
                    -1, channels
                ),
                added_ED=self._conditioning.added(step.features),
            )
            for step in steps
        ]

    def _cursor(self, plan: StepPlan) -> RingCursor:
        return replace(
            RingCursor.begun(self.config.model),
            num_frames=plan.frame,
            position=plan.position,
            shift=plan.shift,
        )

    def _prompt(self, plan: StepPlan) -> Tensor:
        return self._noise.of_prompt(
            plan.prompt_seed, length=plan.first_forward_length, width=self.config.model.width
        )

    def _noise_of(self, plan: StepPlan) -> Tensor:
        model = self.config.model
        num_cells = model.grid[0] * model.grid[1]
        noise_GC = self._noise.of_step(
            plan.seed, plan.session_step, num_cells, model.latent_channels
        )
        is_broken = self.told.is_due(InjectedFault.NAN, session_step=plan.session_step)
        return noise_GC * float("nan") if is_broken else noise_GC

    def _rehearse(self, chosen: Chosen) -> None:
        """One short session of the longest first forward: later sessions allocate nothing new."""
        model = self.config.model
        plan = StepPlan(launch=0, step=0, first_forward_length=model.first_forward_bounds[1])
        session = self._begun(plan, chosen)
        cells = torch.zeros(model.grid[0] * model.grid[1], model.latent_channels)
        for number in range(model.window + 1):
            cursor = self._cursor(replace(plan, frame=number, position=number))
            session.step(cells, cursor, reduce=self._switch.current)
            self.line.beat()
        self._switch.current.hold_step(float("inf"))

    def _allowed(self, flag: flag_registry.Flag) -> tuple[str, ...]:
        return flag.allowed(has_demo_variants=self.config.has_demo_variants)

    def _must(self, refusal: str) -> None:
        if refusal:
            raise RuntimeError(refusal)
