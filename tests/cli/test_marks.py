"""docs/commands.md marks with * what changes something, and nothing else."""

import re
from pathlib import Path

from tests.cli import hostile

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


def test_every_command_that_wants_a_reason_is_marked_and_no_other() -> None:
    """Somebody reads there whether a command may be tried."""
    rows = re.findall(r"^\| `steadyframe ([^`]+)`( \*)? \|", PAGE.read_text(), re.MULTILINE)
    changing = {
        " ".join(words)
        for words in hostile.commands()
        if any(each.name == "reason" for each in hostile.parameters(words))
    }
    assert {name for name, mark in rows if mark} == changing
