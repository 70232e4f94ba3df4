"""Where the control plane is and who asks: from options, the environment, or the embedded state."""

import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from controlplane.cli import names
from controlplane.cli.exits import CliError, Exit
from controlplane.domain.errors import InvalidValueError

URL_VARIABLE: Final = "STEADYFRAME_URL"
TOKEN_VARIABLE: Final = "STEADYFRAME_TOKEN"  # noqa: S105 - the name of a variable, not a token
TOKEN_FILE_VARIABLE: Final = "STEADYFRAME_TOKEN_FILE"  # noqa: S105 - likewise
TIMEOUT_VARIABLE: Final = "STEADYFRAME_TIMEOUT_S"
STATE_VARIABLE: Final = "STEADYFRAME_STATE_DIR"
DEFAULT_URL: Final = "http://127.0.0.1:8424"
DEFAULT_STATE_DIR: Final = "~/.local/state/steadyframe"
ADDRESS_FILE: Final = "address.json"
TOKEN_FILE: Final = "admin.token"  # noqa: S105 - likewise
# Anything longer is not a token but the wrong file.
MAX_TOKEN_BYTES: Final = 4096
# To be answered. Long enough for a loaded laptop, short enough for a person who waits.
TIMEOUT_S: Final = 10.0
MAX_TIMEOUT_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Who asks: the token, and in which file or variable it was found."""

    text: str = field(repr=False)
    found_in: str


def url(given: str | None, *, environment: Mapping[str, str] = os.environ) -> str:
    """The address: the option, the variable, the embedded control plane's, or the default one.

    Raises: CliError: it is no address of a web server.
    """
    key = "--url" if given else URL_VARIABLE
    named = given or environment.get(URL_VARIABLE)
    if not named:
        return _embedded_address(state_dir(environment)) or DEFAULT_URL
    allowed = "an address such as http://HOST:PORT, without a user or a password"
    try:
        parts = urlsplit(named)
        is_sound = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise names.refusal(InvalidValueError(key, named, allowed=allowed)) from None
    if "@" in parts.netloc:
        # What stands before the @ is a secret, so it is not shown.
        raise names.refusal(InvalidValueError(key, "...@...", allowed=allowed))
    is_web = parts.scheme in ("http", "https")
    if not (is_sound and is_web and named.isprintable() and named.isascii() and " " not in named):
        raise names.refusal(InvalidValueError(key, named, allowed=allowed))
    return named


def token(given_file: Path | None, *, environment: Mapping[str, str] = os.environ) -> Token | None:
    """The token, or None where there is none to be found.

    Never taken from the command line itself, where every process of the machine could read it.

    Raises: CliError: a file that was named cannot be read or is no token.
    """
    if given_file:
        return Token(text=read_token(given_file), found_in=f"--token-file {given_file}")
    if named := environment.get(TOKEN_FILE_VARIABLE):
        return Token(text=read_token(Path(named)), found_in=f"{TOKEN_FILE_VARIABLE}, {named}")
    if TOKEN_VARIABLE in environment:
        text = environment[TOKEN_VARIABLE].strip()
        if text and not _is_token(text):
            raise CliError(
                f"{TOKEN_VARIABLE} holds no token: one word is expected", exit_code=Exit.USAGE
            )
        return Token(text=text, found_in=TOKEN_VARIABLE) if text else None
    embedded = state_dir(environment) / TOKEN_FILE
    if not embedded.exists():
        return None
    return Token(text=read_token(embedded), found_in=str(embedded))


def no_token_step(environment: Mapping[str, str] = os.environ) -> str:
    """What to do where `token` found none, by every place that it looked in."""
    return (
        f"put a token into a file of mode 0600 and name it: --token-file FILE, or"
        f" {TOKEN_FILE_VARIABLE}=FILE; or set {TOKEN_VARIABLE} to the token itself. On the machine"
        f" of `steadyframe serve` it is read from {state_dir(environment) / TOKEN_FILE}, which is"
        " not there now"
    )


def timeout_s(given: float | None, *, environment: Mapping[str, str] = os.environ) -> float:
    """Seconds to wait for an answer. Raises: CliError: the variable is no such number."""
    if given is not None:
        return given
    text = environment.get(TIMEOUT_VARIABLE)
    if not text:
        return TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_TIMEOUT_S:
        allowed = f"seconds above 0, at most {MAX_TIMEOUT_S:g}"
        raise names.refusal(InvalidValueError(TIMEOUT_VARIABLE, text, allowed=allowed))
    return seconds


def read_token(path: Path) -> str:
    """The token in `path`. Raises: CliError naming the file."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_TOKEN_BYTES + 1).decode().strip()
            is_open_to_others = bool(
                os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            )
    except (OSError, ValueError) as error:  # no UTF-8, or NUL in the path
        raise CliError(
            f"cannot read the token file {path}: {error}",
            exit_code=Exit.USAGE,
            next_step="name a file that holds a token and that you may read",
        ) from None
    if is_open_to_others:
        raise CliError(
            f"the token file {path} can be read by others",
            exit_code=Exit.USAGE,
            next_step=f"chmod 600 {path}",
        )
    if not _is_token(text):
        raise CliError(
            f"{path} holds no token: one word is expected",
            exit_code=Exit.USAGE,
            next_step="name the file that `steadyframe token create --out FILE` wrote",
        )
    return text


def state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The embedded control plane's folder."""
    named = Path(environment.get(STATE_VARIABLE) or DEFAULT_STATE_DIR)
    try:
        return named.expanduser()
    except RuntimeError:  # no home
        return named


def _embedded_address(folder: Path) -> str | None:
    """Where the control plane of this machine wrote that it listens, if it ever ran."""
    try:
        address = json.loads((folder / ADDRESS_FILE).read_text())
    except (OSError, ValueError):
        return None
    found = address.get("url") if isinstance(address, Mapping) else None
    return found if isinstance(found, str) else None


def _is_token(text: str) -> bool:
    is_word = text.isascii() and text.isprintable() and " " not in text
    return is_word and 0 < len(text) <= MAX_TOKEN_BYTES
