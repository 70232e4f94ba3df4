"""What a viewer says in mid-session, from its socket to the engine and back."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from controlplane.contract.vocabulary import Outcome
from tests.worker.supervisor.test_supervisor import Worker, worker
from worker import prompts
from worker.features import Features
from worker.server import listening
from worker.viewer.script import Line
from worker.viewer.session import Seen

BOUNDS = (1, 48)
ASK = '{"first_forward_length": 9, "seed": 3}'


async def answer(viewer: ClientConnection, kind: str) -> dict[str, Any]:
    """The next text of that type."""
    while True:
        received = await viewer.recv()
        if isinstance(received, str) and json.loads(received)["type"] == kind:
            told: dict[str, Any] = json.loads(received)
            return told


def test_a_prompt_in_mid_session_goes_to_the_engine_and_is_confirmed_with_its_step(
    tmp_path: Path,
) -> None:
    """The session goes on: no frame is lost, no step left out, no end and no other beginning."""

    async def scenario() -> tuple[Worker, Seen]:
        async with worker(tmp_path) as subject:
            line = Line(step=5, kind="prompt", text="A red fox")
            seen = await subject.watch(num_chunks=40, lines=[line])
        return subject, seen

    subject, seen = asyncio.run(scenario())
    assert subject.engine.prompts[1:] == [prompts.encoded("a red fox", bounds=BOUNDS)]
    assert len(seen.prompt_steps) == 1
    assert seen.prompt_steps[0] > 5
    assert (seen.num_step_gaps, seen.rejections) == (0, ())
    (ended,) = subject.ended()
    assert ended.outcome is Outcome.COMPLETED
    assert ended.num_frames >= seen.num_frames > 4 * seen.prompt_steps[0]


def test_a_session_may_begin_with_words(tmp_path: Path) -> None:
    """Its first forward then has the length of the prompt, and the record says so."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject, connect(subject.url) as viewer:
            await viewer.send('{"prompt": "a red fox in the snow", "seed": 3}')
            await answer(viewer, "chunk")
        return subject

    subject = asyncio.run(scenario())
    assert subject.engine.prompts == [prompts.encoded("a red fox in the snow", bounds=BOUNDS)]
    assert [record.first_forward_length for record in subject.ended()] == [6]


def test_a_length_alone_stands_for_a_prompt_of_the_session_seed(tmp_path: Path) -> None:
    """As before there were words."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject, connect(subject.url) as viewer:
            await viewer.send(ASK)
            await answer(viewer, "chunk")
        return subject

    (prompt,) = asyncio.run(scenario()).engine.prompts
    assert (prompt.num_tokens, prompt.seed) == (9, 3)


def test_audio_and_control_hold_until_others_of_their_kind_come(tmp_path: Path) -> None:
    """Each message speaks of its own kind only."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject:
            lines = [
                Line(step=1, kind="audio", features=(1, -1)),
                Line(step=2, kind="control", features=(0.5,)),
                Line(step=3, kind="audio", features=(0,)),
            ]
            await subject.watch(num_chunks=20, lines=lines)
        return subject

    assert asyncio.run(scenario()).engine.features == [
        Features(audio=[1, -1]).packed(),
        Features(audio=[1, -1], control=[0.5]).packed(),
        Features(audio=[0], control=[0.5]).packed(),
    ]


@pytest.mark.parametrize(
    "text", ['{"type": "prompt", "text": " "}', '{"type": "audio", "features": [2]}', "x", b"\0"]
)
def test_a_bad_message_changes_nothing_and_the_session_goes_on(
    tmp_path: Path, text: str | bytes
) -> None:
    """A slip of a viewer is no reason to end what it watches."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject, connect(subject.url) as viewer:
            await viewer.send(ASK)
            await answer(viewer, "chunk")
            await viewer.send(text)
            rejected = await answer(viewer, "rejected")
            assert rejected.keys() == {"type", "key", "value", "allowed"}
            step = (await answer(viewer, "chunk"))["step"]
            assert (await answer(viewer, "chunk"))["step"] == step + 1
        return subject

    subject = asyncio.run(scenario())
    assert (len(subject.engine.prompts), subject.engine.features) == (1, [])
    assert [record.outcome for record in subject.ended()] == [Outcome.COMPLETED]


def test_a_viewer_that_never_stops_talking_is_bounded_and_keeps_its_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told so, then not heard for a while: what it says meanwhile costs nothing."""
    monkeypatch.setattr(listening, "MAX_MESSAGES_PER_S", 3)

    async def scenario() -> tuple[Worker, list[str]]:
        # Its farewell stands at the end of all that it has said, so it does not wait for ours.
        async with (
            worker(tmp_path) as subject,
            connect(subject.url, close_timeout=0.1) as viewer,
        ):
            await viewer.send(ASK)
            for _ in range(200):
                await viewer.send('{"type": "control", "features": [1]}')
            rejected = await answer(viewer, "rejected")
            assert rejected["allowed"] == "at most 3 messages within a second"
            kinds: list[str] = []
            while kinds.count("chunk") < 20:
                received = await viewer.recv()
                if isinstance(received, str):
                    kinds.append(json.loads(received)["type"])
        return subject, kinds

    subject, kinds = asyncio.run(scenario())
    # Twenty chunks are a fifth of a second here.
    assert kinds.count("rejected") < 10
    assert 3 <= len(subject.engine.features) < 100
    assert [record.outcome for record in subject.ended()] == [Outcome.COMPLETED]


def test_a_message_that_is_too_large_ends_the_session_as_one_whose_viewer_left(
    tmp_path: Path,
) -> None:
    """It is not read to its end, so that nobody fills the memory of a worker."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject:
            async with connect(subject.url) as viewer:
                await viewer.send(ASK)
                await answer(viewer, "chunk")
                await viewer.send("x" * 20_000)
                await viewer.wait_closed()
                assert viewer.close_code == 1009
            await subject.watch()
        return subject

    assert [r.outcome for r in asyncio.run(scenario()).ended()] == [Outcome.COMPLETED] * 2
