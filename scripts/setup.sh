#!/usr/bin/env bash
# Makes .venv with Python 3.11 and installs the project in it. Run through `make setup`.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }

is_python_311() {
  "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1
}

python_311() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3; do
    if is_python_311 "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  say "Python 3.11 is needed (the CPU build of torch is made for it) and none was found."
  say "Debian, Ubuntu: apt-get install python3.11 python3.11-venv. Elsewhere: pyenv install 3.11."
  say "If it is installed under another name: PYTHON=/path/to/python3.11 make setup"
  return 1
}

make_venv() {
  if [ -x .venv/bin/python ] && is_python_311 .venv/bin/python; then return; fi
  local python
  python=$(python_311)
  say "making .venv with $python"
  if ! "$python" -m venv --clear .venv; then
    say "the venv module is missing. Debian, Ubuntu: apt-get install python3.11-venv"
    return 1
  fi
}

# Plain PyPI gives Linux a CUDA build of several GB; without an NVIDIA driver the CPU build (192 MB) is
# enough. TORCH_INDEX=URL takes torch from there, TORCH_INDEX= (empty) from wherever pip is set up.
torch_index() {
  if [ -n "${TORCH_INDEX+set}" ]; then
    printf '%s' "$TORCH_INDEX"
    return
  fi
  .venv/bin/python scripts/torch_index.py
}

install_torch() {
  local index
  if .venv/bin/python -c 'import torch' >/dev/null 2>&1; then return; fi
  index=$(torch_index)
  if [ -z "$index" ]; then return; fi
  say "taking torch from $index"
  .venv/bin/python -m pip install --quiet -c constraints/dev.txt --index-url "$index" 'torch>=2.11'
}

make_venv
install_torch
say "installing the project and its tools"
.venv/bin/python -m pip install --quiet -c constraints/dev.txt -e '.[worker,dev]'
