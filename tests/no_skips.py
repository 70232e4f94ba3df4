"""A pytest plugin for CI and `make test-all`: a skipped test fails the run.

Load it with `-p tests.no_skips`. A skip hides a piece that the machine lacks; where everything is
meant to run, that is a failure.
"""

from collections.abc import Iterator

import pytest

_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember each skip; under xdist the reports of all workers arrive here."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Turn a green run with skips into a failed one."""
    yield
    is_controller = not hasattr(session.config, "workerinput")
    if _skipped and is_controller and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests were skipped and that this is why the run failed."""
    if _skipped:
        terminalreporter.section("skipped tests count as failures here")
        for name in _skipped:
            terminalreporter.line(name)
