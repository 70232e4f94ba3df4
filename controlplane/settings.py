"""Settings of the control plane's process, from `STEADYFRAME_` variables or explicit keys.

Every field is described in `docs/settings.md`; a test holds the two together. Nothing below `app`
reads them: functions are given what they need.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, IPvAnyNetwork, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "STEADYFRAME_"
# Variables with our prefix that other programs of ours read: the worker's agent and the CLI.
OTHER_PROGRAMS = (
    "FORCE_FALLBACK",
    "URL",
    "TOKEN",
    "TOKEN_FILE",
    "TIMEOUT_S",
    "WORKER_",
    "AGENT_",
    "DEMO_",
)

# `worker.agent.control` waits 50 s for the answer to a held call; five of them are for the way.
MAX_HOLD_S = 45.0

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=1024, le=1 << 30)]


class Settings(BaseSettings):
    """What one process of the control plane is told at its start."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    state_dir: Path = Field(
        default=Path("~/.local/state/steadyframe"),
        description="Folder of the embedded database, the admin token and `address.json`.",
    )
    database_url: str | None = Field(
        default=None,
        description="SQLAlchemy address of the database; unset: a SQLite file in the state folder.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: Port = Field(default=8424, description="Port to listen on; 0: any free one.")
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="Host names to answer to besides loopback's (JSON list); `*`: every one.",
    )
    preview_networks: tuple[IPvAnyNetwork, ...] = Field(
        default=(),
        description="Networks that frames are fetched from besides loopback (JSON list of CIDRs).",
    )
    is_behind_https: bool = Field(
        default=False,
        description="Whether a proxy in front speaks https, so that cookies need it, too.",
    )
    tick_s: Seconds = Field(default=5.0, description="Seconds between ticks of the reconcilers.")
    hold_s: Seconds = Field(
        default=20.0,
        description=(
            "Seconds a worker's call for its desired state is held open;"
            " with the jitter at most 45."
        ),
    )
    hold_jitter_s: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = Field(
        default=5.0, description="Seconds by which that time is varied, up and down."
    )
    poll_s: Seconds = Field(
        default=2.0, description="Seconds between looks for changes that another process made."
    )
    judge_stale_s: Seconds = Field(
        default=60.0, description="Seconds without a tick after which `/readyz` fails."
    )
    num_threads: Annotated[int, Field(ge=1, le=256)] = Field(
        default=8, description="Threads that carry out requests."
    )
    max_body_bytes: Bytes = Field(
        default=1 << 20, description="Largest body of a JSON request, in bytes."
    )
    max_telemetry_bytes: Bytes = Field(
        default=4 << 20, description="Largest OTLP body as sent, in bytes."
    )
    max_inflated_bytes: Bytes = Field(
        default=16 << 20, description="Largest OTLP body after decompression, in bytes."
    )
    max_import_bytes: Bytes = Field(
        default=64 << 20, description="Largest table of sessions to import, in bytes."
    )
    is_reconciling: bool = Field(
        default=True, description="Whether this process judges canaries, or only answers requests."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="Form of the log: `json` or `console`."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is logged."
    )

    @model_validator(mode="after")
    def _is_held_within_the_agents_patience(self) -> "Settings":
        longest_s = self.hold_s + self.hold_jitter_s
        if longest_s > MAX_HOLD_S:
            message = (
                f"hold_s + hold_jitter_s: {longest_s:g} is not allowed; allowed: at most"
                f" {MAX_HOLD_S:g}, since agents give up a held call after 50 seconds"
            )
            raise ValueError(message)
        return self

    @property
    def state_path(self) -> Path:
        """The state folder with `~` resolved."""
        return self.state_dir.expanduser()

    @property
    def database(self) -> str:
        """Address of the database to use."""
        return self.database_url or f"sqlite:///{self.state_path / 'steadyframe.db'}"


def unknown_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables with our prefix that nothing reads: most likely misspelt, so they are told."""
    known = {f"{PREFIX}{name}".upper() for name in Settings.model_fields}
    others = tuple(f"{PREFIX}{name}" for name in OTHER_PROGRAMS)
    return tuple(
        sorted(
            name
            for name in environment
            if name.upper().startswith(PREFIX)
            and name.upper() not in known
            and not name.upper().startswith(others)
        )
    )
