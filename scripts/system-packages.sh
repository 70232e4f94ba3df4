#!/usr/bin/env bash
# Installs what the tests need of the system: PostgreSQL's server programs, for a throw-away server,
# and Chromium, for the pages. Uses apt as root or through password-less sudo; otherwise says which
# line to type.
set -euo pipefail

has_postgresql() {
  command -v initdb >/dev/null && command -v pg_ctl >/dev/null && return
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

has_chromium() {
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
    command -v google-chrome >/dev/null
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

missing=()
has_postgresql || missing+=(postgresql)
has_chromium || missing+=(chromium)
if [ "${#missing[@]}" = 0 ]; then exit 0; fi
if may_install; then
  echo "setup: installing ${missing[*]} for the tests" >&2
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
  exit 0
fi
echo "setup: the tests need ${missing[*]}. Type:" >&2
if command -v apt-get >/dev/null; then
  echo "    sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}" >&2
else
  echo "    your package manager's install of ${missing[*]}, so that initdb and chromium are on the PATH" >&2
fi
# The tests that need them say so themselves; everything else works without.
