"""Nothing that looks like a token reaches the log, whatever field or text it hides in."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from controlplane import telemetry

TOKEN = "sf_" + "A1b2C3d4" * 5 + "xyz"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    before = logging.getLogger().handlers[:]
    level = logging.getLogger().level
    telemetry.configure()
    stream = io.StringIO()
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    yield stream
    logging.getLogger().handlers[:] = before
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


def test_an_event_is_one_line_of_json_with_its_fields(log: io.StringIO) -> None:
    structlog.get_logger("x").info("canary_aborted", canary="fused-1", reason="guard_broken")

    line = json.loads(log.getvalue())
    assert (line["event"], line["canary"], line["level"]) == ("canary_aborted", "fused-1", "info")


@pytest.mark.parametrize(
    "fields",
    [
        {"token": "whatever"},
        {"Authorization": "Bearer abc"},
        {"url": f"http://localhost/?t={TOKEN}"},
        {"header": f"Bearer {TOKEN}"},
        {"nested": {"deep": [{"list": TOKEN}]}},
        {"nested": {"password": "hunter2"}},
        {"object": ValueError(TOKEN)},
    ],
)
def test_tokens_are_taken_out(log: io.StringIO, fields: dict[str, object]) -> None:
    structlog.get_logger("x").info("request_made", **fields)

    written = log.getvalue()
    assert telemetry.REDACTED in written
    for secret in (TOKEN, "whatever", 'abc"', "hunter2"):
        assert secret not in written


def test_the_standard_librarys_records_go_the_same_way(log: io.StringIO) -> None:
    """uvicorn and SQLAlchemy log through it."""
    logging.getLogger("uvicorn.error").warning("bad header: Bearer %s", TOKEN)

    assert TOKEN not in log.getvalue()
    assert json.loads(log.getvalue())["event"].startswith("bad header")


def test_a_traceback_is_redacted_too(log: io.StringIO) -> None:
    try:
        raise RuntimeError(TOKEN)  # noqa: TRY301 - for its traceback
    except RuntimeError:
        structlog.get_logger("x").exception("tick_failed")

    assert TOKEN not in log.getvalue()
    assert "RuntimeError" in log.getvalue()


def test_a_new_line_in_a_field_forges_no_second_event(log: io.StringIO) -> None:
    structlog.get_logger("x").info("worker_registered", worker='a\n{"event": "forged"}')

    assert len(log.getvalue().splitlines()) == 1
