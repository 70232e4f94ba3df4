"""The benchmark of the decision: it draws what it says, and decides by the product's own domain."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Final

import numpy as np
import pytest

from controlplane.domain import comparison, eprocess, noninferiority
from controlplane.domain.blocks import FAILED, SHIFT, SLOW, ranked
from controlplane.domain.comparison import Weights
from controlplane.domain.eprocess import QUANTILES, Table
from tests.bench.decision import counts as counting
from tests.bench.decision import (
    horizon,
    kayenta,
    promotion,
    records,
    rules,
    streams,
)
from tests.bench.decision.counts import HARMED
from tests.bench.decision.rules import Stakes
from tests.bench.decision.streams import Arm, Streams

NUM_STREAMS: Final = 60
NEVER: Final = streams.NUM_BLOCKS

# Of the study's own program, on 60 streams of each scenario: its digest by our `digest`, and sums
# over streams of the stop block of its rules 8b, 7e, 4 and 4b.
STUDIED: Final[Mapping[str, tuple[str, int, int, int, int]]] = {
    "AA_0.7": ("7715275dd62e7ad6", 2400, 2400, 2342, 2400),
    "AA_7": ("6ddbebf4305cd591", 2400, 2400, 2400, 2355),
    "AA_drift_0.7_15": ("b96bab9fe13d0ec8", 2400, 2400, 2356, 2400),
    "SIMPSON_AA": ("87cbf737d8f1f39d", 2400, 2400, 2247, 2275),
    "LEMON_AA_by_worker": ("984eda2827a08838", 2248, 2247, 2397, 2360),
    "LEMON_AA_by_session": ("25d733159b2c6e04", 2400, 2400, 2400, 2400),
    "REG_0.7_2": ("e3fdbf31c9924c1b", 2201, 2168, 2366, 2370),
    "REG_0.7_7": ("1484c9452a78d056", 618, 594, 2202, 1945),
    "REG_0.7_23": ("764ba2daea065aff", 121, 99, 414, 305),
    "REG_7_23": ("d1b17509ddf04ee8", 391, 341, 911, 553),
    "SHIFT_0.2": ("a6b329c4cd95b02e", 36, 2400, 5, 2400),
    "OOM_5": ("52d34e5c5cd0c234", 664, 821, 1147, 1955),
    "OOM_5_after150": ("40e7b31c6c70e8a2", 1686, 1974, 2095, 2366),
    "OOM_20_after150": ("d9fa68a115237439", 1023, 1081, 1348, 1887),
    "SIMPSON_REG": ("d83a9ee4df5fb093", 1421, 1355, 2374, 2364),
}


def drawn(name: str, num_streams: int = NUM_STREAMS) -> Streams:
    return streams.scenario(name, num_streams=num_streams, seed=streams.seed_of(name))


@pytest.mark.parametrize("name", streams.SCENARIOS)
def test_streams_and_stop_blocks_are_those_of_the_study(name: str) -> None:
    """The study's figures are only ours to quote while both decide the same streams alike."""
    digest, ours, without_restarts, as_shipped, on_rates = STUDIED[name]
    found = drawn(name)
    counts = counting.counted(found)
    assert found.digest() == digest
    assert rules.stops(counts).sum() == ours
    once = rules.mixture(counts[HARMED], Stakes(first=1.0, later=0.0))
    assert rules.crossed(once, rules.THRESHOLD).sum() == without_restarts
    assert kayenta.judged(found).sum() == as_shipped
    assert kayenta.on_bad_rates(found).sum() == on_rates


@pytest.mark.parametrize("name", ["REG_0.7_7", "OOM_20_after150", "SHIFT_0.2", "SIMPSON_REG"])
def test_evidence_block_by_block_is_what_the_product_computes_of_all_blocks(name: str) -> None:
    """Otherwise the benchmark would score another rule than the one that is shipped."""
    counts = counting.counted(drawn(name, 6))
    for stream in range(6):
        windows = list(counting.blocks(counts, stream))
        values = list(rules.e_values(windows, Weights()))
        written = list(accumulate((list(window) for window in windows), list.__add__))
        for looked in (0, 7, 20, NEVER - 1):
            whole = comparison.regression(written[looked], Weights()).value
            assert values[looked] == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("name", streams.SCENARIOS)
def test_all_streams_at_once_stop_where_each_alone_does(name: str) -> None:
    """Long horizons and other stakes rest on the vectorised fold."""
    counts = counting.counted(drawn(name))
    at_once = rules.crossed(rules.combined(counts, Weights()), rules.THRESHOLD)
    assert at_once.tolist() == rules.stops(counts).tolist()


@pytest.mark.parametrize("name", ["AA_7", "LEMON_AA_by_worker", "OOM_5_after150", "SHIFT_0.2"])
def test_session_records_give_the_tables_and_the_stop_block_that_were_counted(name: str) -> None:
    """From records through the product's own blocks: the whole way a decision goes."""
    found = drawn(name, 3)
    counts = counting.counted(found)
    for stream in range(3):
        from_records = list(records.written(found, stream))
        counted = list(records.as_written(counting.blocks(counts, stream)))
        for window, expected in zip(from_records, counted, strict=True):
            assert [block.kind for block in window] == [block.kind for block in expected]
            for block, other in zip(window, expected, strict=True):
                for key, tables in other.tables.items():
                    compared = [table for table in block.tables[key] if table.is_comparison]
                    assert compared == list(tables)
        stops = [
            rules.first_at_least(rules.e_values(windows, Weights()), rules.THRESHOLD)
            for windows in (from_records, counted)
        ]
        assert stops[0] == stops[1]


def test_ranks_are_counted_as_the_domain_counts_them() -> None:
    """With failed sessions lowest, ties in both arms, and strata apart."""
    found = drawn("SIMPSON_REG", 4)
    failing = found.canary.failed.copy()
    failing[:, ::7] = True
    fps = np.where(failing, np.nan, np.round(found.canary.fps, 1))
    canary = Arm(
        num_a_block=10, stratum=found.canary.stratum, failed=failing, slow=failing, fps=fps
    )
    tied = Streams(name="tied", canary=canary, control=found.control)
    for quantile in QUANTILES:
        strata = counting.counted(tied)[ranked(SHIFT, quantile)]
        for stratum, counts in enumerate(strata):
            tables = list(counts.tables(2))
            for block in (0, 13, 39):
                arms = [
                    [
                        None if np.isnan(fps) else float(fps)
                        for fps in one.fps[2, block * size : (block + 1) * size][
                            one.stratum[block * size : (block + 1) * size] == stratum
                        ]
                    ]
                    for one, size in ((tied.canary, 10), (tied.control, 40))
                ]
                assert tables[block] == eprocess.worst_ranked(*arms, quantile=quantile)


def test_smaller_blocks_hold_the_same_sessions_in_both_strata() -> None:
    """A session that fell out, or twice in, would change what a step is worth."""
    found = drawn("SIMPSON_REG", 5)
    whole = counting.counted(found)
    small = counting.counted(counting.in_smaller_blocks(found, num_parts=10))
    for name in (SLOW, FAILED, HARMED):
        for one, other in zip(whole[name], small[name], strict=True):
            for counted in ("canary_bad", "control_bad"):
                parts = getattr(other, counted).reshape(5, NEVER, 10).sum(2)
                assert parts.tolist() == getattr(one, counted).tolist()
            assert other.control.reshape(NEVER, 10).sum(1).tolist() == one.control.tolist()


def test_a_scenario_that_does_not_exist_is_refused_by_name() -> None:
    for name in ("AA_x_y_z", "SIMPSON_NO", "LEMON_NO", "nonsense"):
        with pytest.raises(ValueError, match=name):
            streams.scenario(name, num_streams=1, seed=1)


@pytest.mark.parametrize(("margin", "num_blocks"), [(0.01, 34), (0.02, 17), (0.03, 11)])
def test_promotion_without_one_bad_session_takes_as_long_as_the_study_says(
    margin: float, num_blocks: int
) -> None:
    clean = np.zeros((1, 40), dtype=np.int64)
    assert promotion.promoted(clean, clean, margin=margin).tolist() == [num_blocks - 1]


def test_promotion_of_many_streams_is_the_domain_s_of_each() -> None:
    randomness = np.random.default_rng(5)
    canary = randomness.binomial(10, 0.01, (8, 60))
    control = randomness.binomial(40, 0.01, (8, 60))
    found = promotion.promoted(canary, control, margin=0.03)
    for stream in range(8):
        tables = [
            Table(a, 10, b, 40)
            for a, b in zip(canary[stream].tolist(), control[stream].tolist(), strict=True)
        ]
        looked = [noninferiority.evidence(tables[: n + 1], margin=0.03) for n in range(60)]
        expected = rules.first_at_least(looked, promotion.PROMOTES_AT)
        assert found[stream] == (60 if expected is None else expected)


def test_looking_on_is_measured_on_healthy_canaries_of_8_000_sessions() -> None:
    nums, num_streams = horizon.num_rolled_back("AA_7", chunk=0, num_streams=3)
    assert num_streams == 3
    assert nums == [0] * len(horizon.HORIZONS)  # all three live through all of it
