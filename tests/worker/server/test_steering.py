"""What a viewer may say while its session runs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.prompts import MAX_CHARACTERS
from worker.server import steering
from worker.server.listening import Allowance
from worker.server.steering import FeaturesMessage, PromptMessage, Rejection


def parsed(**fields: Any) -> object:
    return steering.parsed(json.dumps(fields))


def test_the_three_kinds_of_message_are_taken_and_other_keys_ignored() -> None:
    """A viewer of a later version may say more."""
    assert parsed(type="prompt", text="a red fox", mood="calm") == PromptMessage(
        type="prompt", text="a red fox"
    )
    for kind in ("audio", "control"):
        message = parsed(type=kind, features=[-1, 0.5, 1], rate=3)
        assert isinstance(message, FeaturesMessage)
        assert (message.type, message.features) == (kind, [-1, 0.5, 1])


@pytest.mark.parametrize(
    ("fields", "key", "value"),
    [
        ({}, "type", None),
        ({"type": "prompts"}, "type", "prompts"),
        ({"type": 3}, "type", 3),
        ({"type": "prompt"}, "text", None),
        ({"type": "prompt", "text": ""}, "text", ""),
        ({"type": "prompt", "text": " \n"}, "text", " \n"),
        ({"type": "prompt", "text": 7}, "text", 7),
        ({"type": "prompt", "text": "a" * (MAX_CHARACTERS + 1)}, "text", "a" * 100),
        ({"type": "audio"}, "features", None),
        ({"type": "audio", "features": []}, "features", "[]"),
        ({"type": "audio", "features": [0.0] * 17}, "features", str([0.0] * 17)[:100]),
        ({"type": "audio", "features": [0, 1.01]}, "features.1", 1.01),
        ({"type": "control", "features": [-2]}, "features.0", -2),
        ({"type": "control", "features": ["1"]}, "features.0", "1"),
        ({"type": "control", "features": [True]}, "features.0", True),
        ({"type": "control", "features": [10**300]}, "features.0", "a very large number"),
        ({"type": "control", "features": {"0": 1}}, "features", "{'0': 1}"),
    ],
    ids=str,
)
def test_a_bad_message_is_answered_with_key_value_and_what_is_allowed(
    fields: dict[str, Any], key: str, value: object
) -> None:
    """So that whoever writes a viewer need not guess."""
    answer = parsed(**fields)
    assert isinstance(answer, Rejection)
    assert (answer.key, answer.value) == (key, value)
    allowed = {
        "type": "prompt, audio, control",
        "text": f"1 to {MAX_CHARACTERS} characters with a word in them",
        "features": "1 to 16 numbers from -1 to 1",
    }
    assert answer.allowed == allowed[key.partition(".")[0]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("hello", "hello"),
        ("[]", "[]"),
        ("3", 3),
        ("", ""),
        ('{"type": "audio"', '{"type": "audio"'),
        (b"\x00", "binary"),
    ],
)
def test_what_is_no_message_is_rejected_as_a_whole(text: str | bytes, value: object) -> None:
    """Binary too: all that a viewer says is text."""
    answer = steering.parsed(text)
    assert answer == Rejection(key="message", value=value, allowed="one JSON object as text")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 4000])
def test_numbers_that_json_should_not_have_are_rejected(number: str) -> None:
    """A NaN in the features would be one in every frame; and the answer is sound JSON."""
    answer = steering.parsed(f'{{"type": "audio", "features": [{number}]}}')
    assert isinstance(answer, Rejection)
    assert answer.key == "features.0"
    json.dumps(answer.value, allow_nan=False)


@given(st.text() | st.from_regex(r'\{"type": "(audio|prompt)", "(text|features)": .*\}'))
def test_any_text_is_a_message_or_a_rejection_that_can_be_sent(text: str) -> None:
    """Nothing that a viewer says raises."""
    answer = steering.parsed(text)
    if isinstance(answer, Rejection):
        assert len(json.dumps(answer.value, allow_nan=False)) < 1300


@given(st.lists(st.integers(min_value=0, max_value=3000), max_size=200), st.integers(1, 9))
def test_no_second_has_more_messages_than_allowed_and_none_is_refused_below_that(
    gaps_ms: list[int], num_per_s: int
) -> None:
    """Against counting those of the last second one by one."""
    subject = Allowance(num_per_s=num_per_s)
    now_ms = 0
    taken: list[int] = []
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        # In whole units, so that the border of a second is exact.
        now = now_ms / 1024
        recent = [at for at in taken if now_ms - at < 1024]
        wait_s = subject.wait_s(now)
        assert (wait_s > 0) == (len(recent) == num_per_s)
        if wait_s == 0:
            taken.append(now_ms)
        else:
            assert wait_s == (recent[0] + 1024 - now_ms) / 1024
