#!/usr/bin/env bash
# Installs the PostgreSQL server programs that the tests start a throw-away server with.
# Uses apt as root or through password-less sudo; otherwise says which line to type.
set -euo pipefail

has_postgresql() {
  command -v initdb >/dev/null && command -v pg_ctl >/dev/null && return
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

if has_postgresql; then exit 0; fi
if may_install; then
  echo "setup: installing PostgreSQL for the tests" >&2
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql >/dev/null
  exit 0
fi
echo "setup: the tests need PostgreSQL's server programs (initdb, pg_ctl). Type:" >&2
if command -v apt-get >/dev/null; then
  echo "    sudo apt-get update && sudo apt-get install --no-install-recommends postgresql" >&2
else
  echo "    your package manager's install of 'postgresql', so that initdb is on the PATH" >&2
fi
# The tests that need it say so themselves; everything else works without.
