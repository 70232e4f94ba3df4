"""The loop of ranks 1 and up: do what the numbered plan says, or raise before any collective."""

import select
from typing import NoReturn

from worker.config import InjectedFault
from worker.engine import reports
from worker.engine.runtime import Runtime, StepOutcome
from worker.parallel import plan as step_plan
from worker.parallel.channel import Channel, Message
from worker.parallel.plan import Control, StepPlan

BEAT_MS = 200  # an idle process shows life this often; the watchdog waits at least a second


def serve(runtime: Runtime, *, supervisor: Channel, leader: Channel, launch: int) -> NoReturn:
    """Follow the leader's plans for ever.

    Raises: PlanError for a wrong plan; PeerLostError when the leader or the supervisor has gone.
    """
    step = 0
    poll = select.poll()
    for channel in (supervisor, leader):
        poll.register(channel.fileno(), select.POLLIN)
    while True:
        runtime.line.beat()
        ready = {fileno for fileno, _ in poll.poll(BEAT_MS)}
        if supervisor.fileno() in ready:
            answer(runtime, supervisor, supervisor.receive())
        if leader.fileno() in ready:
            plan = step_plan.unpack(leader.receive_packet(), launch=launch, step=step)
            outcome = runtime.execute(plan)
            tell(runtime, plan, outcome, supervisor=supervisor)
            if plan.control is Control.PREPARE:
                leader.send(_prepared(runtime, plan, outcome))
            step += 1 + _miscount(runtime, plan)


def answer(runtime: Runtime, supervisor: Channel, message: Message) -> None:
    """Answer the one question that every rank is asked between steps."""
    if message.kind == reports.MEMORY:
        fields = {"query": message.fields["query"], **runtime.memory()}
        supervisor.send(Message(kind=reports.MEMORY, fields=fields))


def tell(runtime: Runtime, plan: StepPlan, outcome: StepOutcome, *, supervisor: Channel) -> None:
    """Report flags that took effect with `plan`."""
    del runtime, plan
    if outcome.effective:
        fields = reports.effective_fields(outcome.effective)
        supervisor.send(Message(kind=reports.EFFECTIVE, fields=fields))


def _prepared(runtime: Runtime, plan: StepPlan, outcome: StepOutcome) -> Message:
    fields = {"generation": plan.generation, "rank": runtime.rank, "reason": outcome.refusal}
    return Message(kind="prepared", fields=fields)


def _miscount(runtime: Runtime, plan: StepPlan) -> int:
    is_due = plan.session != 0 and runtime.told.is_due(
        InjectedFault.DISAGREE, session_step=plan.session_step
    )
    return int(is_due)
