"""What a policy document may say, what is refused, and the canonical form that is signed off."""

import copy
import json
import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain import policy_document
from controlplane.domain.comparison import Weights
from controlplane.domain.errors import InvalidValueError
from controlplane.domain.flag import Applies, Flag, Variant
from controlplane.domain.policy import HardStop, Limits, Policy, Traffic
from tests.domain import build
from tests.domain.build import document


def step(**changes: object) -> dict[str, object]:
    return {"name": "one", "workers": 1, "bake": "10s", "least_sessions": 2, **changes}


def gate(index: int, **changes: object) -> list[dict[str, object]]:
    """The gates of the document, one of them changed; None takes a key away."""
    gates: list[dict[str, Any]] = copy.deepcopy(document()["gates"])
    merged = {**gates[index], **changes}
    gates[index] = {key: value for key, value in merged.items() if value is not None}
    return list(gates)


FRESHNESS = {"gate": "freshness", "metric": "record_age", "at_most": "15s"}


def test_a_document_is_read_as_it_says() -> None:
    steps = [
        step(traffic="synthetic", bake="15h"),
        step(name="two", workers="12.5%", arm_share="50%"),
    ]
    policy = build.policy(steps=steps, limits={"lease": "10s"})
    first, second = policy.steps
    assert (first.traffic, first.bake) == (Traffic.SYNTHETIC, timedelta(hours=15))
    assert first.workers.number == 1
    assert second.workers.share == Fraction(1, 8)
    assert (second.traffic, second.arm_share) == (Traffic.LIVE, 0.5)
    assert policy.gates.floor is not None
    assert policy.gates.floor.at_least == 24.0
    assert policy.gates.freshness.at_most == timedelta(seconds=15)
    assert policy.limits == Limits(lease=timedelta(seconds=10))


def test_hard_stops_that_are_not_named_are_all_of_them() -> None:
    assert build.policy().hard_stops == frozenset(HardStop)
    assert build.policy(hard_stops=["nan"]).hard_stops == {HardStop.NAN}


REGRESSION = {"gate": "regression", "metric": "evidence_of_harm"}
PARITY = {"gate": "non_inferiority", "metric": "evidence_of_parity"}
COMPARED: list[dict[str, object]] = [
    {"gate": "stall", "metric": "longest_stall", "at_most": "5s"},
    {**REGRESSION, "weights": {"slow": "70%", "step_time": "30%"}},
    {**PARITY},
    {"gate": "slow_rate", "metric": "slow_rate", "expected": "2%"},
    {"gate": "part_time", "metric": "part_times"},
    {"gate": "sample_ratio", "metric": "sessions_by_arm"},
    {"gate": "quality", "metric": "quality", "measure": "lpips", "at_least": -0.5},
]

REFUSED: list[tuple[dict[str, object], str]] = [
    ({"colour": "red"}, "colour"),
    ({"policy": 2}, "policy"),
    ({"policy": True}, "policy"),
    ({"policy": None}, "policy"),
    ({"name": "Not A Name"}, "name"),
    ({"name": None}, "name"),
    ({"summary": 1}, "summary"),
    ({"flag": "decoder"}, "flag"),
    ({"flag": ["fused_allreduce"]}, "flag"),
    ({"steps": None}, "steps"),
    ({"steps": []}, "steps"),
    ({"steps": {}}, "steps"),
    ({"steps": [step(name=f"s{number}") for number in range(21)]}, "steps"),
    ({"steps": ["one"]}, "steps[0]"),
    ({"steps": [step(), step()]}, "steps[1].name"),
    ({"steps": [step(pause="1s")]}, "steps[0].pause"),
    ({"steps": [step(workers=0)]}, "steps[0].workers"),
    ({"steps": [step(workers=-1)]}, "steps[0].workers"),
    ({"steps": [step(workers=True)]}, "steps[0].workers"),
    ({"steps": [step(workers=1.0)]}, "steps[0].workers"),
    ({"steps": [step(workers="51%")]}, "steps[0].workers"),
    ({"steps": [step(workers="1")]}, "steps[0].workers"),
    ({"steps": [step(workers=10**400)]}, "steps[0].workers"),
    ({"steps": [step(traffic="shadow")]}, "steps[0].traffic"),
    ({"steps": [step(arm_share="0%")]}, "steps[0].arm_share"),
    ({"steps": [step(arm_share=0.5)]}, "steps[0].arm_share"),
    ({"steps": [step(bake="10")]}, "steps[0].bake"),
    ({"steps": [step(bake="0s")]}, "steps[0].bake"),
    ({"steps": [step(bake="400d")]}, "steps[0].bake"),
    ({"steps": [step(bake=10)]}, "steps[0].bake"),
    ({"steps": [step(least_sessions=0)]}, "steps[0].least_sessions"),
    ({"steps": [step(least_sessions=2.5)]}, "steps[0].least_sessions"),
    ({"gates": None}, "gates"),
    ({"gates": [FRESHNESS] * 2}, "gates[1].gate"),
    ({"gates": [{"metric": "record_age", "at_most": "1s"}]}, "gates[0].gate"),
    ({"gates": gate(1, gate="latency")}, "gates[1].gate"),
    ({"gates": [FRESHNESS, {**REGRESSION, "at_most": 0.5}]}, "gates[1].at_most"),
    ({"gates": [FRESHNESS, {**REGRESSION, "hold_at": 101}]}, "gates[1].hold_at"),
    ({"gates": [FRESHNESS, {**REGRESSION, "weights": {"slow": "90%"}}]}, "gates[1].weights"),
    ({"gates": [FRESHNESS, {**REGRESSION, "weights": {"fps": "90%"}}]}, "gates[1].weights.fps"),
    ({"gates": [FRESHNESS, PARITY]}, "steps[0].margin"),
    ({"steps": [step(margin="1%")]}, "steps[0].margin"),
    ({"gates": [FRESHNESS, PARITY], "steps": [step(margin="51%")]}, "steps[0].margin"),
    (
        {
            "gates": [FRESHNESS, PARITY],
            "steps": [step(margin="1%"), {**step(margin="2%"), "name": "two"}],
        },
        "steps[1].margin",
    ),
    ({"gates": gate(0, sustained=5)}, "gates[0].sustained"),
    ({"gates": gate(2, domain_lengths=1)}, "gates[2].domain_lengths"),
    ({"gates": gate(1, metric="session_fps")}, "gates[1].metric"),
    ({"gates": gate(1, metric=None)}, "gates[1].metric"),
    ({"gates": gate(0, at_least=math.nan)}, "gates[0].at_least"),
    ({"gates": gate(0, at_least=math.inf)}, "gates[0].at_least"),
    ({"gates": gate(0, at_least=True)}, "gates[0].at_least"),
    ({"gates": gate(0, at_least="24")}, "gates[0].at_least"),
    ({"gates": gate(0, at_least=None)}, "gates[0].at_least"),
    ({"gates": gate(0, at_least=0)}, "gates[0].at_least"),
    ({"gates": gate(0, at_most=1)}, "gates[0].at_most"),
    ({"gates": gate(1, at_most=-1)}, "gates[1].at_most"),
    ({"gates": gate(1, at_most=0.5)}, "gates[1].at_most"),
    ({"gates": gate(1, at_least=1)}, "gates[1].at_least"),
    ({"gates": gate(2, at_most=1)}, "gates[2].at_most"),
    ({"gates": gate(2, at_most="1MB")}, "gates[2].at_most"),
    ({"gates": gate(2, usage_at_most="101%")}, "gates[2].usage_at_most"),
    ({"gates": gate(2, least_lengths=1)}, "gates[2].least_lengths"),
    ({"gates": gate(3, at_most=15)}, "gates[3].at_most"),
    ({"gates": gate(3, at_most=None)}, "gates[3].at_most"),
    ({"gates": gate(3, at_most="15s", least_lengths=3)}, "gates[3].least_lengths"),
    ({"hard_stops": []}, "hard_stops"),
    ({"hard_stops": "nan"}, "hard_stops"),
    ({"hard_stops": ["nan", "nan"]}, "hard_stops[1]"),
    ({"hard_stops": ["nan", "rank_died"]}, "hard_stops[1]"),
    ({"limits": []}, "limits"),
    ({"limits": {"holdback": "2%"}}, "limits.holdback"),
    ({"limits": {"lease": 90}}, "limits.lease"),
    ({"limits": {"lease": None}}, "limits.lease"),
    ({"limits": {"block": "1ms"}}, "limits.block"),
    ({"limits": {"max_flips_per_minute": 0}}, "limits.max_flips_per_minute"),
]


@pytest.mark.parametrize(("changes", "key"), REFUSED)
def test_what_a_policy_may_not_say_is_refused_under_its_full_path(
    changes: dict[str, object], key: str
) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        build.policy(**changes)
    assert refusal.value.key == key
    assert str(refusal.value).startswith(f"{key}: ")
    assert refusal.value.allowed


@pytest.mark.parametrize("root", [None, [], "policy", 1, True, {1: 2}])
def test_a_document_that_is_no_table_is_refused(root: object) -> None:
    with pytest.raises(InvalidValueError, match=r"^document: "):
        policy_document.parse(root, catalogue=build.catalogue())


def test_a_policy_without_freshness_is_refused_with_the_reason() -> None:
    gates = [item for item in document()["gates"] if item["gate"] != "freshness"]
    with pytest.raises(InvalidValueError, match="missing telemetry never counts as a pass"):
        build.policy(gates=gates)


PREFLIGHT = {
    "lengths": {"from": 8, "to": 120, "number": 8},
    "retained_at_most": "1MiB",
    "rollback_within": "2s",
    "within": "30s",
}
COVERAGE = {
    "gate": "coverage",
    "metric": "first_forward_lengths",
    "from": 8,
    "to": 120,
    "buckets": 8,
    "at_least": 6,
}


def test_a_preflight_is_read_as_it_says_and_spreads_its_lengths_over_the_domain() -> None:
    asked = build.policy(preflight=PREFLIGHT).preflight
    assert asked is not None
    assert asked.lengths == (8, 24, 40, 56, 72, 88, 104, 120)
    assert (asked.retained_at_most, asked.within) == (2**20, timedelta(seconds=30))
    assert build.policy().preflight is None


@given(st.integers(1, 500), st.integers(1, 500), st.data())
def test_the_lengths_of_a_preflight_are_different_and_reach_both_ends(
    least: int, width: int, draws: st.DataObject
) -> None:
    number = draws.draw(st.integers(2, min(64, width + 1)))
    lengths = {"from": least, "to": least + width, "number": number}
    asked = build.policy(preflight={**PREFLIGHT, "lengths": lengths}).preflight
    assert asked is not None
    assert len(set(asked.lengths)) == number
    assert (asked.lengths[0], asked.lengths[-1]) == (least, least + width)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"lengths": {"from": 8, "to": 8, "number": 2}}, "preflight.lengths.to"),
        ({"lengths": {"from": 0, "to": 8, "number": 2}}, "preflight.lengths.from"),
        ({"lengths": {"from": 1, "to": 3, "number": 4}}, "preflight.lengths.number"),
        ({"lengths": {"from": 1, "to": 3, "number": 1}}, "preflight.lengths.number"),
        ({"lengths": {"from": 1, "to": 3, "step": 1}}, "preflight.lengths.step"),
        ({"lengths": 8}, "preflight.lengths"),
        ({"within": "2s"}, "preflight.within"),
        ({"retained_at_most": 1024}, "preflight.retained_at_most"),
        ({"rollback_within": "2"}, "preflight.rollback_within"),
        ({"speed": "fast"}, "preflight.speed"),
    ],
)
def test_a_preflight_that_cannot_be_is_refused_under_its_key(
    changes: dict[str, object], key: str
) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        build.policy(preflight={**PREFLIGHT, **changes})
    assert refusal.value.key == key


@pytest.mark.parametrize("nothing", [None, {}, [], "yes"])
def test_a_preflight_that_asks_nothing_is_refused(nothing: object) -> None:
    """Whoever writes the word wants one: to skip it, leave it out."""
    with pytest.raises(InvalidValueError, match=r"^preflight"):
        policy_document.parse({**document(), "preflight": nothing}, catalogue=build.catalogue())


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"to": 8}, "gates[1].to"),
        ({"buckets": 1}, "gates[1].buckets"),
        ({"buckets": 114}, "gates[1].buckets"),
        ({"at_least": 9}, "gates[1].at_least"),
        ({"at_least": 0}, "gates[1].at_least"),
        ({"at_most": 6}, "gates[1].at_most"),
    ],
)
def test_a_coverage_that_cannot_be_is_refused_under_its_key(
    changes: dict[str, object], key: str
) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        build.policy(gates=[FRESHNESS, {**COVERAGE, **changes}])
    assert refusal.value.key == key


def test_preflight_and_coverage_are_in_the_document_that_is_signed_off() -> None:
    told = build.policy(
        preflight=PREFLIGHT, limits={"decide_within": "6h"}, gates=[FRESHNESS, COVERAGE]
    )
    again = policy_document.parse(json.loads(told.document), catalogue=build.catalogue())
    assert again == told
    assert told.limits.decide_within == timedelta(hours=6)
    assert told.gates.coverage is not None


def test_a_share_of_the_sessions_is_refused_where_a_worker_is_one_arm() -> None:
    decoder = Flag(
        name="decoder",
        summary="",
        applies=Applies.RESTART,
        plain="shared",
        variants=(Variant(name="shared", summary=""),),
        fallback={"*": "shared"},
    )
    split = document(flag="decoder", steps=[step(arm_share="50%")])
    with pytest.raises(InvalidValueError, match=r"^steps\[0\]\.arm_share: .*100%: decoder"):
        policy_document.parse(split, catalogue=[decoder])
    whole = document(flag="decoder", steps=[step(arm_share="100%")])
    assert policy_document.parse(whole, catalogue=[decoder]).steps[0].arm_share == 1.0


def test_equal_content_has_one_digest_whatever_the_spelling() -> None:
    spelled = build.policy(
        steps=[step(bake="3600s")],
        gates=gate(2, at_most="1024KiB", usage_at_most="90.00%"),
        limits={"outcome_horizon": "500ms"},
    )
    other = build.policy(
        summary=" For  a\ntest.",
        steps=[step(bake="1h", traffic="live", arm_share="100%")],
        gates=list(reversed(gate(0, at_least=24))),
        hard_stops=["breaker_trip", "rank_disagreement", "nan", "out_of_memory"],
        limits={"lease": "90000ms", "outcome_horizon": "500ms"},
    )
    assert other == spelled
    assert other.digest == spelled.digest


def test_the_order_of_keys_is_no_content() -> None:
    backwards = dict(reversed(document().items()))
    assert policy_document.parse(backwards, catalogue=build.catalogue()) == build.policy()


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"summary": "Other."},
        {"steps": [step(bake="11s")]},
        {"steps": [step(least_sessions=3)]},
        {"steps": [step(arm_share="50%")]},
        {"steps": [step(workers="50%")]},
        {"gates": gate(0, at_least=23.9)},
        {"gates": gate(1, at_most=1)},
        {"gates": gate(2, usage_at_most="89.9999%")},
        {"gates": [FRESHNESS]},
        {"hard_stops": ["nan"]},
        {"limits": {"lease": "10s"}},
    ],
)
def test_any_change_of_content_changes_the_digest(changes: dict[str, object]) -> None:
    assert build.policy(**changes).digest != build.policy().digest


def test_the_canonical_document_states_every_default() -> None:
    """What is signed off must not change when a release changes a default."""
    stated = json.loads(build.policy(limits=None).document)
    assert stated["limits"].keys() == Limits.__dataclass_fields__.keys()
    assert stated["steps"][0].keys() == policy_document.STEP_KEYS - {"margin"}
    assert stated["gates"][2]["usage_at_most"] == "90%"
    assert sorted(stated["hard_stops"]) == sorted(HardStop)


WHOLE = st.integers(1, 10**6)
SHARES = st.integers(1, 10**6).map(lambda parts: f"{parts // 10**4}.{parts % 10**4:04d}%")
DURATIONS = st.one_of(
    st.integers(500, 10**8).map("{}ms".format), st.integers(1, 10**6).map("{}s".format)
)
STEPS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.from_regex(r"[a-z][a-z0-9-]{0,5}[a-z]", fullmatch=True),
            "workers": WHOLE,
            "bake": DURATIONS,
            "least_sessions": WHOLE,
        },
        optional={"arm_share": SHARES, "traffic": st.sampled_from(["live", "synthetic"])},
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda step: step["name"],
)


@given(STEPS, DURATIONS, SHARES)
def test_the_canonical_document_reads_back_as_the_same_policy(
    steps: list[dict[str, object]], lease: str, usage: str
) -> None:
    policy = build.policy(steps=steps, gates=gate(2, usage_at_most=usage), limits={"lease": lease})
    again = policy_document.parse(json.loads(policy.document), catalogue=build.catalogue())
    assert again == policy


JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["5s", "50%", "1MiB", "floor", "nan", 10**400, "9" * 5_000, "\ud800"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


def _places(value: object) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    children = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    here = [(value, key) for key, _ in children]
    return here + [place for _, child in children for place in _places(child)]


@given(st.data())
def test_any_document_parses_or_is_refused_under_a_key(data: st.DataObject) -> None:
    """Never another exception: what a person sends must not look like a fault of ours."""
    mutated = copy.deepcopy(document(hard_stops=["nan", "breaker_trip"]))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(_places(mutated)))
        action = data.draw(st.sampled_from(["replace", "delete", "add"]))
        if action == "delete":
            del container[key]
        elif action == "add" and isinstance(container, dict):
            container[data.draw(st.text(max_size=6))] = data.draw(JUNK)
        else:
            container[key] = data.draw(JUNK)
        if not _places(mutated):
            break
    answer = _parsed_or_refused(mutated)
    if isinstance(answer, InvalidValueError):
        assert answer.key
        assert str(answer).encode()
    else:
        assert _parsed_or_refused(json.loads(answer.document)) == answer


def _parsed_or_refused(mutated: object) -> Policy | InvalidValueError:
    try:
        return policy_document.parse(mutated, catalogue=build.catalogue())
    except InvalidValueError as refusal:
        return refusal


@given(JUNK)
def test_anything_at_all_parses_or_is_refused_under_a_key(junk: object) -> None:
    with pytest.raises(InvalidValueError):
        policy_document.parse(junk, catalogue=build.catalogue())


def test_a_description_tells_what_is_asked_and_what_is_not() -> None:
    policy = build.policy(gates=[FRESHNESS], hard_stops=["nan"], steps=[step(workers="25%")])
    told = "\n".join(policy_document.describe(policy))
    assert "gate floor: not asked" in told
    assert "gate failures: not asked" in told
    assert "gate memory: not asked" in told
    assert "gate freshness: no exposed worker's newest record is older than 15s" in told
    assert "preflight: not asked" in told
    assert "does not roll back at the first: breaker_trip, out_of_memory, rank_disagreement" in told
    assert "25% of the workers" in told


def test_a_description_of_a_full_policy_leaves_nothing_unasked() -> None:
    gates = [*document()["gates"], COVERAGE, *COMPARED]
    steps = [step(margin="2%", arm_share="20%")]
    told = policy_document.describe(build.policy(gates=gates, preflight=PREFLIGHT, steps=steps))
    assert not [line for line in told if "not asked" in line]
    assert any("at most 1MiB kept for each, back on the fallback within 2s" in one for one in told)
    assert any("at least 6 of 8 buckets of first-forward lengths from 8 to 120" in x for x in told)
    assert any("24.0 fps or more" in line for line in told)


def test_a_policy_with_every_gate_is_read_again_as_it_was_written() -> None:
    gates = [*document()["gates"], COVERAGE, *COMPARED]
    policy = build.policy(gates=gates, steps=[step(margin="2%", arm_share="20%")])
    again = policy_document.parse(json.loads(policy.document), catalogue=build.catalogue())
    assert again == policy
    assert policy.gates.regression is not None
    assert policy.gates.regression.weights == Weights(
        slow=0.7, failed=0.0, shift=0.0, step_time=0.3
    )
    assert policy.steps[0].margin == 0.02


def test_evidence_that_is_not_asked_for_changes_no_digest_of_old_policies() -> None:
    """A canary that runs over an upgrade is judged by the policy it was started with."""
    stated = json.loads(build.policy().document)
    assert [one["gate"] for one in stated["gates"]] == ["floor", "failures", "memory", "freshness"]
    assert stated["gates"][0].keys() == {"gate", "metric", "at_least"}
    assert stated["gates"][2].keys() == {
        "gate",
        "metric",
        "at_most",
        "usage_at_most",
        "least_lengths",
    }
