"""A stack is tried with every variant of the old one at once, and left with all of them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain import canary as lifecycle
from controlplane.domain import desired, policy_document
from controlplane.domain.canary import Canary, Event, Phase
from controlplane.domain.containment import Exposure
from controlplane.domain.desired import Assignment, Layer, Layers, Qualification
from controlplane.domain.errors import InvalidValueError
from controlplane.domain.flag import Applies, Flag, Variant
from controlplane.domain.fleet import Worker
from controlplane.domain.observation import Observation
from controlplane.domain.plan import plan
from controlplane.domain.policy import Policy, Subject, Workers
from tests.domain import build
from tests.domain.build import FLAG, FUSED, HARDWARE, NOW, PLAIN, STACK, seconds, worker

NEW = "f" * 16
CACHE = Flag(
    name="kv_cache",
    summary="",
    applies=Applies.SESSION,
    plain="bf16",
    variants=(Variant(name="bf16", summary=""), Variant(name="fp8", summary="")),
    fallback={"*": "bf16"},
)
CATALOGUE = (*build.catalogue(), CACHE)
STEPS = [{"name": "one", "workers": 2, "bake": "10s", "least_sessions": 2}]
SETS = [
    {FLAG: FUSED, "kv_cache": "bf16"},
    {FLAG: PLAIN, "kv_cache": "fp8"},
    {FLAG: FUSED, "kv_cache": "fp8"},
]


def policy(**changes: Any) -> Policy:
    return build.policy(flag=None, subject="stack", **{"steps": STEPS, **changes})


def canary(**changes: Any) -> Canary:
    base = {"name": "stack-1", "flag": None, "variant": None, "baseline": None, "stack": NEW}
    return build.canary(**{**base, "old_stack": STACK, "variants": SETS[0], **changes})


def running(name: str, flags: dict[str, str], **changes: Any) -> Worker:
    """A worker that runs `flags`, as it is told to."""
    knows = {flag.name: tuple(one.name for one in flag.variants) for flag in CATALOGUE}
    told = {"desired_flags": flags, "effective_flags": flags, "capabilities": knows}
    return worker(name, **{**told, **changes})


FALLBACK = {FLAG: PLAIN, "kv_cache": "bf16"}


def workers(num_new: int, num_old: int, variants: dict[str, str] = SETS[0]) -> tuple[Worker, ...]:
    new = [running(f"new-{n}", FALLBACK, stack=NEW) for n in range(num_new)]
    return (*new, *(running(f"old-{n}", variants) for n in range(num_old)))


def seen(there: tuple[Worker, ...], **changes: Any) -> Observation:
    fields: dict[str, Any] = {
        "canary": canary(phase=Phase.PENDING, lease_until=None),
        "policy": policy(),
        "catalogue": CATALOGUE,
        "fleet": build.fleet(),
        "workers": there,
        "exposures": (),
        "evidence": build.evidence(sessions=(), memories=(), newest_record_at={}),
        "requests": (),
        "is_next": True,
        "tick": seconds(1),
    }
    return Observation(**{**fields, **changes})


def exposed(seen: Observation) -> tuple[str, ...]:
    """Whom the first step exposes."""
    in_preflight = replace(seen, canary=canary(phase=Phase.PREFLIGHT, lease_until=None))
    planned = plan(in_preflight, now=NOW)
    assert planned.event is Event.PREFLIGHT_PASSED
    return planned.expose


# --- the policy ----------------------------------------------------------------------------------


def test_a_policy_of_a_stack_names_no_flag_and_says_so_in_words() -> None:
    asked = policy()
    assert asked.flag is None
    assert "for a new stack, compared with the old one" in policy_document.describe(asked)[0]
    again = policy_document.parse(
        build.document(flag=None, subject="stack", steps=STEPS), catalogue=CATALOGUE
    )
    assert again.digest == asked.digest


def test_the_digest_of_a_policy_of_a_flag_is_the_same_whether_it_says_so_or_not() -> None:
    silent, told = build.policy(), build.policy(subject="flag")
    assert silent.digest == told.digest
    assert '"subject"' not in silent.document
    assert json.loads(silent.document)["flag"] == FLAG


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"flag": FLAG}, r"^flag: .*no flag"),
        (
            {"steps": [{**STEPS[0], "arm_share": "50%"}]},
            r"^steps\[0\]\.arm_share: .*100%: a worker",
        ),
        (
            {
                "preflight": {
                    "lengths": {"from": 1, "to": 9, "number": 2},
                    "retained_at_most": "1MiB",
                    "rollback_within": "2s",
                    "within": "60s",
                }
            },
            r"^preflight: .*no preflight",
        ),
        ({"subject": "worker"}, r"^subject: .*flag, stack"),
    ],
)
def test_what_a_stack_cannot_be_asked_is_refused(changes: dict[str, Any], refusal: str) -> None:
    document = build.document(**{"flag": None, "subject": "stack", **changes})
    with pytest.raises(InvalidValueError, match=refusal):
        policy_document.parse(document, catalogue=CATALOGUE)


# --- what it compares ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"old_stack": NEW}, "compares a stack with itself"),
        ({"old_stack": None}, "compares a stack with none"),
        ({"variants": {}}, "runs no variant"),
        ({"variant": FUSED}, "compares variants, too"),
        ({"flag": FLAG, "variant": FUSED, "baseline": PLAIN}, "compares stacks, too"),
    ],
)
def test_a_canary_is_about_a_flag_or_a_stack(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        lifecycle.check_invariants(canary(**changes))
    lifecycle.check_invariants(canary())
    assert canary().subject is Subject.STACK
    assert build.canary().subject is Subject.FLAG


# --- the plan ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_new", "num_old", "begins"),
    [(0, 4, False), (1, 1, False), (1, 2, True), (4, 2, True)],
)
def test_it_begins_with_one_worker_of_the_new_stack_and_two_of_the_old(
    num_new: int, num_old: int, *, begins: bool
) -> None:
    planned = plan(seen(workers(num_new, num_old)), now=NOW)
    assert (planned.event is Event.STARTED) is begins


def test_controls_that_run_something_else_are_none() -> None:
    there = (*workers(1, 0), running("old-0", SETS[0]), running("old-1", FALLBACK))
    assert plan(seen(there), now=NOW).event is None


@pytest.mark.parametrize(
    ("num_new", "num_old", "expected"),
    [(1, 4, 1), (2, 4, 2), (5, 4, 2), (3, 2, 2)],
)
def test_only_workers_of_the_new_stack_are_exposed(
    num_new: int, num_old: int, expected: int
) -> None:
    names = exposed(seen(workers(num_new, num_old)))
    assert len(names) == expected
    assert all(name.startswith("new-") for name in names)


@pytest.mark.parametrize(("number", "num_controls"), [(9, 2), (9, 1), (1, 5)])
def test_never_more_are_exposed_than_there_are_controls(number: int, num_controls: int) -> None:
    assert Workers(number=number).beside(8, num_controls=num_controls) <= num_controls


def test_nobody_out_of_service_is_exposed() -> None:
    there = (*workers(0, 3), running("new-0", FALLBACK, stack=NEW, is_cordoned=True))
    assert plan(seen(there), now=NOW).event is None


# --- what its workers run ------------------------------------------------------------------------


def resolved(there: Worker, variants: dict[str, str]) -> desired.Resolution:
    assigned = Assignment(
        canary="c", name="stack-1", salt="s", variants=variants, arm_share=1.0, traffic="live"
    )
    old = frozenset(
        Qualification(flag=flag, variant=variant, hardware=HARDWARE, stack=STACK)
        for flag, variant in variants.items()
    )
    layers = Layers(fleet=build.fleet(promoted=variants), qualifications=old, assignment=assigned)
    return desired.resolve(there, catalogue=CATALOGUE, layers=layers, now=NOW)


@pytest.mark.parametrize("variants", SETS)
def test_outside_its_sessions_an_exposed_worker_stays_at_the_fallback(
    variants: dict[str, str],
) -> None:
    resolution = resolved(running("new-0", FALLBACK, stack=NEW), variants)
    assert resolution.flags == FALLBACK
    assert resolution.experiment is not None
    assert resolution.experiment.variants == variants
    assert {choice.layer for choice in resolution.choices} == {Layer.CANARY}


@pytest.mark.parametrize("flag", [FLAG, "kv_cache"])
def test_variants_of_a_stack_are_tried_together_or_not_at_all(flag: str) -> None:
    fallback = build.pin(FALLBACK[flag], flag=flag)
    pinned = running("new-0", FALLBACK, stack=NEW, pins=(fallback,))
    assert resolved(pinned, SETS[2]).experiment is None


# --- the way back --------------------------------------------------------------------------------


@pytest.mark.parametrize("variants", SETS)
def test_it_is_contained_once_every_variant_that_is_no_fallback_is_off(
    variants: dict[str, str],
) -> None:
    exposure = Exposure(
        worker_id="id-new-0",
        worker="new-0",
        incarnation="incarnation-new-0",
        exposed_at=NOW - seconds(30),
        flag_bytes_before=0,
    )
    back = canary(phase=Phase.ROLLING_BACK, phase_since=NOW - seconds(5), variants=variants)
    off = {"flag_bytes": dict.fromkeys(FALLBACK, 0), "flag_bytes_at": NOW}
    for flag, variant in variants.items():
        left = {**FALLBACK, flag: variant}
        there = running("new-0", left, stack=NEW, **off)
        observed = seen((there,), canary=back, exposures=(exposure,))
        is_still_on = left != FALLBACK
        assert (plan(observed, now=NOW).event is None) is is_still_on
    observed = seen((running("new-0", FALLBACK, stack=NEW, **off),), canary=back)
    planned = plan(replace(observed, exposures=(exposure,)), now=NOW)
    assert planned.event is Event.CONTAINMENT_SEEN
    assert planned.exposures[0].verified_at == NOW


def test_memory_that_one_of_its_flags_does_not_account_for_is_not_zero() -> None:
    variants = SETS[2]
    back = canary(phase=Phase.CONTAINED, phase_since=NOW - seconds(5), variants=variants)
    exposure = Exposure(
        worker_id="id-new-0",
        worker="new-0",
        incarnation="incarnation-new-0",
        exposed_at=NOW - seconds(30),
        flag_bytes_before=10,
        contained_at=NOW - seconds(1),
    )
    for kept, is_verified in (
        ({FLAG: 0}, False),
        ({FLAG: 6, "kv_cache": 5}, False),
        ({FLAG: 5, "kv_cache": 5}, True),
    ):
        there = running("new-0", FALLBACK, stack=NEW, flag_bytes=kept, flag_bytes_at=NOW)
        planned = plan(seen((there,), canary=back, exposures=(exposure,)), now=NOW)
        assert (planned.exposures[0].verified_at is not None) is is_verified
