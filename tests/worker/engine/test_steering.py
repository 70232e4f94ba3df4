"""Another prompt, audio and control under a running session of real processes."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from tests.worker.engine.conftest import Stand, Taken
from worker import config, features
from worker.config import TINY_MODEL
from worker.engine.api import Chunk
from worker.engine.engine import LocalEngine
from worker.features import Features
from worker.prompts import Prompt

TINY = config.tiny()
FOX = Prompt(num_tokens=11, seed=2**63 - 1)
LOUD = Features(audio=[1.0, -0.5], control=[0.25] * 16).packed()
# A step is planned when the consumer has room for it: three ahead of the chunk it has just read.
AHEAD = TINY.max_chunks_ahead


@dataclass(frozen=True, kw_only=True)
class Say:
    """What is said after a chunk."""

    prompt: Prompt | None = None
    features: bytes | None = None


async def steered(engine: LocalEngine, says: Mapping[int, Say], *, number: int) -> list[Chunk]:
    chunks = engine.chunks("session", first_forward_length=7, seed=5)
    got = []
    async for chunk in chunks:
        got.append(chunk)
        await _all_computed(engine)
        if say := says.get(chunk.step):
            engine.steer("session", prompt=say.prompt, features=say.features)
        if len(got) == number:
            break
    await chunks.aclose()
    return got


async def _all_computed(engine: LocalEngine) -> None:
    """Until every step is there that the consumer had room for; else the next may not be planned.

    What is said then takes effect at one step, however slow the ranks are beside other work.
    """
    while engine._session and engine._session.chunks.qsize() < AHEAD - 1:  # noqa: ASYNC110 - the queue has no such event
        await asyncio.sleep(0.001)


def video(chunks: list[Chunk]) -> list[tuple[bytes, ...]]:
    return [chunk.frames for chunk in chunks]


def test_a_new_prompt_takes_effect_at_one_step_and_the_session_goes_on(stand: Stand) -> None:
    """Not a frame before it is touched, none is lost, and what follows is another video."""
    engine = stand.started(TINY, "fused_steady")
    plain = stand.run(steered(engine, {}, number=20))
    changed = stand.run(steered(engine, {5: Say(prompt=FOX)}, number=20))
    assert [chunk.step for chunk in changed] == list(range(20))
    assert [chunk.step for chunk in changed if chunk.is_prompt_new] == [5 + AHEAD]
    assert video(changed)[: 5 + AHEAD] == video(plain)[: 5 + AHEAD]
    for one, other in zip(changed[5 + AHEAD :], plain[5 + AHEAD :], strict=True):
        assert one.frames != other.frames


def test_a_session_may_be_steered_at_every_step_through_a_reset(stand: Stand) -> None:
    """At and around the steps where the window wraps and the positions are reset."""
    engine = stand.started(TINY)
    says = {step: Say(prompt=replace(FOX, num_tokens=1 + step)) for step in range(30)}
    chunks = stand.run(steered(engine, says, number=34))
    assert [chunk.step for chunk in chunks] == list(range(34))
    new = [chunk.step for chunk in chunks if chunk.is_prompt_new]
    assert new == [step + AHEAD for step in range(30)]


def test_text_and_seed_of_a_prompt_both_count(stand: Stand) -> None:
    """Two prompts of one length are two prompts."""
    engine = stand.started(TINY)
    videos = [
        video(stand.run(steered(engine, {0: Say(prompt=prompt)}, number=6)))
        for prompt in (FOX, replace(FOX, seed=1), replace(FOX, num_tokens=12))
    ]
    assert len({tuple(each) for each in videos}) == 3


def test_the_variants_make_the_same_steered_video(stand: Stand) -> None:
    """Bit for bit with two ranks: another first forward in mid-session goes through each."""
    engine = stand.started(TINY)
    says = {2: Say(features=LOUD), 4: Say(prompt=FOX), 11: Say(prompt=replace(FOX, seed=3))}
    videos = []
    for generation, variant in enumerate(("nccl", "fused_steady", "fused_all"), start=2):
        stand.flipped(engine, variant, generation=generation)
        videos.append(video(stand.run(steered(engine, says, number=20))))
    assert videos[0] == videos[1] == videos[2]


def test_features_change_the_steps_after_them_and_no_features_change_nothing(
    stand: Stand,
) -> None:
    """They hold until others come."""
    engine = stand.started(TINY)
    plain = video(stand.run(steered(engine, {}, number=12)))
    silent = video(stand.run(steered(engine, {2: Say(features=features.NONE)}, number=12)))
    loud = video(stand.run(steered(engine, {2: Say(features=LOUD)}, number=12)))
    ended = {2: Say(features=LOUD), 4: Say(features=features.NONE)}
    short = video(stand.run(steered(engine, ended, number=12)))
    assert silent == plain
    assert loud[: 2 + AHEAD] == plain[: 2 + AHEAD]
    assert all(one != other for one, other in zip(loud[5:], plain[5:], strict=True))
    assert short[: 4 + AHEAD] == loud[: 4 + AHEAD]
    assert short[4 + AHEAD] != loud[4 + AHEAD]


def test_a_model_without_extra_tokens_ignores_features(stand: Stand) -> None:
    """There is no place for them; the session is none the worse."""
    model = replace(TINY_MODEL, num_extra_tokens=0)
    engine = stand.started(config.tiny(model))
    plain = video(stand.run(steered(engine, {}, number=8)))
    assert video(stand.run(steered(engine, {1: Say(features=LOUD)}, number=8))) == plain


@pytest.mark.parametrize(
    ("say", "sentence"),
    [
        (Say(prompt=replace(FOX, num_tokens=49)), "length is 49; allowed: 1 to 48"),
        (Say(prompt=replace(FOX, num_tokens=0)), "length is 0; allowed: 1 to 48"),
        (Say(prompt=replace(FOX, seed=2**63)), "seed is 9223372036854775808; allowed: 0 to"),
        (Say(features=b"\0"), "features are 1 bytes; allowed: 32"),
        (Say(features=b""), "features are 0 bytes; allowed: 32"),
    ],
    ids=["long", "short", "seed", "few", "none"],
)
def test_what_the_model_does_not_take_is_refused_and_changes_nothing(
    stand: Stand, say: Say, sentence: str
) -> None:
    """Before any rank hears of it."""
    engine = stand.started(TINY)
    with pytest.raises(ValueError, match=sentence):
        stand.run(steered(engine, {1: say}, number=4))


def test_another_session_cannot_be_steered(stand: Stand, taken: Taken) -> None:
    """Nor one that has ended: a word may cross with the end on its way."""
    engine = stand.started(TINY)
    engine.steer("session", prompt=FOX)
    plain = stand.run(taken(engine, 8, length=7, seed=5))
    engine.steer("session", prompt=FOX)

    async def misdirected() -> list[Chunk]:
        chunks = engine.chunks("other", first_forward_length=7, seed=5)
        got = []
        async for chunk in chunks:
            engine.steer("session", prompt=FOX, features=LOUD)
            got.append(chunk)
            if len(got) == 8:
                break
        await chunks.aclose()
        return got

    assert video(stand.run(misdirected())) == video(plain)
