"""Settings are read under our prefix, refused without sense, and every one is documented."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from controlplane import settings
from controlplane.settings import Settings
from worker.agent import control

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_documented_with_its_meaning(name: str) -> None:
    described = Settings.model_fields[name].description
    rows = [
        row
        for row in DOCUMENT.read_text().splitlines()
        if row.startswith(f"| `STEADYFRAME_{name.upper()}` ")
    ]

    assert described
    assert len(rows) == 1
    assert described in rows[0]


def test_the_document_names_no_setting_that_is_not_there() -> None:
    rows = [row for row in DOCUMENT.read_text().splitlines() if row.startswith("| `STEADYFRAME_")]

    assert len(rows) == len(Settings.model_fields)


def test_an_unknown_key_is_refused() -> None:
    """`prot=9000` must not start a server on another port than meant."""
    with pytest.raises(ValidationError, match="prot"):
        Settings(prot=9000)  # type: ignore[call-arg]  # the point of the test


def test_a_misspelt_variable_is_found() -> None:
    environment = {
        "STEADYFRAME_PROT": "9000",
        "STEADYFRAME_PORT": "9000",
        "STEADYFRAME_FORCE_FALLBACK": "1",
        "HOME": "/",
    }

    assert settings.unknown_names(environment) == ("STEADYFRAME_PROT",)


@pytest.mark.parametrize(
    ("key", "value"), [("port", 65536), ("port", -1), ("hold_s", float("nan")), ("num_threads", 0)]
)
def test_a_value_without_sense_is_refused(key: str, value: float) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({key: value})


def test_the_database_is_a_file_in_the_state_folder_unless_named(tmp_path: Path) -> None:
    assert Settings(state_dir=tmp_path).database == f"sqlite:///{tmp_path}/steadyframe.db"
    assert Settings(database_url="postgresql://x/y").database == "postgresql://x/y"


def test_only_loopback_listens_by_default() -> None:
    """The embedded admin token guards a machine's own fleet, not a network."""
    assert Settings().host == "127.0.0.1"


@pytest.mark.parametrize(("hold_s", "jitter_s"), [(45.5, 0), (41, 5), (20, 26), (1000, 0)])
def test_a_call_held_beyond_the_agents_patience_is_refused(hold_s: float, jitter_s: float) -> None:
    """An agent that gives up first would take a quiet control plane for a dead one."""
    with pytest.raises(ValidationError, match=r"hold_s \+ hold_jitter_s: .*at most 45"):
        Settings(hold_s=hold_s, hold_jitter_s=jitter_s)


def test_the_longest_hold_leaves_the_agent_time() -> None:
    Settings(hold_s=40, hold_jitter_s=5)

    assert settings.MAX_HOLD_S < control.HELD_TIMEOUT_S
