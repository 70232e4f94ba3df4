"""The loop of rank 0, the only decider: numbers the plans and publishes each one step ahead."""

import ctypes
import select
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from worker import flags as flag_registry
from worker.config import InjectedFault
from worker.decode import stage
from worker.engine import flip, follower, reports
from worker.engine.flip import Flip
from worker.engine.outlet import Outlet
from worker.engine.planned import PlannedSession
from worker.engine.runtime import Runtime, StepOutcome
from worker.model.transformer import Denoised
from worker.parallel import plan as step_plan
from worker.parallel.channel import Channel, Message
from worker.parallel.kept import Kept
from worker.parallel.plan import Action, Control, StepPlan
from worker.prompts import Prompt


class Leader:
    """Takes commands from the supervisor, decides, publishes, computes, hands latents on."""

    def __init__(
        self,
        runtime: Runtime,
        flags: Flip,
        *,
        supervisor: Channel,
        followers: dict[int, Channel],
        outlet: Outlet,
        launch: int,
    ) -> None:
        """Take over the channels of rank 0."""
        self._runtime, self._flip, self._launch = runtime, flags, launch
        self._supervisor, self._followers, self._outlet = supervisor, followers, outlet
        self._step = 0
        self._session: PlannedSession | None = None
        self._is_ending: int | None = None
        self._poll = select.poll()
        for channel in (supervisor, *followers.values(), *outlet.channels):
            self._poll.register(channel.fileno(), select.POLLIN)

    def serve(self) -> NoReturn:
        """Lead for ever.

        Raises: PeerLostError, NotANumberError, LookupError, or what torch raises.
        """
        ahead: StepPlan | None = None
        while True:
            self._take_messages(wait_ms=0 if ahead or self._has_work() else follower.BEAT_MS)
            current, ahead = ahead, self._published()
            if current:
                self._carried_out(current)

    def _has_work(self) -> bool:
        session = self._session
        return (
            self._is_ending is not None
            or (session is not None and session.credits > 0)
            or flip.wants_plan(self._flip, step=self._step)
        )

    def _take_messages(self, *, wait_ms: int) -> None:
        self._runtime.line.beat()
        ready = {fileno for fileno, _ in self._poll.poll(wait_ms)}
        for channel in self._outlet.channels:
            if channel.fileno() in ready:
                channel.receive()  # the decoder never talks to rank 0: this is its end of file
        if self._supervisor.fileno() in ready:
            self._obey(self._supervisor.receive())
        for rank, channel in self._followers.items():
            if channel.fileno() in ready:
                answer = channel.receive().fields
                self._flip = flip.answered(
                    self._flip, generation=answer["generation"], rank=rank, reason=answer["reason"]
                )

    def _obey(self, message: Message) -> None:
        fields = message.fields
        match message.kind:
            case "start":
                self._begin(fields)
            case "resume":
                self._resume(fields)
            case "credit" if self._session and self._session.number == fields["session"]:
                self._credit(self._session, fields)
            case "end" if self._session and self._session.number == fields["session"]:
                self._session, self._is_ending = None, fields["session"]
            case "flags":
                self._flip = flip.requested(
                    self._flip, fields["flags"], generation=fields["generation"]
                )
            case _:
                follower.answer(self._runtime, self._supervisor, message)

    def _begin(self, fields: Any) -> None:
        config = self._runtime.config
        self._session = PlannedSession.begun(
            config.model,
            number=fields["session"],
            seed=fields["seed"],
            prompt=Prompt(**fields["prompt"]),
            num_ahead=config.max_chunks_ahead,
        )

    def _credit(self, session: PlannedSession, fields: Any) -> None:
        prompt, features = _steering(fields)
        session.credit(prompt=prompt, features=features)

    def _resume(self, fields: Any) -> None:
        """Go on with a session of a group that has died, from the last latents it kept.

        Raises: LookupError if none is whole.
        """
        model, step, number = self._runtime.config.model, fields["step"], fields["session"]
        steps = self._runtime.kept.before(step, session=number, most=model.window - 1)
        if not steps:
            message = f"no latent of session {number} before step {step} is whole"
            raise LookupError(message)
        for kept in steps:  # the decoder sees them again too, and shows them to nobody
            fields_of = {"session": number, "step": kept.step}
            self._outlet.hand_on(Message(kind=stage.SEEN, fields=fields_of, blobs=(kept.latent,)))
        wanted, features = _steering(fields)
        self._session = PlannedSession.resumed(
            model,
            number=number,
            seed=fields["seed"],
            prompt=Prompt(num_tokens=steps[-1].prompt_length, seed=steps[-1].prompt_seed),
            num_ahead=fields["credits"],
            step=step,
            num_kept=len(steps),
            wanted=wanted,
            features=features,
        )

    def _published(self) -> StepPlan | None:
        """Decide the next plan and send it to every follower; none if there is nothing to do."""
        if not self._has_work():
            return None
        control = flip.due(self._flip, step=self._step)
        plan = replace(self._next_action(), control=control)
        if control is not Control.NONE:
            word = flag_registry.word(self._flip.wanted)
            plan = replace(plan, generation=self._flip.generation, word=word)
        if control is Control.DISCARD:
            self._tell_refusal()
        self._flip = flip.published(self._flip, control, step=self._step)
        for rank, channel in self._followers.items():
            channel.send_packet(self._packed(plan, rank))
        self._step += 1
        return plan

    def _next_action(self) -> StepPlan:
        plan = StepPlan(launch=self._launch, step=self._step)
        session = self._session
        if self._is_ending is not None:
            plan = replace(plan, action=Action.END, session=self._is_ending)
            self._is_ending = None
        elif session and session.credits > 0:
            plan = session.planned(plan)
        return plan

    def _carried_out(self, plan: StepPlan) -> None:
        if plan.action not in (Action.NOOP, Action.END):
            self._outlet.begin(time.monotonic_ns())
        outcome = self._runtime.execute(plan)
        follower.tell(self._runtime, plan, outcome, supervisor=self._supervisor)
        if plan.control is Control.PREPARE:
            self._flip = flip.answered(
                self._flip, generation=plan.generation, rank=0, reason=outcome.refusal
            )
        if outcome.made is not None:
            self._hand_on(plan, outcome, outcome.made)

    def _hand_on(self, plan: StepPlan, outcome: StepOutcome, made: Denoised) -> None:
        # One reduction and one read a step, after the last pass: a check in every call would make
        # the host wait for a GPU 240 times.
        if not torch.isfinite(made.latent_GC.sum()).item():
            message = f"the latent of step {plan.session_step} is not finite"
            raise reports.NotANumberError(message)
        kept = Kept(
            session=plan.session,
            step=plan.session_step,
            prompt_seed=plan.prompt_seed,
            prompt_length=plan.first_forward_length,
            features=plan.features,
            seen=_bytes(made.seen_GC),
            latent=_bytes(made.latent_GC),
        )
        self._runtime.kept.put(kept)
        fields = {
            "session": plan.session,
            "step": plan.session_step,
            "is_prompt_new": plan.is_rebuilt,
            "diffusion_ms": outcome.diffusion_ms,
            "reduce_ms": outcome.reduce_ms,
            "ended_ns": time.monotonic_ns(),
        }
        self._outlet.hand_on(Message(kind=stage.LATENT, fields=fields, blobs=(kept.latent,)))

    def _tell_refusal(self) -> None:
        fields = {
            "generation": self._flip.generation,
            "flags": dict(self._flip.wanted),
            "reason": self._flip.refusal,
        }
        self._supervisor.send(Message(kind=reports.REFUSED, fields=fields))

    def _packed(self, plan: StepPlan, rank: int) -> bytes:
        packet = step_plan.pack(plan)
        is_corrupt = plan.session != 0 and any(
            fault.kind is InjectedFault.CORRUPT_PLAN
            and fault.rank == rank
            and fault.session_step == plan.session_step
            for fault in self._runtime.config.faults
        )
        return packet[:-1] + bytes((packet[-1] ^ 0xFF,)) if is_corrupt else packet


def _bytes(latent: Tensor) -> bytes:
    latent = latent.contiguous()
    return ctypes.string_at(latent.data_ptr(), latent.nbytes)


def _steering(fields: Mapping[str, Any]) -> tuple[Prompt | None, bytes | None]:
    prompt, features = fields["prompt"], fields["features"]
    return (
        Prompt(**prompt) if prompt else None,
        bytes.fromhex(features) if features else None,
    )
