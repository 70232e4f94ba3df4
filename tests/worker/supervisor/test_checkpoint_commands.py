"""`steadyframe-worker checkpoint`: weights written and verified on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.worker.model import folders
from worker import config
from worker.main import cli
from worker.model import layout


def _ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ending:
        cli.main(["checkpoint", *arguments])
    told = capsys.readouterr()
    assert isinstance(ending.value.code, int)
    return ending.value.code, told.out, told.err


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, _ = _ran(capsys, *arguments, "--json")
    assert code == 0
    content: dict[str, Any] = json.loads(out)
    return content


@pytest.mark.parametrize("preset", sorted(config.PRESETS))
def test_what_is_written_is_verified_with_the_same_digest_and_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], preset: str
) -> None:
    """And is the checkpoint that the seed of the preset gives, file by file."""
    folder = tmp_path / "written"
    made = _json(capsys, "write", str(folder), "--preset", preset)
    verify = ("verify", str(folder), "--preset", preset, "--digest", made["digest"])
    assert _json(capsys, *verify) == made == _json(capsys, "verify", str(folder))
    assert made["digest"] == folders.written(tmp_path / "x", config.PRESETS[preset]().model)
    files = list(folder.glob("*.safetensors"))
    assert made["num_files"] == len(files)
    assert made["num_bytes"] == sum(path.stat().st_size for path in files)


def test_progress_is_for_people_and_the_digest_for_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output has what a script wants."""
    code, out, err = _ran(capsys, "write", str(tmp_path / "a"), "--preset", "tiny", "--seed", "9")
    assert code == 0
    assert "from the seed 9" in err
    assert f"writing {layout.SHARED_FILE} (3 of 3)" in err
    assert [line.split()[0] for line in out.splitlines()][:2] == ["folder", "digest"]
    _, _, err = _ran(capsys, "verify", str(tmp_path / "a"))
    assert "(100 %)" in err
    default = _json(capsys, "write", str(tmp_path / "b"), "--preset", "tiny")
    assert default["digest"] not in out


def test_a_folder_in_use_and_one_that_cannot_be_made_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is overwritten."""
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path, tmp_path / "file", tmp_path / "file" / "below"):
        code, out, err = _ran(capsys, "write", str(folder), "--preset", "tiny")
        assert (code, out) == (2, "")
        assert f"folder is '{folder}'; allowed: an empty folder" in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_verify_names_file_key_value_and_what_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence on standard error, and a code for scripts."""
    digest = folders.written(tmp_path, config.tiny().model)
    refusals = [
        (("--preset", "demo"), "manifest.model.latent_channels is 8; allowed: 16"),
        (("--digest", "0" * 64), f"digest is '{digest}'; allowed: {'0' * 64}"),
    ]
    for arguments, sentence in refusals:
        code, out, err = _ran(capsys, "verify", str(tmp_path), *arguments)
        assert (code, out) == (2, "")
        assert err.splitlines()[-1] == f"checkpoint {tmp_path}: {sentence}"
    folders.flipped(tmp_path / layout.SHARED_FILE)
    code, _, err = _ran(capsys, "verify", str(tmp_path))
    assert code == 2
    assert f"checkpoint {tmp_path}: {layout.SHARED_FILE}: sha256 is '" in err


@pytest.mark.parametrize("seed", ["-1", str(2**63), "many"])
def test_a_seed_that_no_generator_takes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: str
) -> None:
    """Before anything is drawn."""
    folder = tmp_path / "new"
    code, _, err = _ran(capsys, "write", str(folder), "--preset", "tiny", "--seed", seed)
    assert code == 2
    assert "argument --seed" in err
    assert not folder.exists()
