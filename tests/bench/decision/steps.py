"""What would harm fewer sessions without losing validity, each step on the same streams.

In turns: failures counted at once by the logrank factor (a failed session against all that run at
that moment, of its stratum), blocks of 1 + 4, and the memory gate for a kernel that keeps a buffer
for each length.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Final, Self

import numpy as np

from controlplane.domain import eprocess, memory_gate
from controlplane.domain.blocks import FAILED
from controlplane.domain.comparison import Weights
from controlplane.domain.eprocess import Mixture, Table
from controlplane.domain.policy import MemoryGate
from controlplane.domain.verdict import Case, Verdict
from tests.bench.decision import counts as counting
from tests.bench.decision import rules, timeline
from tests.bench.decision.rules import Stakes
from tests.bench.decision.streams import CANARY, Arm, Bools, Floats, Ints, Streams
from tests.bench.decision.timeline import ArmTimes, Timeline
from tests.domain import build

# A tenth of the stake a block, for blocks of a tenth: late faults are bet on at the same pace.
SMALL_STAKES: Final = Stakes(later=eprocess.LATER_STAKE / CANARY)
_WEIGHTS: Final = Weights()
# Exposed workers: the canary's fifth of a hundred.
NUM_EXPOSED: Final = 20
# First-forward lengths of the August prompts (assumed: log-normal around 200 tokens, as people's
# sentences are, cut to the 509 values from 4 to 512), and what the kernel kept for each.
_LENGTH_MEDIAN, _LENGTH_SIGMA, _LENGTHS = 200.0, 0.6, (4, 512)
_KEPT_BYTES: Final = 8 * 2**20
_GATE: Final = MemoryGate(growth_per_length_at_most=2**20)
_SEED: Final = 20261202


def stopped(streams: Streams, times: Timeline) -> tuple[dict[str, Floats], Ints]:
    """When each variant of our rule rolls each stream back, infinity being never.

    Keys, each with all before it: `as studied`, `failures as written`, `failures at once`,
    `blocks of 1 + 4`. Then the canary session after which blocks of 1 + 4 do, counted from 0, with
    failures in their blocks and no time in between; the number of sessions if never.
    """
    whole = counting.counted(streams)
    of_whole, known_s = rules.of_sessions(whole), times.known_s()
    stopped_s = {}
    for name, skips_empty in (("as studied", False), ("failures as written", True)):
        of_failures = rules.mixture(whole[FAILED], skips_empty=skips_empty)
        values = rules.total({**of_whole, FAILED: of_failures}, _WEIGHTS)
        stopped_s[name] = timeline.at(known_s, rules.crossed(values, rules.THRESHOLD))
    small = counting.counted(counting.in_smaller_blocks(streams, num_parts=CANARY))
    of_small = rules.of_sessions(small, SMALL_STAKES)
    failures = list(_failures(streams, times))
    stopped_s["failures at once"] = _merged_s(known_s, _partial(of_whole), failures)
    small_known_s = times.known_s(num_parts=CANARY)
    stopped_s["blocks of 1 + 4"] = _merged_s(small_known_s, _partial(of_small), failures)
    of_small[FAILED] = rules.mixture(small[FAILED], SMALL_STAKES)
    return stopped_s, rules.crossed(rules.total(of_small, _WEIGHTS), rules.THRESHOLD)


def memory_s(times: Timeline, *, seed: int) -> Floats:
    """When the memory gate rolls each stream back, if its canary is the August kernel.

    A canary session runs on one of the exposed workers, at random, and leaves its length's buffer
    there at its first forward pass; the worker tells of it before the next session.
    """
    randomness = np.random.default_rng([seed, _SEED])
    shape = times.canary.started_s.shape
    workers = randomness.integers(0, NUM_EXPOSED, shape)
    lengths = np.round(randomness.lognormal(np.log(_LENGTH_MEDIAN), _LENGTH_SIGMA, shape))
    lengths = np.clip(lengths, *_LENGTHS).astype(np.int64)
    first = [
        _first_failing(on.tolist(), of.tolist()) for on, of in zip(workers, lengths, strict=True)
    ]
    return timeline.at(times.canary.started_s, np.array(first, dtype=np.int64))


def _first_failing(workers: list[int], lengths: list[int]) -> int:
    """The session after whose first forward the gate fails; the number of sessions if none."""
    met: dict[int, set[int]] = {}
    for index, (worker, length) in enumerate(zip(workers, lengths, strict=True)):
        met.setdefault(worker, set()).add(length)
        if fails_on_memory(len(met[worker])):
            return index
    return len(workers)


@cache
def fails_on_memory(num_lengths: int) -> bool:
    """Whether the product's gate fails on a worker that keeps a buffer for so many lengths."""
    kept = dict.fromkeys(range(num_lengths), _KEPT_BYTES)
    told = build.memory(lengths=kept, flag_bytes=sum(kept.values()))
    policy = build.policy()
    case = Case(
        policy=policy,
        step=policy.steps[0],
        variant=build.FUSED,
        exposed=frozenset({told.worker}),
        exposed_since=None,
        step_since=build.NOW,
        evidence=build.evidence(memories=(told,)),
    )
    result = memory_gate.memory(_GATE, case, now=build.NOW)
    return result.verdict is Verdict.FAILING


def _partial(of_sessions: Mapping[str, Floats]) -> Floats:
    """The part of the weighted mean that is not of failures."""
    weights = _WEIGHTS.of()
    partial: Floats = np.sum([weights[name] * of_sessions[name] for name in of_sessions], axis=0)
    return partial


def _failures(streams: Streams, times: Timeline) -> Iterator[list[tuple[float, float]]]:
    """For each stream (moment, e-value of failures after it), a failure a block."""
    arms = ((streams.canary, times.canary), (streams.control, times.control))
    fleets = [[_Fleet.of(arm, when, stratum) for arm, when in arms] for stratum in streams.strata]
    for stream in range(streams.num_streams):
        events: list[tuple[float, Table]] = []
        for of_arms in fleets:
            for is_canary, fleet in zip((True, False), of_arms, strict=True):
                at_s = fleet.failed_s(stream)
                at_risk = [other.num_running(stream, at_s) for other in of_arms]
                events += [
                    (moment, Table(int(is_canary), canary, int(not is_canary), control))
                    for moment, canary, control in zip(at_s, *at_risk, strict=True)
                ]
        state, values = Mixture(), []
        for moment, table in sorted(events):
            state = state.after([table])
            values.append((moment, state.value))
        yield values


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Who of one arm and stratum runs when; sorted, so that a moment is looked up."""

    started_s: Floats
    ended_s: Floats  # in order of ends
    failed: Bools
    died_s: Floats  # in order of starts

    @classmethod
    def of(cls, arm: Arm, times: ArmTimes, stratum: int) -> Self:
        chosen = arm.stratum == stratum
        ended_s = times.ended_s[:, chosen]
        return cls(
            times.started_s[:, chosen], np.sort(ended_s, axis=1), arm.failed[:, chosen], ended_s
        )

    def failed_s(self, stream: int) -> list[float]:
        """When sessions of one stream failed."""
        moments: list[float] = self.died_s[stream, self.failed[stream]].tolist()
        return moments

    def num_running(self, stream: int, at_s: list[float]) -> list[int]:
        """How many run at each moment; who ends at that very moment still does."""
        begun = np.searchsorted(self.started_s[stream], at_s, side="right")
        over = np.searchsorted(self.ended_s[stream], at_s, side="left")
        running: list[int] = (begun - over).tolist()
        return running


def _merged_s(
    known_s: Floats, of_sessions: Floats, failures: list[list[tuple[float, float]]]
) -> Floats:
    """The first moment, of a block or of a failure, at which the weighted mean is enough."""
    return np.array(
        [
            _first_s(known_s[stream], of_sessions[stream], events)
            for stream, events in enumerate(failures)
        ]
    )


def _first_s(known_s: Floats, of_sessions: Floats, events: list[tuple[float, float]]) -> float:
    weight = _WEIGHTS.of()[FAILED]
    at_s = np.array([moment for moment, _ in events])
    of_failures = np.array([1.0, *(value for _, value in events)])
    # What the other has come to by each moment of the one.
    failed_then = of_failures[np.searchsorted(at_s, known_s, side="right")]
    padded = np.concatenate([[_partial_at_start()], of_sessions])
    sessions_then = padded[np.searchsorted(known_s, at_s, side="right")]
    moments = np.concatenate([known_s, at_s])
    values = np.concatenate(
        [of_sessions + weight * failed_then, sessions_then + weight * of_failures[1:]]
    )
    return float(min(moments[values >= rules.THRESHOLD], default=inf))


def _partial_at_start() -> float:
    return sum(weight for name, weight in _WEIGHTS.of().items() if name != FAILED)
