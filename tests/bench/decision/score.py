"""Every rule on every scenario, scored: harmed sessions until rollback, and false rollbacks."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from time import process_time
from typing import Any, Final, Self

import numpy as np

from controlplane.domain import rates
from controlplane.domain.comparison import Weights
from tests.bench.decision import counts as counting
from tests.bench.decision import kayenta, peers, records, rules, steps, streams, timeline
from tests.bench.decision.counts import HARMED, AllCounts
from tests.bench.decision.rules import Stakes
from tests.bench.decision.streams import CANARY, Floats, Ints, Streams
from tests.bench.decision.timeline import ArmTimes, Cost, Timeline

OURS: Final = "Steadyframe, E >= 100"
HOLDS: Final = "Steadyframe, hold at E >= 10"
FROM_RECORDS: Final = 20  # streams of each scenario that go through session records as well
_NO_RESTARTS: Final = Stakes(first=1.0, later=0.0)

Rule = Callable[[Streams, AllCounts], Ints]
RULES: Final[Mapping[str, Rule]] = {
    OURS: lambda _, counts: rules.stops(counts),
    HOLDS: lambda _, counts: rules.crossed(rules.combined(counts, Weights()), rules.HOLD),
    "slow or failed as one": lambda _, counts: rules.crossed(
        rules.mixture(counts[HARMED]), rules.THRESHOLD
    ),
    "slow or failed as one, no restarts": lambda _, counts: rules.crossed(
        rules.mixture(counts[HARMED], _NO_RESTARTS), rules.THRESHOLD
    ),
    "the source's floor: any session at 24 fps or less": lambda s, _: peers.floor(s),
    "Argo Rollouts, default failureLimit 0": lambda s, _: peers.intervals(s, num_failed=1),
    "Argo Rollouts, documented example, failureLimit 3": lambda s, _: peers.intervals(
        s, num_failed=4
    ),
    "Flagger as coded, threshold 5": lambda s, _: peers.intervals(s, num_failed=5),
    "Flagger if its failures had to be consecutive, 5": lambda s, _: peers.intervals(
        s, num_failed=5, consecutive=True
    ),
    "counter tuned to AA_0.7: 2 bad of 10, twice": lambda s, _: peers.intervals(
        s, num_bad=2, num_failed=2
    ),
    "fixed threshold tuned to AA_0.7: 10 bad in all": lambda s, _: peers.total(s, at_least=10),
    "Kayenta as shipped": lambda s, _: kayenta.judged(s),
    "Kayenta on interval rates of bad sessions": lambda s, _: kayenta.on_bad_rates(s),
    "Fisher at each look, p < 0.002": lambda s, _: peers.fisher(s, level=0.002),
    "group sequential z, alpha 0.002": lambda s, _: peers.group_sequential(s, level=0.002),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rule on one scenario. Sessions are the canary's; means are over all streams."""

    num_streams: int
    num_rolled_back: int
    rolled_back_most: float  # upper end of the 95 % interval of the share
    harmed: float  # mean, started before the deciding look; never rolled back: all 400 sessions'
    median_sessions: float | None  # of streams rolled back
    # The same on a fleet with durations: until the deciding block is judged.
    harmed_in_time: float
    median_minutes: float | None
    running: float | None  # canary sessions in flight when it acts, mean
    running_harmed: float | None

    @classmethod
    def of(cls, streams: Streams, times: ArmTimes, stops: Ints, stopped_s: Floats) -> Self:
        """Of a rule that stops after some canary session, and in time at some moment."""
        cost = Cost.of(streams, times, stopped_s)
        stopped = cost.is_rolled_back
        so_far = streams.canary.harmed.cumsum(1)
        last = np.minimum(stops, so_far.shape[1]) - 1
        num_streams, num_stopped = streams.num_streams, int(stopped.sum())
        return cls(
            num_streams=num_streams,
            num_rolled_back=num_stopped,
            rolled_back_most=rates.upper_bound(num_stopped, num_streams, alpha=0.025),
            harmed=float(so_far[np.arange(num_streams), last].mean()),
            median_sessions=_median(stops[stopped]),
            harmed_in_time=float(cost.num_harmed.mean()),
            median_minutes=_median(cost.minutes[stopped]),
            running=_mean(cost.num_running[stopped]),
            running_harmed=_mean(cost.num_running_harmed[stopped]),
        )


def measured(name: str, *, num_streams: int) -> dict[str, Any]:
    """Everything about one scenario, as JSON has it."""
    began_s = process_time()
    seed = streams.seed_of(name)
    drawn = streams.scenario(name, num_streams=num_streams, seed=seed)
    times = timeline.drawn(drawn, seed=seed)
    counts = counting.counted(drawn)
    stops = {rule: stopped(drawn, counts) for rule, stopped in RULES.items()}
    known_s = times.known_s()
    rows = {
        rule: Row.of(drawn, times.canary, CANARY * (blocks + 1), timeline.at(known_s, blocks))
        for rule, blocks in stops.items()
    }
    return {
        "scenario": name,
        "digest": drawn.digest(),
        "rules": {rule: asdict(row) for rule, row in rows.items()},
        "steps": _steps(drawn, times, seed=seed),
        "checks": _checks(drawn, counts, stops[OURS]),
        "cpu_s": process_time() - began_s,
    }


def _steps(drawn: Streams, times: Timeline, *, seed: int) -> dict[str, Any]:
    if drawn.name not in (*streams.QUALIFYING, *streams.HEADLINE):
        return {}
    stopped, small = steps.stopped(drawn, times)
    stopped["memory gate"] = stopped["blocks of 1 + 4"]
    if drawn.name.startswith("OOM"):  # no other fault keeps memory
        in_memory_s = steps.memory_s(times, seed=seed)
        stopped["memory gate"] = np.minimum(stopped["memory gate"], in_memory_s)
    small_s = timeline.at(times.known_s(num_parts=CANARY), small)
    rows = {
        name: Row.of(drawn, times.canary, _sessions_by(times, at_s), at_s)
        for name, at_s in stopped.items()
    }
    # By sessions alone, without time: the number that compares with the headline.
    rows["blocks of 1 + 4, by sessions"] = Row.of(drawn, times.canary, small + 1, small_s)
    return {name: asdict(row) for name, row in rows.items()}


def _sessions_by(times: Timeline, at_s: Floats) -> Ints:
    started: Ints = (times.canary.started_s <= at_s[:, None]).sum(1)
    return started


def _checks(drawn: Streams, counts: AllCounts, stops: Ints) -> dict[str, int]:
    """How many streams were decided in two ways, and how many of them differently."""
    at_once = rules.crossed(rules.combined(counts, Weights()), rules.THRESHOLD)
    num_streams = min(FROM_RECORDS, drawn.num_streams) if len(drawn.strata) == 1 else 0
    from_records = [_stop_of(records.written(drawn, one)) for one in range(num_streams)]
    from_counts = [
        _stop_of(records.as_written(counting.blocks(counts, one))) for one in range(num_streams)
    ]
    return {
        "folded_at_once": drawn.num_streams,
        "folded_at_once_different": int((at_once != stops).sum()),
        "from_records": num_streams,
        "from_records_different": sum(
            one != other for one, other in zip(from_records, from_counts, strict=True)
        ),
    }


def _stop_of(windows: Any) -> int | None:
    return rules.first_at_least(rules.e_values(windows, Weights()), rules.THRESHOLD)


def _median(values: Floats | Ints) -> float | None:
    return float(np.median(values)) if len(values) else None


def _mean(values: Ints) -> float | None:
    return float(values.mean()) if len(values) else None
