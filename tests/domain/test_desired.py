"""What a worker should run, walked over every combination of who may speak for it."""

from itertools import product
from typing import Any

import pytest

from controlplane.domain import desired
from controlplane.domain.desired import Assignment, Layer, Layers, Qualification, Resolution
from controlplane.domain.fleet import Mode
from tests.domain import build
from tests.domain.build import FLAG, FUSED, HARDWARE, NOW, PLAIN, STACK, pin, seconds, worker

# `fused_all` stands for what a pin asks for, so that it differs from what is promoted.
PINNED = "fused_all"
ASSIGNED = Assignment(
    canary="canary-1",
    name="fused-allreduce-1",
    salt="salt",
    variants={FLAG: "fused_small_tiles"},
    arm_share=0.5,
    traffic="live",
)
QUALIFIED = Qualification(flag=FLAG, variant=FUSED, hardware=HARDWARE, stack=STACK)
SPEAKERS = ("pin", "canary", "breaker", "pin_to_fallback", "break_glass", "stop_the_line")


def resolved(
    speaking: frozenset[str], *, promotion: str = "none", mode: Mode = Mode.ENFORCE
) -> Resolution:
    pins = [pin(PINNED)] * ("pin" in speaking) + [pin(PLAIN)] * ("pin_to_fallback" in speaking)
    seen = worker(
        pins=tuple(pins),
        trip=build.trip_of() if "breaker" in speaking else None,
        is_break_glass="break_glass" in speaking,
        effective_flags={FLAG: "fused_all"},
    )
    layers = Layers(
        fleet=build.fleet(
            mode=mode,
            promoted={} if promotion == "none" else {FLAG: FUSED},
            stopped_reason="fire" if "stop_the_line" in speaking else None,
        ),
        qualifications=frozenset({QUALIFIED} if promotion == "qualified" else ()),
        assignment=ASSIGNED if "canary" in speaking else None,
    )
    return desired.resolve(seen, catalogue=build.catalogue(), layers=layers, now=NOW)


def expected(speaking: frozenset[str], *, promotion: str) -> tuple[str, str]:
    """Layer and variant by the order of section 2 of the architecture, highest first."""
    base = FUSED if promotion == "qualified" else PLAIN
    for layer in ("stop_the_line", "break_glass", "pin_to_fallback", "breaker"):
        if layer in speaking:
            return layer, PLAIN
    if "canary" in speaking:
        return "canary", base
    if "pin" in speaking:
        return "pin", PINNED
    return ("promoted" if promotion == "qualified" else "fallback"), base


COMBINATIONS = [
    frozenset(name for name, is_speaking in zip(SPEAKERS, spoken, strict=True) if is_speaking)
    for spoken in product((False, True), repeat=len(SPEAKERS))
]


@pytest.mark.parametrize("promotion", ["none", "qualified", "unqualified"])
@pytest.mark.parametrize("speaking", COMBINATIONS, ids=lambda names: "+".join(sorted(names)))
def test_the_highest_layer_that_speaks_wins(speaking: frozenset[str], promotion: str) -> None:
    resolution = resolved(speaking, promotion=promotion)
    (choice,) = resolution.choices
    assert (choice.layer, choice.variant) == expected(speaking, promotion=promotion)
    assert choice.reason
    # The experiment goes with the layer: above it nothing may draw the canary's variant.
    assert (resolution.experiment is not None) is (choice.layer is Layer.CANARY)
    assert resolution.flags == {FLAG: choice.variant}


@pytest.mark.parametrize("speaking", COMBINATIONS, ids=lambda names: "+".join(sorted(names)))
def test_an_observing_fleet_is_left_alone_unless_a_person_stops_it(
    speaking: frozenset[str],
) -> None:
    resolution = resolved(speaking, mode=Mode.OBSERVE)
    (choice,) = resolution.choices
    assert resolution.experiment is None
    if "stop_the_line" in speaking:
        assert (choice.layer, choice.variant) == (Layer.STOP_THE_LINE, PLAIN)
    else:
        assert (choice.layer, choice.variant) == (Layer.OBSERVED, "fused_all")


def test_what_would_be_wanted_is_told_of_an_observing_fleet() -> None:
    layers = Layers(
        fleet=build.fleet(mode=Mode.OBSERVE, promoted={FLAG: FUSED}),
        qualifications=frozenset({QUALIFIED}),
        assignment=None,
    )
    (choice,) = desired.would_resolve(worker(), catalogue=build.catalogue(), layers=layers, now=NOW)
    assert (choice.layer, choice.variant) == (Layer.PROMOTED, FUSED)


@pytest.mark.parametrize(
    "other",
    [
        {"variant": "fused_all"},
        {"flag": "kv_cache"},
        {"hardware": "b200x3"},
        {"stack": "0" * 16},
    ],
)
def test_a_promoted_variant_runs_only_where_it_is_qualified(other: dict[str, Any]) -> None:
    """The kernel ran well for weeks, and not on the next PyTorch."""
    proven = {"flag": FLAG, "variant": FUSED, "hardware": HARDWARE, "stack": STACK, **other}
    layers = Layers(
        fleet=build.fleet(promoted={FLAG: FUSED}),
        qualifications=frozenset({Qualification(**proven)}),
        assignment=None,
    )
    resolution = desired.resolve(worker(), catalogue=build.catalogue(), layers=layers, now=NOW)
    (choice,) = resolution.choices
    assert (choice.layer, choice.variant) == (Layer.FALLBACK, PLAIN)
    assert "not qualified" in choice.reason


def test_a_promoted_variant_that_failed_there_is_told_apart_from_one_that_nobody_tried() -> None:
    """What to do about it is another thing: there is a canary to look at, and an admin to ask."""
    layers = Layers(
        fleet=build.fleet(promoted={FLAG: FUSED}),
        qualifications=frozenset(),
        disqualifications=frozenset({QUALIFIED}),
        assignment=None,
    )
    resolution = desired.resolve(worker(), catalogue=build.catalogue(), layers=layers, now=NOW)
    (choice,) = resolution.choices
    assert (choice.layer, choice.variant) == (Layer.FALLBACK, PLAIN)
    assert f"disqualified on stack {STACK}" in choice.reason


def test_a_pin_ends_when_it_expires() -> None:
    layers = Layers(fleet=build.fleet(), qualifications=frozenset(), assignment=None)
    for expires_at, layer in ((NOW + seconds(1), Layer.PIN), (NOW, Layer.FALLBACK)):
        pinned = worker(pins=(pin(PINNED, expires_at=expires_at),))
        resolution = desired.resolve(pinned, catalogue=build.catalogue(), layers=layers, now=NOW)
        assert resolution.choices[0].layer is layer


def test_an_assignment_of_another_flag_changes_nothing() -> None:
    other = Assignment(
        canary="c", name="n", salt="s", variants={"kv_cache": "x"}, arm_share=1.0, traffic="live"
    )
    layers = Layers(fleet=build.fleet(), qualifications=frozenset(), assignment=other)
    resolution = desired.resolve(worker(), catalogue=build.catalogue(), layers=layers, now=NOW)
    assert resolution.experiment is None
    assert resolution.choices[0].layer is Layer.FALLBACK
