"""Loading YAML that people sign off: nothing in it may be read in two ways."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.errors import InvalidValueError
from controlplane.services import documents
from controlplane.services.documents import load_yaml


def test_plain_values_are_read_as_they_look() -> None:
    text = """
    name: demo
    steps: [{bake: 5s, share: 12.5%, workers: 1}]
    at_least: 24.0
    low: -1
    on: true
    nothing:
    folded: >
      two
      lines
    """
    assert load_yaml(text) == {
        "name": "demo",
        "steps": [{"bake": "5s", "share": "12.5%", "workers": 1}],
        "at_least": 24.0,
        "low": -1,
        "on": True,
        "nothing": None,
        "folded": "two lines\n",
    }


@pytest.mark.parametrize(
    "word",
    ["012", "0x10", "0b1", "1_000", "1:30", "yes", "on", "No", ".inf", ".nan", "2026-10-08", "="],
)
def test_what_older_yaml_reads_as_something_else_stays_a_word(word: str) -> None:
    assert load_yaml(f"key: {word}") == {"key": word}


def test_quotes_keep_a_number_a_word() -> None:
    assert load_yaml("['1', \"true\", '']") == ["1", "true", ""]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_document_is_nothing(text: str) -> None:
    assert load_yaml(text) is None


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "each key once"),
        ("x:\n  - {k: 1, k: 1}\n", 2, "each key once"),
        ('a: 1\n"a": 2\n', 2, "each key once"),
        ("a: &top 1\n", 1, "each value written out"),
        ("a: 1\nb: *top\n", 2, "each value written out"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "values without a tag"),
        ("a: !!binary aGk=\n", 1, "values without a tag"),
        ("a: ! b\n", 1, "values without a tag"),
        ("1: a\n", 1, "words as keys"),
        ("true: a\n", 1, "words as keys"),
        ("? [a, b]\n: c\n", 1, "words as keys"),
        ("a: 1\nb: [1, 2\n", 3, "YAML"),
        ("a: 1\n---\nb: 2\n", 2, "YAML"),
        ("a:\n\t- b\n", 2, "YAML"),
        ("a: 1\nb: \x07\n", 2, "printable characters"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_with_its_line(
    text: str, line: int, told: str
) -> None:
    with pytest.raises(InvalidValueError, match=told) as refusal:
        load_yaml(text)
    assert refusal.value.key == f"line {line}"


def test_a_merge_key_is_refused() -> None:
    """It needs an alias, or is a key like any other that the form does not know."""
    assert load_yaml("{'<<': {a: 1}}") == {"<<": {"a": 1}}
    with pytest.raises(InvalidValueError):
        load_yaml("base: &base {a: 1}\nuse: {<<: *base}\n")


def test_a_bomb_of_aliases_is_refused_at_its_first_anchor() -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    with pytest.raises(InvalidValueError) as refusal:
        load_yaml("\n".join(lines))
    assert refusal.value.key == "line 1"


@pytest.mark.parametrize("text", ["[" * 50_000, "{a: " * 50_000, "- " * 50_000, "? " * 10_000])
def test_depth_is_bounded(text: str) -> None:
    with pytest.raises(InvalidValueError, match="at most 16 levels"):
        load_yaml(text)


def test_size_is_bounded() -> None:
    largest = "a: " + "x" * (documents.MAX_BYTES - 3)
    assert load_yaml(largest) is not None
    with pytest.raises(InvalidValueError, match="262144 bytes"):
        load_yaml(largest + "x")


@pytest.mark.parametrize("text", ['"\\U00110000"', '"\\UFFFFFFFF"', "\ud800", "a: [\x00]"])
def test_what_is_no_character_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError):
        load_yaml(text)


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**17), 10**17),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=10),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_json_is_read_as_json_is(value: object) -> None:
    assert load_yaml(json.dumps(value)) == value


@given(st.text(st.sampled_from("ab01: -[]{},\n&*!'\"#?|>%@`~\t\\U"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Never another exception."""
    with contextlib.suppress(InvalidValueError):
        load_yaml(text)
