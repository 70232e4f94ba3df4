"""Equal content, equal digest."""

import hashlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain import digest

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


def test_the_canonical_form_has_sorted_keys_and_no_spaces() -> None:
    assert digest.canonical({"b": [1, 2.5], "a": "é"}) == '{"a":"é","b":[1,2.5]}'


def test_the_digest_is_the_sha256_of_the_canonical_form() -> None:
    expected = hashlib.sha256(b'{"a":1}').hexdigest()
    assert digest.digest({"a": 1}) == expected


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=5))
def test_the_order_of_keys_changes_nothing(value: dict[str, object]) -> None:
    backwards = dict(reversed(value.items()))
    assert digest.digest(backwards) == digest.digest(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf]])
def test_what_is_no_finite_number_has_no_canonical_form(value: object) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        digest.canonical(value)


def test_what_is_no_json_has_no_canonical_form() -> None:
    with pytest.raises(TypeError):
        digest.canonical({1, 2})
