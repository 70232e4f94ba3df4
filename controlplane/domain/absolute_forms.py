"""Forms of the gates that judge sessions, memory and inputs against a bound."""

from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from controlplane.domain.document import Table, duration_text, share_text, size_text
from controlplane.domain.form import MOST_COUNT, MOST_LENGTH, MOST_SIZE, Form, duration
from controlplane.domain.policy import (
    CoverageGate,
    FailureGate,
    FloorGate,
    FreshnessGate,
    MemoryGate,
    QualityGate,
    StallGate,
    Traffic,
)

_MOST_FPS: Final = 240.0
_MOST_BUCKETS: Final = 1000
MOST_QUALITY: Final = 1e6


def domain(fields_: Table) -> tuple[int, int]:
    """First and last length of a domain of at least two."""
    least = fields_.whole("from", least=1, most=MOST_LENGTH - 1)
    return least, fields_.whole("to", least=least + 1, most=MOST_LENGTH)


def _optional(fields_: Table, name: str) -> timedelta | None:
    return duration(fields_, name) if name in fields_ else None


def _floor(fields_: Table) -> FloorGate:
    return FloorGate(
        at_least=fields_.number("at_least", least=1.0, most=_MOST_FPS),
        sustained=_optional(fields_, "sustained"),
        traffic=_traffic(fields_),
    )


def _floor_bounds(gate: FloorGate) -> dict[str, object]:
    sustained = {"sustained": duration_text(gate.sustained)} if gate.sustained else {}
    return {"at_least": gate.at_least, **sustained, **_traffic_bound(gate.traffic)}


def _floor_words(gate: FloorGate) -> str:
    told = f"every session of the canary averages {gate.at_least} fps or more"
    if gate.sustained:
        told += f"; one that runs below for {duration_text(gate.sustained)} counts before it ends"
    return told + _traffic_words(gate.traffic)


def _failures(fields_: Table) -> FailureGate:
    return FailureGate(
        at_most=fields_.whole("at_most", least=0, most=MOST_COUNT), traffic=_traffic(fields_)
    )


def _failures_words(gate: FailureGate) -> str:
    told = f"at most {gate.at_most} canary sessions fail or are lost"
    return told + _traffic_words(gate.traffic)


def _traffic(fields_: Table) -> Traffic | None:
    return Traffic(fields_.word("traffic", list(Traffic))) if "traffic" in fields_ else None


def _traffic_bound(traffic: Traffic | None) -> dict[str, object]:
    return {} if traffic is None else {"traffic": traffic.value}


def _traffic_words(traffic: Traffic | None) -> str:
    return "" if traffic is None else f"; asked of {traffic} sessions only"


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


FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
        "floor": Form(
            "session_fps",
            frozenset({"at_least", "sustained", "traffic"}),
            _floor,
            _floor_bounds,
            _floor_words,
        ),
        "failures": Form(
            "failed_sessions",
            frozenset({"at_most", "traffic"}),
            _failures,
            lambda gate: {"at_most": gate.at_most, **_traffic_bound(gate.traffic)},
            _failures_words,
        ),
        "stall": Form(
            "longest_stall",
            frozenset({"at_most"}),
            lambda f: StallGate(at_most=duration(f, "at_most")),
            lambda gate: {"at_most": duration_text(gate.at_most)},
            lambda gate: f"no session of the canary stalls above {duration_text(gate.at_most)}",
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
                at_least=f.number("at_least", least=-MOST_QUALITY, most=MOST_QUALITY),
            ),
            lambda gate: {"measure": gate.measure, "at_least": gate.at_least},
            lambda gate: f"{gate.measure} reported for the variant is at least {gate.at_least:g}",
        ),
        "freshness": Form(
            "record_age",
            frozenset({"at_most"}),
            lambda f: FreshnessGate(at_most=duration(f, "at_most")),
            lambda gate: {"at_most": duration_text(gate.at_most)},
            lambda gate: (
                f"no exposed worker's newest record is older than {duration_text(gate.at_most)}"
            ),
        ),
    }
)
