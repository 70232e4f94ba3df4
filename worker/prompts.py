"""A stand-in for a text encoder: how many tokens a prompt has, and which.

There are no trained weights here, so no text can mean anything. What a real encoder would decide is
kept: the same text always gives the same tokens, another text gives others, and their number, which
is the length of the first forward, depends on the text. Pure; must not import torch.
"""

import hashlib
import unicodedata
from dataclasses import dataclass

MAX_CHARACTERS = 2000
_SEED_BITS = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the engine is told of a prompt."""

    num_tokens: int  # length of its first forward
    seed: int  # its token embeddings are drawn from it; 0 to 2**63 - 1


def words(text: str) -> tuple[str, ...]:
    """The words of `text`; the same for all texts that differ in case, width or spaces alone."""
    return tuple(unicodedata.normalize("NFKC", text).casefold().split())


def encoded(text: str, *, bounds: tuple[int, int]) -> Prompt:
    """A token for each word, no fewer and no more than the model takes.

    A text of too many words still counts with all of them in its seed.

    Raises: ValueError for a text without a word.
    """
    tokens = words(text)
    if not tokens:
        message = "a prompt has at least one word"
        raise ValueError(message)
    low, high = bounds
    digest = hashlib.sha256(" ".join(tokens).encode()).digest()
    return Prompt(
        num_tokens=min(max(len(tokens), low), high),
        seed=int.from_bytes(digest[:8]) >> (64 - _SEED_BITS),
    )
