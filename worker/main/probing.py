"""The probe that the control plane asks for, carried out once and told once.

Knows when to begin, when to give up, and what to report; how a trial goes is `worker.probes.trial`.
"""

import asyncio
import logging
from collections.abc import Callable

from controlplane.contract.messages import LengthProbe, Probe, ProbeReport
from controlplane.contract.vocabulary import Reason
from worker.agent.agent import Agent
from worker.agent.intent import Wanted
from worker.engine.api import Engine, Fault, Flags
from worker.main.flips import Flips
from worker.probes import trial as trial_probe
from worker.probes.trial import Findings, Trial

# A flip prepares on every rank and takes effect two steps later; a drill that needs longer than
# any policy allows is told as one that did not take effect.
FLIP_WAIT_S = 10.0
MAX_DETAIL = 1000

logger = logging.getLogger(__name__)


class Probing:
    """At most one probe at a time. Used from one event loop."""

    def __init__(
        self, engine: Engine, agent: Agent, flips: Flips, *, request: Callable[[Wanted], None]
    ) -> None:
        """`request` makes flags effective, or has them refused."""
        self._engine = engine
        self._agent = agent
        self._flips = flips
        self._request = request
        self._probe: Probe | None = None
        self._findings = Findings()
        self._task: asyncio.Task[None] | None = None

    def follow(self, probe: Probe | None) -> bool:
        """Begin `probe`, go on with it, or end what is wanted no more.

        Returns: whether the engine is a probe's now, so that nobody else asks it for flags.
        """
        if probe is not None and self._probe is not None and probe.id == self._probe.id:
            return True
        self._end()
        if probe is not None:
            logger.info("probe_started probe=%s lengths=%d", probe.id, len(probe.lengths))
            self._probe, self._findings = probe, Findings()
            self._task = asyncio.create_task(self._run(probe, self._agent.wanted))
        return probe is not None

    def note_fault(self, fault: Fault) -> None:
        """The group is gone: that is what came of the probe."""
        if self._probe is not None:
            probe = self._probe
            self._end()
            self._findings.detail = fault.detail
            self._tell(probe, fault=Reason(fault.kind.value))

    async def stop(self) -> None:
        """End what runs."""
        task = self._task
        self._end()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, probe: Probe, wanted: Wanted) -> None:
        async def flip(flags: Flags) -> bool:
            # The generation stays: it is asked for by what was told under it.
            asked = Wanted(flags=flags, generation=wanted.generation, cause=wanted.cause)
            self._request(asked)
            return await self._flips.wait_for(flags, timeout_s=FLIP_WAIT_S)

        trial = Trial(
            id=probe.id,
            flag=probe.flag,
            flags=dict(probe.flags),
            back_to=wanted.flags,
            lengths=probe.lengths,
            seed=probe.seed,
            retained_at_most=probe.retained_at_most,
        )
        try:
            await trial_probe.run(self._engine, trial, flip=flip, findings=self._findings)
        except ValueError as error:
            # A length that this model does not take: the policy asks for what cannot be run.
            self._findings.detail = str(error)
        self._tell(probe, fault=None)

    def _tell(self, probe: Probe, *, fault: Reason | None) -> None:
        found = self._findings
        logger.info("probe_ended probe=%s lengths=%d", probe.id, len(found.retained_bytes))
        report = ProbeReport(
            incarnation=self._agent.incarnation,
            probe=probe.id,
            canary=probe.canary,
            lengths=[
                LengthProbe(length=length, retained_bytes=num_bytes)
                for length, num_bytes in found.retained_bytes.items()
            ],
            flag_bytes_before=found.flag_bytes_before,
            rollback_ms=found.rollback_ms,
            flag_bytes_left=found.flag_bytes_left,
            fault=fault,
            detail=found.detail[:MAX_DETAIL],
        )
        self._probe = None
        # Last: the supervisor then follows what is wanted without a probe.
        self._agent.report_probe(report)

    def _end(self) -> None:
        self._probe = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
