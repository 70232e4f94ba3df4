"""Where the control plane is and who asks: from options, the environment, or the embedded state."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controlplane.cli.exits import CliError, Exit

URL_VARIABLE: Final = "STEADYFRAME_URL"
TOKEN_VARIABLE: Final = "STEADYFRAME_TOKEN"  # noqa: S105 - the name of a variable, not a token
TOKEN_FILE_VARIABLE: Final = "STEADYFRAME_TOKEN_FILE"  # noqa: S105 - likewise
STATE_VARIABLE: Final = "STEADYFRAME_STATE_DIR"
DEFAULT_URL: Final = "http://127.0.0.1:8424"
DEFAULT_STATE_DIR: Final = "~/.local/state/steadyframe"
ADDRESS_FILE: Final = "address.json"
TOKEN_FILE: Final = "admin.token"  # noqa: S105 - likewise
# Anything longer is not a token but the wrong file.
MAX_TOKEN_BYTES: Final = 4096


def url(given: str | None, *, environment: Mapping[str, str] = os.environ) -> str:
    """The address: the option, the variable, the embedded control plane's, or the default one."""
    return (
        given
        or environment.get(URL_VARIABLE)
        or _embedded_address(state_dir(environment))
        or DEFAULT_URL
    )


def token(given_file: Path | None, *, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token, or None where there is none to be found.

    Never taken from the command line itself, where every process of the machine could read it.

    Raises: CliError: a file that was named cannot be read or is no token.
    """
    named = given_file or _path(environment.get(TOKEN_FILE_VARIABLE))
    if named:
        return read_token(named)
    if TOKEN_VARIABLE in environment:
        return environment[TOKEN_VARIABLE].strip() or None
    embedded = state_dir(environment) / TOKEN_FILE
    return read_token(embedded) if embedded.exists() else None


def read_token(path: Path) -> str:
    """The token in `path`. Raises: CliError naming the file."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TOKEN_BYTES + 1).decode().strip()
            is_open_to_others = bool(
                os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            )
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(
            f"cannot read the token file {path}: {error}", exit_code=Exit.USAGE
        ) from None
    if is_open_to_others:
        raise CliError(
            f"the token file {path} can be read by others",
            exit_code=Exit.USAGE,
            next_step=f"chmod 600 {path}",
        )
    if not text or len(text) > MAX_TOKEN_BYTES or not text.isprintable() or " " in text:
        raise CliError(f"{path} holds no token: one word is expected", exit_code=Exit.USAGE)
    return text


def state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The embedded control plane's folder."""
    return Path(environment.get(STATE_VARIABLE) or DEFAULT_STATE_DIR).expanduser()


def _embedded_address(folder: Path) -> str | None:
    """Where the control plane of this machine wrote that it listens, if it ever ran."""
    try:
        address = json.loads((folder / ADDRESS_FILE).read_text())
    except (OSError, ValueError):
        return None
    found = address.get("url") if isinstance(address, Mapping) else None
    return found if isinstance(found, str) else None


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
