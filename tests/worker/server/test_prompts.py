"""The stand-in for a text encoder, and features as bytes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker import features, prompts
from worker.features import Features

BOUNDS = (3, 6)
letters = st.text(alphabet="abcdefgh", min_size=1, max_size=5)


def test_a_prompt_has_a_token_for_each_word_within_the_bounds_of_the_model() -> None:
    """The length of the first forward depends on the text, as with a real encoder."""
    lengths = [
        prompts.encoded(" ".join(["word"] * number), bounds=BOUNDS).num_tokens
        for number in range(1, 9)
    ]
    assert lengths == [3, 3, 3, 4, 5, 6, 6, 6]


@given(st.lists(letters, min_size=1, max_size=12), st.sampled_from([" ", "\n", "\t  ", "\u3000"]))
def test_case_width_and_spaces_do_not_make_another_prompt(words: list[str], space: str) -> None:
    """Nobody sees them, so nobody could explain another video."""
    plain = prompts.encoded(" ".join(words), bounds=BOUNDS)
    assert prompts.encoded(f" {space.join(words).upper()}{space}", bounds=BOUNDS) == plain
    assert 0 <= plain.seed < 2**63


@given(st.lists(letters, min_size=1, max_size=4), st.lists(letters, min_size=1, max_size=4))
def test_other_words_make_another_prompt(first: list[str], second: list[str]) -> None:
    """Also where one text is longer than the model takes."""
    one, other = (prompts.encoded(" ".join(words), bounds=(1, 2)) for words in (first, second))
    assert (one.seed == other.seed) == (first == second)


def test_the_seed_is_that_of_the_published_digest() -> None:
    """The upper 63 bits of SHA-256, so that anyone can check it: 'abc' of FIPS 180-2, B.1."""
    assert prompts.encoded("ABC", bounds=BOUNDS).seed == 0xBA7816BF8F01CFEA >> 1


def test_a_text_without_a_word_is_refused() -> None:
    """There is no first forward of nothing."""
    with pytest.raises(ValueError, match="at least one word"):
        prompts.encoded(" \n\u3000", bounds=BOUNDS)


numbers = st.lists(st.floats(min_value=-1, max_value=1), max_size=16)


@given(numbers, numbers)
def test_features_are_signed_bytes_within_half_a_step(
    audio: list[float], control: list[float]
) -> None:
    """Sixteen of each; those that are left out are 0."""
    packed = Features(audio=audio, control=control).packed()
    assert len(packed) == features.NUM_BYTES == 32
    signed = [byte - 256 if byte > 127 else byte for byte in packed]
    for at, values in ((0, audio), (16, control)):
        for index in range(16):
            value = values[index] if index < len(values) else 0.0
            assert abs(signed[at + index] / 127 - value) <= 0.5 / 127 + 1e-12


def test_no_features_are_zeros() -> None:
    """A session that is told nothing runs as before there were features."""
    assert Features().packed() == features.NONE == bytes(32)


@pytest.mark.parametrize("values", [[0.0] * 17, [1.01], [-1.01], [math.nan]])
def test_features_out_of_range_are_refused(values: list[float]) -> None:
    """Wrapped around they would be their opposite."""
    with pytest.raises(ValueError, match="up to 16 numbers from -1 to 1"):
        Features(control=values).packed()
