"""The configuration file: refusals name the key, the value and what is allowed."""

import json
from pathlib import Path
from typing import Any

import pytest

from worker import flags
from worker.config import InjectedFault
from worker.main import settings
from worker.main.settings import SettingsError

GOOD: dict[str, Any] = {
    "fleet": "demo",
    "worker": "w1",
    "preset": "tiny",
    "url": "http://127.0.0.1:8400",
    "state_dir": "/tmp/w1",  # noqa: S108 - only a value here
}


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "worker.json"
    path.write_text(json.dumps({**GOOD, **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"preset": "huge"}, r"preset is 'huge': .*'tiny' or 'demo'"),
        ({"prot": 1}, r"prot is not a key, allowed: .*port"),
        ({"port": 70000}, r"port is 70000: .*65535"),
        ({"fallback": {"fused_allreduce": "magic"}}, r"fallback.fused_allreduce is 'magic', allow"),
        ({"fallback": {"warp": "on"}}, r"fallback.warp is not a flag of this build"),
        ({"url": "http://user:secret@host"}, r"url is .*: String should match"),
        ({"worker": "W 1"}, r"worker is 'W 1'"),
    ],
)
def test_a_refusal_names_key_value_and_what_is_allowed(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    """Whoever mistyped finds it without the source."""
    with pytest.raises(SettingsError, match=sentence):
        settings.load(written(tmp_path, **changes))


def test_a_missing_key_or_file_is_named(tmp_path: Path) -> None:
    """The two most common mistakes."""
    path = written(tmp_path)
    path.write_text(json.dumps({key: value for key, value in GOOD.items() if key != "fleet"}))
    with pytest.raises(SettingsError, match="fleet is missing"):
        settings.load(path)
    with pytest.raises(SettingsError, match=r"none\.json cannot be read"):
        settings.load(tmp_path / "none.json")
    path.write_text("{")
    with pytest.raises(SettingsError, match="is not JSON"):
        settings.load(path)


def test_limits_and_faults_reach_the_engine(tmp_path: Path) -> None:
    """A drill sets both."""
    fault = {"kind": "nan", "rank": 1, "session_step": 3}
    config = settings.load(written(tmp_path, memory_limit_mib=64, faults=[fault])).worker_config()
    assert config.memory_headroom_bytes == 64 * 1024 * 1024
    assert [(f.kind, f.rank, f.session_step) for f in config.faults] == [(InjectedFault.NAN, 1, 3)]


def test_the_agent_knows_the_variants_of_the_preset(tmp_path: Path) -> None:
    """So that an unknown one is refused before it reaches a rank."""
    agent = settings.load(written(tmp_path)).agent_config()
    assert agent.fallback == flags.fallback()
    assert "fused_small_tiles" in agent.capabilities["fused_allreduce"]
