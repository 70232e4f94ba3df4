"""Reads the gates of a policy from their document, writes them back, and says them in words.

One form a gate: what it may say, and how. What a gate means is in `policy.py`; `policies/README.md`
explains every key.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from controlplane.domain.comparison import Weights
from controlplane.domain.document import Table, duration_text, share_text, size_text, table
from controlplane.domain.errors import InvalidValueError
from controlplane.domain.policy import (
    CoverageGate,
    FailureGate,
    FloorGate,
    FreshnessGate,
    Gates,
    MemoryGate,
    NonInferiorityGate,
    PartTimeGate,
    QualityGate,
    RegressionGate,
    SampleRatioGate,
    SlowRateGate,
    StallGate,
)

# Bounds against absurd values, not advice. Below half a second a duration is shorter than a tick.
LEAST: Final = timedelta(milliseconds=500)
MOST: Final = timedelta(days=30)
MOST_COUNT: Final = 1_000_000
MOST_SIZE: Final = 2**40
MOST_LENGTH: Final = 1_000_000  # of a first forward, as a viewer may ask for it
_MOST_FPS: Final = 240.0
_MOST_BUCKETS: Final = 1000
_MOST_EVIDENCE: Final = 1e6
_MOST_QUALITY: Final = 1e6
WEIGHT_KEYS: Final = tuple(field.name for field in fields(Weights))


@dataclass(frozen=True, slots=True)
class Form:
    """How one gate is written."""

    metric: str  # that it judges
    keys: frozenset[str]  # beside `gate` and `metric`
    read: Callable[[Table], Any]
    bounds: Callable[[Any], dict[str, object]]  # what its document says, in one spelling
    words: Callable[[Any], str]


def read(root: Table) -> Gates:
    """The gates that `root` lists. Raises: InvalidValueError."""
    asked: dict[str, Any] = {}
    any_key = frozenset({"gate", "metric"}).union(*(form.keys for form in FORMS.values()))
    for path, item in root.items("gates", most=len(FORMS)):
        fields_ = table(item, path=path, allowed=any_key)
        gate = fields_.word("gate", FORMS)
        form = FORMS[gate]
        table(item, path=path, allowed=form.keys | {"gate", "metric"})
        fields_.word("metric", [form.metric])
        if gate in asked:
            raise fields_.refusal("gate", allowed="each gate once")
        asked[gate] = form.read(fields_)
    if "freshness" not in asked:
        sentence = "a list with the gate freshness: missing telemetry never counts as a pass"
        raise InvalidValueError("gates", sorted(asked), allowed=sentence)
    return Gates(**asked)


def written(gates: Gates) -> list[dict[str, object]]:
    """The gates as their canonical document lists them."""
    return [
        {"gate": name, "metric": form.metric, **form.bounds(asked)}
        for name, form in FORMS.items()
        if (asked := getattr(gates, name)) is not None
    ]


def words(gates: Gates) -> dict[str, str]:
    """What each gate asks; those not asked say so."""
    return {
        name: form.words(asked) if (asked := getattr(gates, name)) is not None else "not asked"
        for name, form in FORMS.items()
    }


def domain(fields_: Table) -> tuple[int, int]:
    """First and last length of a domain of at least two."""
    least = fields_.whole("from", least=1, most=MOST_LENGTH - 1)
    return least, fields_.whole("to", least=least + 1, most=MOST_LENGTH)


def _duration(fields_: Table, name: str) -> timedelta:
    return fields_.duration(name, least=LEAST, most=MOST)


def _optional(fields_: Table, name: str) -> timedelta | None:
    return _duration(fields_, name) if name in fields_ else None


def _evidence(fields_: Table, name: str, default: float) -> float:
    return fields_.number(name, least=1.0, most=_MOST_EVIDENCE) if name in fields_ else default


def _floor(fields_: Table) -> FloorGate:
    return FloorGate(
        at_least=fields_.number("at_least", least=1.0, most=_MOST_FPS),
        sustained=_optional(fields_, "sustained"),
    )


def _floor_bounds(gate: FloorGate) -> dict[str, object]:
    sustained = {"sustained": duration_text(gate.sustained)} if gate.sustained else {}
    return {"at_least": gate.at_least, **sustained}


def _floor_words(gate: FloorGate) -> str:
    told = f"every session of the canary averages {gate.at_least} fps or more"
    if gate.sustained:
        told += f"; one that runs below for {duration_text(gate.sustained)} counts before it ends"
    return told


def _regression(fields_: Table) -> RegressionGate:
    default = RegressionGate()
    gate = RegressionGate(
        at_most=_evidence(fields_, "at_most", default.at_most),
        hold_at=_evidence(fields_, "hold_at", default.hold_at),
        weights=_weights(fields_) if "weights" in fields_ else default.weights,
    )
    if gate.hold_at > gate.at_most:
        raise fields_.refusal("hold_at", allowed=f"at most at_most, {gate.at_most:g}")
    return gate


def _weights(fields_: Table) -> Weights:
    stated = fields_.table("weights", allowed=WEIGHT_KEYS)
    shares = {name: stated.share(name, most=Fraction(1)) for name in WEIGHT_KEYS if name in stated}
    if sum(shares.values()) != 1:
        raise fields_.refusal("weights", allowed="percentages that add up to 100%")
    return Weights(**{name: float(shares.get(name, 0)) for name in WEIGHT_KEYS})


def _regression_bounds(gate: RegressionGate) -> dict[str, object]:
    weights = {name: getattr(gate.weights, name) for name in WEIGHT_KEYS}
    return {
        "at_most": gate.at_most,
        "hold_at": gate.hold_at,
        "weights": {name: share_text(weight) for name, weight in weights.items() if weight},
    }


def _regression_words(gate: RegressionGate) -> str:
    carried = ", ".join(f"{name} {share_text(w)}" for name, w in gate.weights.of().items())
    return (
        f"evidence that the canary does worse than its controls stays below {gate.at_most:g}"
        f" (at most {share_text(1 / gate.at_most)} of healthy canaries ever reach it; from"
        f" {gate.hold_at:g} on nothing advances); of {carried}"
    )


def _slow_rate(fields_: Table) -> SlowRateGate:
    default = SlowRateGate()
    expected = None
    if "expected" in fields_:
        expected = float(fields_.share("expected", most=Fraction(1, 2)))
    return SlowRateGate(expected=expected, hold_at=_evidence(fields_, "hold_at", default.hold_at))


def _slow_rate_bounds(gate: SlowRateGate) -> dict[str, object]:
    expected = {} if gate.expected is None else {"expected": share_text(gate.expected)}
    return {**expected, "hold_at": gate.hold_at}


def _slow_rate_words(gate: SlowRateGate) -> str:
    rate = "that of the baseline's qualification"
    if gate.expected is not None:
        rate = share_text(gate.expected)
    return (
        f"nothing advances while the canary's slow rate is shown to exceed {rate}"
        f" (evidence of {gate.hold_at:g}), whatever its controls do"
    )


def _memory(fields_: Table) -> MemoryGate:
    defaults = MemoryGate(growth_per_length_at_most=0)
    usage = Fraction(str(defaults.usage_at_most))
    lengths = None
    if "domain_lengths" in fields_:
        lengths = fields_.whole("domain_lengths", least=2, most=MOST_LENGTH)
    return MemoryGate(
        growth_per_length_at_most=fields_.size("at_most", most=MOST_SIZE),
        usage_at_most=float(fields_.share("usage_at_most", most=Fraction(1), default=usage)),
        least_lengths=fields_.whole(
            "least_lengths", least=2, most=MOST_COUNT, default=defaults.least_lengths
        ),
        num_domain_lengths=lengths,
    )


def _memory_bounds(gate: MemoryGate) -> dict[str, object]:
    lengths = {"domain_lengths": gate.num_domain_lengths} if gate.num_domain_lengths else {}
    return {
        "at_most": size_text(gate.growth_per_length_at_most),
        "usage_at_most": share_text(gate.usage_at_most),
        "least_lengths": gate.least_lengths,
        **lengths,
    }


def _memory_words(gate: MemoryGate) -> str:
    told = (
        f"at most {size_text(gate.growth_per_length_at_most)} kept for each first-forward "
        f"length, over at least {gate.least_lengths} lengths; resident at most "
        f"{share_text(gate.usage_at_most)} of the limit"
    )
    if gate.num_domain_lengths:
        told += f", forecast to all {gate.num_domain_lengths} lengths too"
    return told


def _coverage(fields_: Table) -> CoverageGate:
    least, most = domain(fields_)
    buckets = fields_.whole("buckets", least=2, most=min(_MOST_BUCKETS, most - least + 1))
    unmet = None
    if "unmet_at_most" in fields_:
        unmet = float(fields_.share("unmet_at_most", most=Fraction(1)))
    return CoverageGate(
        least=least,
        most=most,
        num_buckets=buckets,
        least_met=fields_.whole("at_least", least=1, most=buckets),
        unmet_at_most=unmet,
    )


def _coverage_bounds(gate: CoverageGate) -> dict[str, object]:
    unmet = {} if gate.unmet_at_most is None else {"unmet_at_most": share_text(gate.unmet_at_most)}
    return {
        "from": gate.least,
        "to": gate.most,
        "buckets": gate.num_buckets,
        "at_least": gate.least_met,
        **unmet,
    }


def _coverage_words(gate: CoverageGate) -> str:
    told = (
        f"rated sessions meet at least {gate.least_met} of {gate.num_buckets} buckets "
        f"of first-forward lengths from {gate.least} to {gate.most}"
    )
    if gate.unmet_at_most is not None:
        told += (
            f"; at most {share_text(gate.unmet_at_most)} of what production sends lies in buckets"
            " never met, by a 95% bound"
        )
    return told


def _holding(gate: Any) -> dict[str, object]:
    return {"hold_at": gate.hold_at}


# In the order that results are listed and documents spelled.
FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
        "floor": Form(
            "session_fps", frozenset({"at_least", "sustained"}), _floor, _floor_bounds, _floor_words
        ),
        "failures": Form(
            "failed_sessions",
            frozenset({"at_most"}),
            lambda f: FailureGate(at_most=f.whole("at_most", least=0, most=MOST_COUNT)),
            lambda gate: {"at_most": gate.at_most},
            lambda gate: f"at most {gate.at_most} canary sessions fail or are lost",
        ),
        "stall": Form(
            "longest_stall",
            frozenset({"at_most"}),
            lambda f: StallGate(at_most=_duration(f, "at_most")),
            lambda gate: {"at_most": duration_text(gate.at_most)},
            lambda gate: f"no session of the canary stalls above {duration_text(gate.at_most)}",
        ),
        "regression": Form(
            "evidence_of_harm",
            frozenset({"at_most", "hold_at", "weights"}),
            _regression,
            _regression_bounds,
            _regression_words,
        ),
        "non_inferiority": Form(
            "evidence_of_parity",
            frozenset({"at_least"}),
            lambda f: NonInferiorityGate(
                at_least=_evidence(f, "at_least", NonInferiorityGate().at_least)
            ),
            lambda gate: {"at_least": gate.at_least},
            lambda gate: (
                "slow and failure rates are shown to be not worse than the controls' by the step's"
                f" margin: evidence of {gate.at_least:g} (wrong in at most"
                f" {share_text(1 / gate.at_least)})"
            ),
        ),
        "slow_rate": Form(
            "slow_rate",
            frozenset({"expected", "hold_at"}),
            _slow_rate,
            _slow_rate_bounds,
            _slow_rate_words,
        ),
        "part_time": Form(
            "part_times",
            frozenset({"hold_at"}),
            lambda f: PartTimeGate(hold_at=_evidence(f, "hold_at", PartTimeGate().hold_at)),
            _holding,
            lambda gate: (
                "nothing advances while a part of the step is shown to take longer than in the"
                f" controls (evidence of {gate.hold_at:g})"
            ),
        ),
        "sample_ratio": Form(
            "sessions_by_arm",
            frozenset({"hold_at"}),
            lambda f: SampleRatioGate(hold_at=_evidence(f, "hold_at", SampleRatioGate().hold_at)),
            _holding,
            lambda gate: (
                "nothing advances while arms are shown to be recorded or rated in other shares"
                f" than they were drawn in (evidence of {gate.hold_at:g})"
            ),
        ),
        "memory": Form(
            "retained_bytes_per_length",
            frozenset({"at_most", "usage_at_most", "least_lengths", "domain_lengths"}),
            _memory,
            _memory_bounds,
            _memory_words,
        ),
        "coverage": Form(
            "first_forward_lengths",
            frozenset({"from", "to", "buckets", "at_least", "unmet_at_most"}),
            _coverage,
            _coverage_bounds,
            _coverage_words,
        ),
        "quality": Form(
            "quality",
            frozenset({"measure", "at_least"}),
            lambda f: QualityGate(
                measure=f.name("measure"),
                at_least=f.number("at_least", least=-_MOST_QUALITY, most=_MOST_QUALITY),
            ),
            lambda gate: {"measure": gate.measure, "at_least": gate.at_least},
            lambda gate: f"{gate.measure} reported for the variant is at least {gate.at_least:g}",
        ),
        "freshness": Form(
            "record_age",
            frozenset({"at_most"}),
            lambda f: FreshnessGate(at_most=_duration(f, "at_most")),
            lambda gate: {"at_most": duration_text(gate.at_most)},
            lambda gate: (
                f"no exposed worker's newest record is older than {duration_text(gate.at_most)}"
            ),
        ),
    }
)
