"""What a synthetic viewer says and does while it watches, by the step at which it does so."""

import json
from dataclasses import dataclass
from typing import Literal

Kind = Literal["prompt", "audio", "control"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One message, sent when the first frame of `step` is due to come."""

    step: int
    kind: Kind
    text: str = ""  # of a prompt
    features: tuple[float, ...] = ()  # of the others

    def message(self) -> str:
        """What is sent."""
        if self.kind == "prompt":
            return json.dumps({"type": self.kind, "text": self.text})
        return json.dumps({"type": self.kind, "features": self.features})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Reads nothing for a while, as a viewer does whose network is gone."""

    step: int
    seconds: float


def prompt_line(text: str) -> Line:
    """`STEP:WORDS` as a line. Raises: ValueError."""
    step, words = _split(text)
    return Line(step=step, kind="prompt", text=words)


def audio_line(text: str) -> Line:
    """`STEP:NUMBER,NUMBER,...` as a line. Raises: ValueError."""
    step, numbers = _split(text)
    return Line(step=step, kind="audio", features=_numbers(numbers))


def control_line(text: str) -> Line:
    """`STEP:NUMBER,NUMBER,...` as a line. Raises: ValueError."""
    step, numbers = _split(text)
    return Line(step=step, kind="control", features=_numbers(numbers))


def pause(text: str) -> Pause:
    """`STEP:SECONDS` as a pause. Raises: ValueError."""
    step, seconds = _split(text)
    if not float(seconds) >= 0:
        raise ValueError(seconds)
    return Pause(step=step, seconds=float(seconds))


def _split(text: str) -> tuple[int, str]:
    step, _, rest = text.partition(":")
    return int(step), rest


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))
