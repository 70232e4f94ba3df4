"""The running variant of a flag on one rank, and the one that is being prepared beside it.

Every change is made by all ranks at the same step, with the ranks held together around it: a rank
that is late may still read the slots that another is about to give back.
"""

from collections.abc import Mapping

import torch

from worker import flags
from worker.ops import reduce
from worker.parallel import group


class ReduceSwitch:
    """The flag `fused_allreduce` on this rank."""

    name = flags.FUSED_ALLREDUCE.name

    def __init__(self, place: reduce.ReducePlace) -> None:
        """Begin with the fallback."""
        self._place = place
        self._variant = flags.FUSED_ALLREDUCE.fallback
        self.current = reduce.build(self._variant, place)
        self._staged: tuple[str, reduce.AllReduce] | None = None

    def prepare(self, variant: str, *, must_fail: bool = False) -> str:
        """Build and prove `variant` beside the running one; every rank has to take part.

        Returns: why this rank cannot take it, or nothing. If any rank cannot, none keeps it.
        Raises: PeerLostError.
        """
        self.discard()
        if variant == self._variant:
            self._agree(is_ready=True)
            return ""
        reason = self._build(variant, must_fail=must_fail)
        if not self._agree(is_ready=not reason):
            self.discard()
            return reason
        reason = self._prove()
        if not self._agree(is_ready=not reason):
            self.discard()
            return reason
        return ""

    def commit(self, variant: str) -> None:
        """Run `variant`, prepared or the fallback, from this step on. Raises: PeerLostError."""
        if variant == self._variant:
            self.discard()
            return
        self._agree(is_ready=True)  # nobody reads the old slots any more
        fresh = self._taken(variant)
        old, self.current, self._variant = self.current, fresh, variant
        self.discard()
        old.release()
        self._agree(is_ready=True)  # nobody gives pages back once the new slots are in use

    def discard(self) -> None:
        """Free what was prepared and not taken."""
        if self._staged:
            self._staged[1].release()
            self._staged = None

    @property
    def num_bytes(self) -> int:
        """Allocated by this flag's code and not freed."""
        return self.current.num_bytes + (self._staged[1].num_bytes if self._staged else 0)

    @property
    def retained_by_length(self) -> Mapping[int, int]:
        """First-forward length -> bytes kept for it."""
        return self.current.retained_by_length

    def _taken(self, variant: str) -> reduce.AllReduce:
        if self._staged and self._staged[0] == variant:
            fresh = self._staged[1]
            self._staged = None
            return fresh
        assert variant == flags.FUSED_ALLREDUCE.fallback, f"{variant} was not prepared"
        return reduce.build(variant, self._place)

    def _build(self, variant: str, *, must_fail: bool) -> str:
        if must_fail:
            return f"rank {self._place.slots.rank} was told not to prepare {variant}"
        try:
            self._staged = (variant, reduce.build(variant, self._place))
        except (OSError, MemoryError, RuntimeError) as error:
            return f"rank {self._place.slots.rank} cannot prepare {variant}: {error}"
        return ""

    def _prove(self) -> str:
        assert self._staged, "nothing is staged"
        try:
            reduce.self_test(self._staged[1], self._place)
        except reduce.SelfTestError as error:
            return str(error)
        return ""

    def _agree(self, *, is_ready: bool) -> bool:
        """True if every rank is ready; nobody leaves before everybody has come."""
        if self._place.slots.num_ranks == 1:
            return is_ready
        self._place.line.enter_collective()
        return bool(group.least_(torch.tensor([int(is_ready)])).item())
