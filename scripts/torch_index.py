# ruff: noqa: INP001 - a script of the Makefile, not a package
"""Print the package index that torch should come from, or nothing for pip's own.

PyTorch's public CPU index is used only when there is no NVIDIA driver, pip would not take torch
from a local wheel anyway, and the index answers within a few seconds.
"""

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
ANSWER_WITHIN_S = 4
RESOLVE_WITHIN_S = 90
PIP_DRY_RUN = (
    *("-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"),
    *("--report", "-", "-c", "constraints/dev.txt", "torch"),
)


def main() -> None:
    """Decide and print."""
    if not has_nvidia_driver() and not is_local_wheel() and answers(CPU_INDEX):
        sys.stdout.write(CPU_INDEX)


def has_nvidia_driver() -> bool:
    """Whether a CUDA build could be of use here."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def is_local_wheel() -> bool:
    """Whether pip, as it is configured, takes torch from a file on this machine."""
    try:
        report = subprocess.run(  # noqa: S603 - our own interpreter, fixed arguments
            [sys.executable, *PIP_DRY_RUN],
            capture_output=True,
            check=True,
            timeout=RESOLVE_WITHIN_S,
        ).stdout
        address = json.loads(report)["install"][0]["download_info"]["url"]
    except (subprocess.SubprocessError, ValueError, KeyError, IndexError):
        return False
    return str(address).startswith("file:")


def answers(index: str) -> bool:
    """Whether `index` can be reached from here without a long wait."""
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=ANSWER_WITHIN_S):  # noqa: S310 - https
            return True
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    main()
