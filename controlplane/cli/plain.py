"""Text of others made safe to show: a name or a reason must not move a cursor or forge a line."""

import textwrap
from typing import Final

# A message is cut to this: enough to recognise what somebody pasted by mistake.
MAX_SHOWN: Final = 1000


def shown(text: str) -> str:
    """`text`, and what a terminal would not print as such spelled out, as by `repr`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _spelled(each) for each in text)


def lines(text: str) -> str:
    """As `shown`, but line ends stay."""
    return "\n".join(shown(line) for line in text.split("\n"))


def json_text(text: str) -> str:
    """JSON with everything that is not printable as an escape of JSON; its line ends stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def shortened(text: str, *, most: int = MAX_SHOWN) -> str:
    """`text`, its middle left out where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} ... {text[-half:]}"


def wrapped(text: str, *, width: int, first: str = "", rest: str = "") -> str:
    """`text` in lines of at most `width`; what has no space, such as a path, stays whole.

    Args:
        text: of one or more lines.
        width: in characters.
        first: what the first line begins with.
        rest: what every other begins with, so that nobody's line end can begin a line of ours.
    """
    filled = [
        textwrap.fill(
            line,
            width=width,
            initial_indent=rest if number else first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for number, line in enumerate(lines(text).split("\n"))
    ]
    return "\n".join(filled)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _escaped(character: str) -> str:
    pairs = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{pairs[start : start + 4]}" for start in range(0, len(pairs), 4))
