"""The catalogue of flags, as shipped and as refused."""

import copy
from typing import Any

import pytest

from controlplane.domain import flag
from controlplane.domain.errors import InvalidValueError, NotFoundError
from controlplane.domain.flag import Applies
from tests.domain import build


def document() -> dict[str, Any]:
    return {
        "flags": {
            "kv_cache": {
                "summary": "How keys and values are kept.",
                "applies": "session",
                "plain": "launched",
                "fallback": {"*": "write_time_bf16", "b200x3": "launched"},
                "variants": {
                    "launched": {"summary": "As launched."},
                    "write_time_bf16": {"summary": "Written once."},
                    "planted": {"summary": "To be caught.", "canary_only": True},
                },
            }
        }
    }


def changed(path: str, value: object) -> dict[str, Any]:
    """The document with one value replaced, added, or taken away if `value` is None."""
    root = copy.deepcopy(document())
    *parents, last = path.split("/")
    place = root
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return root


def test_a_fallback_is_looked_up_by_hardware() -> None:
    """A flag's right value depends on the hardware: the FP8 cache costs time on B200."""
    (kv_cache,) = flag.parse_catalogue(document())
    assert kv_cache.applies is Applies.SESSION
    assert kv_cache.fallback_on("b200x3") == "launched"
    assert kv_cache.fallback_on("h100x4") == "write_time_bf16"
    assert flag.fallback_flags([kv_cache], "cpu") == {"kv_cache": "write_time_bf16"}


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("flag", {}, "flag"),
        ("flags", [], "flags"),
        ("flags", {1: {}}, "flags"),
        ("flags/Bad Name", {}, "flags.Bad Name"),
        ("flags/kv_cache", None, "flags"),
        ("flags/kv_cache/colour", "red", "flags.kv_cache.colour"),
        ("flags/kv_cache/summary", None, "flags.kv_cache.summary"),
        ("flags/kv_cache/applies", "sometimes", "flags.kv_cache.applies"),
        ("flags/kv_cache/applies", True, "flags.kv_cache.applies"),
        ("flags/kv_cache/plain", "fastest", "flags.kv_cache.plain"),
        ("flags/kv_cache/plain", "planted", "flags.kv_cache.plain"),
        ("flags/kv_cache/variants", {}, "flags.kv_cache.variants"),
        ("flags/kv_cache/variants/launched", None, "flags.kv_cache.plain"),
        ("flags/kv_cache/variants/launched", [], "flags.kv_cache.variants.launched"),
        ("flags/kv_cache/variants/a b", {"summary": ""}, "flags.kv_cache.variants.a b"),
        (
            "flags/kv_cache/variants/planted/canary_only",
            1,
            "flags.kv_cache.variants.planted.canary_only",
        ),
        ("flags/kv_cache/fallback", None, "flags.kv_cache.fallback"),
        ("flags/kv_cache/fallback/*", None, "flags.kv_cache.fallback"),
        ("flags/kv_cache/fallback/*", "planted", "flags.kv_cache.fallback.*"),
        ("flags/kv_cache/fallback/b200x3", 3, "flags.kv_cache.fallback.b200x3"),
        ("flags/kv_cache/fallback/B 200", "launched", "flags.kv_cache.fallback.B 200"),
    ],
)
def test_what_a_catalogue_may_not_say_is_refused_under_its_key(
    path: str, value: object, key: str
) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        flag.parse_catalogue(changed(path, value))
    assert refusal.value.key == key


@pytest.mark.parametrize("root", [None, [], "flags", 1])
def test_a_catalogue_that_is_no_table_is_refused(root: object) -> None:
    with pytest.raises(InvalidValueError, match=r"^document: "):
        flag.parse_catalogue(root)


def test_an_unknown_flag_or_variant_is_refused_with_what_there_is() -> None:
    catalogue = flag.parse_catalogue(document())
    with pytest.raises(NotFoundError, match="there are: kv_cache"):
        flag.require(catalogue, "decoder")
    with pytest.raises(InvalidValueError, match="launched, planted, write_time_bf16"):
        flag.require(catalogue, "kv_cache").variant("fp4")
    assert flag.require(catalogue, "kv_cache").variant("planted").is_canary_only


def test_the_shipped_flag_falls_back_to_its_plain_variant_everywhere() -> None:
    """Going back to NCCL was a configuration change: no flag without a plain path."""
    fused_allreduce = flag.require(build.catalogue(), "fused_allreduce")
    assert fused_allreduce.plain == "nccl"
    assert {fused_allreduce.fallback_on(name) for name in ("h100x4", "b200x3", "cpu")} == {"nccl"}
    assert fused_allreduce.applies is Applies.STEP


def test_the_shipped_variants_that_exist_to_be_caught_are_never_promoted() -> None:
    fused_allreduce = flag.require(build.catalogue(), "fused_allreduce")
    caught = {variant.name for variant in fused_allreduce.variants if variant.is_canary_only}
    assert caught == {"fused_all", "fused_small_tiles"}
