"""Forms of the gates that compare a canary with its controls."""

from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from controlplane.domain.comparison import Weights
from controlplane.domain.document import Table, share_text
from controlplane.domain.form import Form, evidence
from controlplane.domain.policy import (
    NonInferiorityGate,
    PartTimeGate,
    RegressionGate,
    SampleRatioGate,
    SlowRateGate,
)

WEIGHT_KEYS: Final = tuple(field.name for field in fields(Weights))


def _regression(fields_: Table) -> RegressionGate:
    default = RegressionGate()
    gate = RegressionGate(
        at_most=evidence(fields_, "at_most", default.at_most),
        hold_at=evidence(fields_, "hold_at", default.hold_at),
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
    return SlowRateGate(expected=expected, hold_at=evidence(fields_, "hold_at", default.hold_at))


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


def _holding(gate: Any) -> dict[str, object]:
    return {"hold_at": gate.hold_at}


FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
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
                at_least=evidence(f, "at_least", NonInferiorityGate().at_least)
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
            lambda f: PartTimeGate(hold_at=evidence(f, "hold_at", PartTimeGate().hold_at)),
            _holding,
            lambda gate: (
                "nothing advances while a part of the step is shown to take longer than in the"
                f" controls (evidence of {gate.hold_at:g})"
            ),
        ),
        "sample_ratio": Form(
            "sessions_by_arm",
            frozenset({"hold_at"}),
            lambda f: SampleRatioGate(hold_at=evidence(f, "hold_at", SampleRatioGate().hold_at)),
            _holding,
            lambda gate: (
                "nothing advances while arms are shown to be recorded or rated in other shares"
                f" than they were drawn in (evidence of {gate.hold_at:g})"
            ),
        ),
    }
)
