"""What the worker has to tell of itself: what its ranks run, what they refused, why it fled."""

import logging
import random
from collections.abc import Mapping, Sequence

from controlplane.contract import vocabulary
from controlplane.contract.messages import (
    BreakerTrip,
    EffectiveReport,
    ProbeReport,
    RankReport,
    Registration,
)
from controlplane.contract.vocabulary import Reason
from worker.agent import identity as ids
from worker.agent.identity import Identity
from worker.agent.intent import Cause, Draw, Flags
from worker.agent.reports import Reports

# Of the contract's texts; a sentence that is longer is cut.
MAX_TEXT = 1000

logger = logging.getLogger(__name__)


def registration(
    identity: Identity,
    *,
    stack: Mapping[str, str],
    generation: int,
    flags: Flags,
    capabilities: Mapping[str, Sequence[str]],
    address: str,
) -> Registration:
    """One life of a worker as it stands."""
    return Registration(
        fleet=identity.fleet,
        worker=identity.worker,
        incarnation=identity.incarnation,
        hardware=identity.hardware,
        stack=dict(stack),
        generation=generation,
        flags=dict(flags),
        capabilities={flag: list(variants) for flag, variants in capabilities.items()},
        address=address,
    )


class Facts:
    """Makes reports and remembers the last effective one. Not thread-safe."""

    def __init__(
        self,
        reports: Reports,
        *,
        incarnation: str,
        fallback: Flags,
        randomness: random.Random,
    ) -> None:
        self._reports = reports
        self._incarnation = incarnation
        self._fallback = dict(fallback)
        self._randomness = randomness
        self._effective: EffectiveReport | None = None
        self.answered: set[str] = set()  # probes of this life

    @property
    def effective_flags(self) -> Mapping[str, str]:
        """What every rank runs, as last told; the fallback before that."""
        return self._effective.flags if self._effective else self._fallback

    def tell_effective(
        self,
        flags: Flags,
        *,
        generation: int,
        ranks: Sequence[RankReport] | None,
        cause: Cause,
    ) -> None:
        """Every rank runs `flags`; `cause` is why they are wanted."""
        is_fallback = dict(flags) == self._fallback
        self._effective = EffectiveReport(
            incarnation=self._incarnation,
            generation=generation,
            flags=dict(flags),
            ranks=list(ranks or [_only_rank(flags, generation=generation)]),
            is_lease_lapsed=is_fallback and cause is Cause.LEASE_LAPSED,
            is_break_glass=is_fallback and cause is Cause.BREAK_GLASS,
        )
        self._reports.put(self._effective)

    def tell_own_decision(self, flags: Flags, *, cause: Cause) -> None:
        """A lapse or a break-glass that changes no flag is told all the same: no rank will."""
        is_own = cause in {Cause.LEASE_LAPSED, Cause.BREAK_GLASS}
        last = self._effective
        if is_own and last is not None and last.flags == dict(flags):
            self.tell_effective(flags, generation=last.generation, ranks=last.ranks, cause=cause)

    def tell_refused(self, reason: str, *, generation: int) -> None:
        """The flags of `generation` were not taken; what ran before still runs."""
        flags = self.effective_flags
        ranks = self._effective.ranks if self._effective else [_only_rank(flags, generation=0)]
        logger.warning("desired_state_refused generation=%d reason=%s", generation, reason)
        self._reports.put(
            EffectiveReport(
                incarnation=self._incarnation,
                generation=generation,
                flags=dict(flags),
                ranks=ranks,
                refused=reason[:MAX_TEXT],
            )
        )

    def tell_trip(
        self,
        reason: Reason,
        *,
        flags: Flags,
        generation: int,
        rank: int | None,
        draw: Draw | None,
        detail: str,
    ) -> None:
        """The breaker tripped, in the session and experiment of `draw` if there is one."""
        session = draw.session if draw else None
        logger.error("breaker_tripped reason=%s rank=%s session=%s", reason, rank, session)
        trip = BreakerTrip(
            incarnation=self._incarnation,
            trip=ids.new_id(self._randomness),
            reason=reason,
            flags=dict(flags),
            generation=generation,
            rank=rank,
            session=session,
            canary=draw.canary if draw else None,
            detail=detail[:MAX_TEXT],
        )
        self._reports.put(trip)

    def tell_probe(self, report: ProbeReport) -> None:
        """What came of a probe."""
        self.answered.add(report.probe)
        self._reports.put(report)


def _only_rank(flags: Flags, *, generation: int) -> RankReport:
    digest = vocabulary.flags_digest(flags)
    return RankReport(rank=0, generation=generation, digest=digest, step=0)
