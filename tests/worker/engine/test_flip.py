"""How flags become effective: the pure state machine of rank 0."""

import pytest

from worker.engine import flip
from worker.engine.flip import Flip, Phase
from worker.parallel.plan import Control

FALLBACK = {"fused_allreduce": "nccl"}
FUSED = {"fused_allreduce": "fused_steady"}
OTHER = {"fused_allreduce": "fused_all"}


def _settled(flags: dict[str, str], *, num_ranks: int = 2) -> Flip:
    return Flip(num_ranks=num_ranks, effective=flags, generation=1)


def _preparing(*, step: int = 10) -> Flip:
    asked = flip.requested(_settled(FALLBACK), FUSED, generation=2)
    assert flip.due(asked, step=step) is Control.PREPARE
    return flip.published(asked, Control.PREPARE, step=step)


def _all_answered(state: Flip, *, reasons: tuple[str, ...] = ("", "")) -> Flip:
    for rank, reason in enumerate(reasons):
        state = flip.answered(state, generation=state.generation, rank=rank, reason=reason)
    return state


def test_to_the_fallback_takes_one_phase() -> None:
    """The fallback is always warm: the very next plan carries the commit."""
    asked = flip.requested(_settled(FUSED), FALLBACK, generation=2)
    assert flip.due(asked, step=7) is Control.COMMIT
    after = flip.published(asked, Control.COMMIT, step=7)
    assert (after.phase, after.effective) == (Phase.SETTLED, FALLBACK)


def test_from_the_fallback_takes_two_phases_two_steps_apart() -> None:
    """Every rank has prepared, and the commit is not in the plan that is already on its way."""
    state = _all_answered(_preparing(step=10))
    assert flip.due(state, step=11) is Control.NONE
    assert flip.due(state, step=12) is Control.COMMIT
    assert flip.published(state, Control.COMMIT, step=12).effective == FUSED


def test_nothing_is_committed_until_every_rank_has_answered() -> None:
    """One rank on another variant is a hang or a wrong picture."""
    state = flip.answered(_preparing(), generation=2, rank=0, reason="")
    assert flip.due(state, step=1000) is Control.NONE


def test_one_rank_that_cannot_prepare_leaves_the_old_flags() -> None:
    """Refused as a whole, with the reason of that rank."""
    state = _all_answered(_preparing(), reasons=("", "rank 1 has no memory"))
    assert flip.due(state, step=12) is Control.DISCARD
    after = flip.published(state, Control.DISCARD, step=12)
    assert (after.phase, after.effective, state.refusal) == (
        Phase.SETTLED,
        FALLBACK,
        "rank 1 has no memory",
    )


def test_a_newer_request_replaces_one_that_is_being_prepared() -> None:
    """A rollback must not wait for the answers of a variant that nobody wants any more."""
    state = flip.requested(_preparing(), FALLBACK, generation=3)
    late = flip.answered(state, generation=2, rank=0, reason="")
    assert flip.due(late, step=11) is Control.COMMIT
    assert flip.published(late, Control.COMMIT, step=11).effective == FALLBACK


def test_a_request_that_is_not_newer_changes_nothing() -> None:
    """Commands may arrive twice and out of order."""
    state = _preparing()
    assert flip.requested(state, OTHER, generation=2) == state
    assert flip.requested(state, OTHER, generation=1) == state


def test_from_one_fast_variant_to_another_is_prepared() -> None:
    """Only the fallback is always warm."""
    asked = flip.requested(_settled(FUSED), OTHER, generation=2)
    assert flip.due(asked, step=3) is Control.PREPARE


def test_the_same_flags_under_a_new_generation_need_no_preparation() -> None:
    """Nothing changes but the number that is reported."""
    asked = flip.requested(_settled(FUSED), FUSED, generation=2)
    assert flip.due(asked, step=3) is Control.COMMIT


@pytest.mark.parametrize(("step", "is_wanted"), [(11, True), (12, False)])
def test_an_idle_engine_publishes_the_step_between_prepare_and_commit(
    step: int, *, is_wanted: bool
) -> None:
    """Without a session nobody else would publish it; after it there is nothing but to wait."""
    assert flip.wants_plan(_preparing(step=10), step=step) is is_wanted
