"""What a user can type or set is written down, and nothing is written down that is not there."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from controlplane.cli.connection import DEFAULT_URL
from controlplane.cli.exits import Exit
from controlplane.cli.main import app
from controlplane.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])


def text(name: str) -> str:
    return (ROOT / name).read_text()


def commands(group: typer.Typer, prefix: str = "steadyframe") -> Iterator[str]:
    for command in group.registered_commands:
        assert command.name is not None
        yield f"{prefix} {command.name}"
    for part in group.registered_groups:
        assert part.typer_instance is not None
        yield from commands(part.typer_instance, f"{prefix} {part.name}")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", text("Makefile"), flags=re.MULTILINE))


def test_every_command_is_documented_and_no_other() -> None:
    """A command that is not in docs/commands.md is not found; one that is only there is a lie."""
    documented = re.findall(r"^\| `(steadyframe [^`]+)`", text("docs/commands.md"), re.MULTILINE)
    assert sorted(documented) == sorted(commands(app))


def test_every_exit_code_is_documented_by_number_and_name() -> None:
    """Scripts branch on them."""
    rows = re.findall(r"^\| (\d+) \| `(\w+)`", text("docs/exit-codes.md"), re.MULTILINE)
    assert {int(number): name for number, name in rows} == {
        int(code): code.name.lower() for code in Exit
    }


def test_every_setting_is_documented_and_no_other() -> None:
    """A setting that nobody can find might as well not exist."""
    documented = re.findall(r"^\| `(STEADYFRAME_\w+)`", text("docs/settings.md"), re.MULTILINE)
    assert sorted(documented) == sorted(f"{PREFIX}{name}".upper() for name in Settings.model_fields)


def test_every_make_target_is_explained_in_help_and_documented() -> None:
    """`make help` and CONTRIBUTING list the same."""
    documented = set(re.findall(r"^\| `make ([a-z-]+)`", text("CONTRIBUTING.md"), re.MULTILINE))
    explained = set(re.findall(r"^([a-z-]+):.*## ", text("Makefile"), flags=re.MULTILINE))
    assert documented == explained == targets()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """A dead link is a page that nobody has read since it moved."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_examples_exist(page: Path) -> None:
    """What a reader copies must run."""
    known = set(commands(app)) | {name.rsplit(" ", 1)[0] for name in commands(app)}
    example = re.compile(r"^\s*\$? ?(steadyframe [a-z-]+(?: [a-z-]+)?)", re.MULTILINE)
    for line in example.findall(page.read_text()):
        words = line.split()
        assert any(" ".join(words[:length]) in known for length in (2, 3)), line


def test_make_help_runs() -> None:
    """It is the first thing a newcomer types."""
    ended = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    assert "make demo" in ended.stdout


def test_every_command_shows_help_with_its_options() -> None:
    """`--help` of each command works without a control plane."""
    for command in ("canary start", "flip", "token create", "demo", "serve"):
        ended = subprocess.run(
            [sys.executable, "-m", "controlplane.cli.main", *command.split(), "--help"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert "--help" in ended.stdout


@pytest.mark.parametrize(
    "page", sorted((ROOT / "examples").glob("*/README.md")), ids=lambda page: page.parent.name
)
def test_an_example_speaks_to_where_the_control_plane_listens(page: Path) -> None:
    """And makes each token that it hands over, so that it can be copied line by line."""
    told = page.read_text()
    assert set(re.findall(r"127\.0\.0\.1:\d+", told)) <= {DEFAULT_URL.removeprefix("http://")}
    for token in set(re.findall(r"\S+\.token", told)):
        assert f"--out {token}" in told


def test_what_the_examples_leave_behind_is_not_committed() -> None:
    """A token above all."""
    assert {"*.token", "state/"} <= set(text(".gitignore").split())
