"""What looking on costs: healthy canaries that are rolled back within 8,000 sessions."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from controlplane.domain.comparison import Weights
from tests.bench.decision import counts as counting
from tests.bench.decision import rules, streams
from tests.bench.decision.streams import CANARY, CONTROL, FAILURE_RATE, Floats, Truth

NUM_BLOCKS: Final = 800
HORIZONS: Final = (100, 400, 1000, 2000, 4000, 8000)  # canary sessions
_WEEK: Final = 40  # blocks: a week of a canary that gets 400 sessions in it
# Slow rates of both arms, block by block.
WORLDS: Final[Mapping[str, Floats]] = {
    "AA_0.7": np.full(NUM_BLOCKS, 0.007),
    "AA_7": np.full(NUM_BLOCKS, 0.07),
    "AA weekly 0.7/7/15/0.7": np.tile(np.repeat([0.007, 0.07, 0.15, 0.007], _WEEK), 5),
}
CHUNK: Final = 100  # streams at once: 4 million sessions
_SEED: Final = 20261203


def num_rolled_back(world: str, *, chunk: int, num_streams: int = CHUNK) -> tuple[list[int], int]:
    """How many healthy canaries of one chunk are rolled back by each horizon, and of how many."""
    randomness = np.random.default_rng([chunk, list(WORLDS).index(world), _SEED])
    slow = tuple(np.repeat(WORLDS[world], size) for size in (CANARY, CONTROL))
    failed = np.full(1, FAILURE_RATE)
    truth = Truth(
        slow=(slow[0], slow[1]),
        failed=(failed, failed),
        stratum=(np.zeros(len(slow[0]), dtype=np.int64), np.zeros(len(slow[1]), dtype=np.int64)),
    )
    drawn = streams.drawn(world, truth, num_streams=num_streams, randomness=randomness)
    values = rules.combined(counting.counted(drawn), Weights())
    stops = rules.crossed(values, rules.THRESHOLD)
    return [int((stops < horizon // CANARY).sum()) for horizon in HORIZONS], num_streams
