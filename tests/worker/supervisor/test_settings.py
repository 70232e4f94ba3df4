"""The configuration file: refusals name the key, the value and what is allowed."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from worker import flags
from worker.config import CheckpointSource, InjectedFault
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


FACTS: dict[str, Any] = {
    "num_blocks": 2, "width": 192, "num_heads": 12, "mlp_width": 768,
    "latent_channels": 8, "num_extra_tokens": 1,
}  # fmt: skip


def manifest_in(folder: Path, *, dtype: str = "float32") -> str:
    """A manifest, which is all that the settings look at; returns its digest."""
    folder.mkdir(exist_ok=True)
    content = json.dumps({"dtype": dtype, "model": FACTS, "files": {}})
    (folder / "manifest.json").write_text(content)
    return hashlib.sha256(content.encode()).hexdigest()


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_checkpoint_reaches_the_engine_with_its_digest_and_names_the_stack(
    tmp_path: Path, *, is_pinned: bool
) -> None:
    """From the start on there is one digest: the fleet is told no other than the one that runs."""
    folder = tmp_path / "weights"
    digest = manifest_in(folder)
    told = {"folder": str(folder), **({"digest": digest} if is_pinned else {})}
    found = settings.load(written(tmp_path, checkpoint=told))
    manifest_in(folder, dtype="bfloat16")
    assert found.worker_config().checkpoint == CheckpointSource(folder=str(folder), digest=digest)
    assert found.agent_config().stack == {"weights": digest, "preset": "tiny"}


def test_the_folder_of_a_checkpoint_may_be_told_from_where_the_worker_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the ranks are told is the same from everywhere."""
    manifest_in(tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    source = settings.load(written(tmp_path, checkpoint={"folder": "weights"})).worker_config()
    assert source.checkpoint
    assert source.checkpoint.folder == str(tmp_path / "weights")


def test_a_checkpoint_that_is_not_what_was_told_is_refused_by_key(tmp_path: Path) -> None:
    """Before a process is started or a byte of weights is read."""
    folder = tmp_path / "weights"
    digest = manifest_in(folder)
    other = "0" * 64
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"checkpoint": {"folder": str(folder), "digest": other}},
         f"checkpoint.digest is '{other}', allowed: that of the folder, '{digest}'"),
        ({"checkpoint": {"folder": str(folder), "digest": "latest"}},
         "checkpoint.digest is 'latest': .*pattern"),
        ({"checkpoint": {"folder": str(folder)}, "weights": "v7"},
         f"weights is 'v7', allowed: the checkpoint's digest '{digest}'"),
        ({"checkpoint": {"folder": str(folder), "sha256": other}},
         "checkpoint.sha256 is not a key, allowed: folder, digest$"),
        ({"checkpoint": {}}, "checkpoint.folder is missing"),
        ({"checkpoint": {"folder": str(tmp_path / "none")}},
         "checkpoint.folder is '.*none': manifest.json is 'No such file or directory'"),
        ({"faults": [{"kind": "nan", "rank": 0, "stp": 1}]},
         "faults.0.stp is not a key, allowed: kind, rank, session_step, launch$"),
    ]  # fmt: skip
    for changes, sentence in refusals:
        with pytest.raises(SettingsError, match=sentence):
            settings.load(written(tmp_path, **changes))


def test_the_digest_of_the_checkpoint_may_be_told_as_the_name_of_the_weights(
    tmp_path: Path,
) -> None:
    """The two do not contradict each other."""
    digest = manifest_in(tmp_path / "weights")
    told = {"folder": str(tmp_path / "weights")}
    found = settings.load(written(tmp_path, checkpoint=told, weights=digest))
    assert found.agent_config().stack["weights"] == digest


def test_settings_with_a_checkpoint_are_read_without_torch(tmp_path: Path) -> None:
    """The supervisor would carry it beside the engine's processes."""
    manifest_in(tmp_path / "weights")
    path = written(tmp_path, checkpoint={"folder": str(tmp_path / "weights")})
    code = (
        "import sys; from pathlib import Path; from worker.main import cli, settings; "
        "settings.load(Path(sys.argv[1])).worker_config(); "
        "sys.exit('torch' in sys.modules or 'safetensors' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
