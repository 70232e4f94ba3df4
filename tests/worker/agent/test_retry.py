"""How long to wait before trying again."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from worker.agent.retry import Backoff


@settings(deadline=None)
@given(seed=st.integers(0, 1000), num_tries=st.integers(1, 30))
def test_waits_double_up_to_their_limit_and_start_again_after_a_success(
    seed: int, num_tries: int
) -> None:
    """Each wait lies in the upper half of its ceiling, so that a fleet spreads out."""
    backoff = Backoff(random.Random(seed), first_s=1.0, limit_s=8.0)
    for number in range(num_tries):
        ceiling_s = min(2.0**number, 8.0)
        assert ceiling_s / 2 <= backoff.next_s() <= ceiling_s
    backoff.reset()
    assert backoff.next_s() <= 1.0
