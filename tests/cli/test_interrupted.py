"""Ctrl-C at a question: the command ends as a shell expects, and says that nothing was done."""

import pytest
import typer

from controlplane.cli import acting
from controlplane.cli.exits import CliError, Exit


def test_an_interrupted_question_ends_with_130_and_says_that_nothing_was_done() -> None:
    with pytest.raises(CliError) as refused, acting._interruptible():
        raise typer.Abort
    assert refused.value.exit_code is Exit.INTERRUPTED
    assert "nothing was done" in str(refused.value)
