"""The policies that are shipped, and the page that explains every key of their form."""

import pytest

from controlplane.domain import compared_forms, document, flag, gate_document, policy_document
from controlplane.domain.flag import Applies
from controlplane.domain.policy import HardStop, Limits, Traffic
from controlplane.services.documents import load_yaml
from tests.domain import build
from tests.domain.build import POLICIES

SHIPPED = sorted(path.stem for path in POLICIES.glob("*.yaml") if path.stem != "flags")
README = (POLICIES / "README.md").read_text()
WORDS = {
    *policy_document.POLICY_KEYS,
    *policy_document.PREFLIGHT_KEYS,
    *policy_document.LENGTHS_KEYS,
    *policy_document.STEP_KEYS,
    *policy_document.LIMIT_KEYS,
    *gate_document.FORMS,
    *(form.metric for form in gate_document.FORMS.values()),
    *(key for form in gate_document.FORMS.values() for key in form.keys),
    *compared_forms.WEIGHT_KEYS,
    *("gate", "metric", "preflight", "flags"),
    *HardStop,
    *Traffic,
    *Applies,
    *flag.FLAG_KEYS,
    *flag.VARIANT_KEYS,
    *document.DURATION_UNITS,
    *document.SIZE_UNITS,
}


@pytest.mark.parametrize("name", SHIPPED)
def test_each_shipped_policy_is_accepted_by_the_shipped_catalogue(name: str) -> None:
    text = (POLICIES / f"{name}.yaml").read_text()
    policy = policy_document.parse(load_yaml(text), catalogue=build.catalogue())
    assert policy.name == name


def test_the_policies_that_the_product_names_are_shipped() -> None:
    assert {"fused-allreduce", "demo", "as-in-august"} <= set(SHIPPED)


@pytest.mark.parametrize("word", sorted(WORDS))
def test_each_word_of_the_form_is_explained(word: str) -> None:
    assert f"`{word}`" in README


@pytest.mark.parametrize("name", sorted(Limits.__dataclass_fields__))
def test_each_limit_is_explained_with_its_default(name: str) -> None:
    default = getattr(Limits(), name)
    spelled = default if isinstance(default, int) else document.duration_text(default)
    (row,) = [line for line in README.splitlines() if line.startswith(f"| `{name}` |")]
    assert row.endswith(f"| `{spelled}` |")


@pytest.mark.parametrize("name", [*SHIPPED, "flags"])
def test_each_shipped_file_is_listed(name: str) -> None:
    assert f"`{name}.yaml`" in README


def test_each_shipped_variant_is_explained() -> None:
    for each in build.catalogue():
        for variant in each.variants:
            assert f"| `{variant.name}` |" in README


def test_the_reference_policy_is_what_brought_the_kernel_back() -> None:
    """A 15-hour canary of tested sessions, each of them at an average of 24.0 fps or more."""
    text = (POLICIES / "fused-allreduce.yaml").read_text()
    policy = policy_document.parse(load_yaml(text), catalogue=build.catalogue())
    soak, *later = policy.steps
    assert (soak.traffic, soak.bake.total_seconds()) == (Traffic.SYNTHETIC, 15 * 3600)
    assert policy.gates.floor is not None
    assert policy.gates.floor.at_least == 24.0
    assert policy.gates.memory is not None
    assert {step.traffic for step in later} == {Traffic.LIVE}


def test_the_demo_is_over_in_half_a_minute() -> None:
    text = (POLICIES / "demo.yaml").read_text()
    policy = policy_document.parse(load_yaml(text), catalogue=build.catalogue())
    assert sum(step.bake.total_seconds() for step in policy.steps) <= 15
    assert all(step.workers.of(3) == 1 for step in policy.steps)
