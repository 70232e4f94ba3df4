"""The log: structured events on standard error, with anything that looks like a token taken out.

Events are in the past tense with fields. The domain does not log; it returns reasons.
"""

import logging
import re
from collections.abc import MutableMapping
from typing import Any, Literal

import structlog

# Tokens are made as sf_<43 characters or more>; see services/tokens.py.
_TOKEN = re.compile(r"(sf_[A-Za-z0-9_-]{8})[A-Za-z0-9_-]+|(?i:(bearer\s+))[^\s\"']+")
_SECRET_KEYS = frozenset({"token", "authorization", "secret", "password", "cookie"})
# They tell of every tick and every start in their own words; our events tell what matters of those.
_QUIET = {"apscheduler": "ERROR", "alembic": "WARNING", "uvicorn": "WARNING", "asyncio": "WARNING"}
REDACTED = "[redacted]"
# Nested values are looked into this deep; deeper ones are shown as their redacted text.
_MAX_DEPTH = 6


def configure(*, log_format: Literal["json", "console"] = "json", log_level: str = "info") -> None:
    """Send structlog's and the standard library's records through one redacting chain."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(log_level),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redact,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(log_level.upper())
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The event without tokens, whatever field they came in."""
    for key in list(event):
        if key.startswith("_"):  # structlog's own: the record it wraps
            continue
        event[key] = REDACTED if key.lower() in _SECRET_KEYS else _without_tokens(event[key])
    return event


def redacted(text: str) -> str:
    """`text` with what looks like a token taken out, all but its beginning."""
    return _TOKEN.sub(lambda found: f"{found[1] or found[2]}{REDACTED}", text)


def _without_tokens(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if depth >= _MAX_DEPTH:
        return redacted(repr(value))
    if isinstance(value, dict):
        return {
            key: REDACTED if str(key).lower() in _SECRET_KEYS else _without_tokens(inner, depth + 1)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_without_tokens(inner, depth + 1) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redacted(str(value))
