"""A fleet of sample data on every page that shows it: marked, and never as a fleet that waits."""

import pytest

from tests.api.control_plane import FLEET, ControlPlane
from tests.api.test_imports import PATH, table
from tests.web import visitor

SAMPLE = "sample"
_MISLEADING = ("Empty", "o worker has registered", "mode", "begins one")


@pytest.fixture
def with_sample(sqlite_plane: ControlPlane) -> ControlPlane:
    sqlite_plane.done(PATH, **table({}, {}, fleet=SAMPLE, is_sample=True))
    return sqlite_plane


def shown(plane: ControlPlane, path: str) -> str:
    answer = plane.client.get(path, headers=visitor.admin(plane))
    assert answer.status_code == 200
    return answer.text


@pytest.mark.parametrize("path", ["/", f"/fleets/{SAMPLE}", f"/canaries?fleet={SAMPLE}"])
def test_a_sample_is_marked_and_nothing_is_asked_for_it(
    with_sample: ControlPlane, path: str
) -> None:
    text = shown(with_sample, path)

    assert '<span class="state calm">sample data</span>' in text
    assert [words for words in _MISLEADING if words in text] == []


def test_its_sessions_are_called_imported_sample_data(with_sample: ControlPlane) -> None:
    text = shown(with_sample, f"/reports/weekly?fleet={SAMPLE}")

    assert "imported sessions, sample data" in text
    assert "live sessions" not in text


@pytest.mark.parametrize("path", ["/", f"/fleets/{FLEET}", f"/canaries?fleet={FLEET}"])
def test_a_real_fleet_is_not_marked(with_sample: ControlPlane, path: str) -> None:
    with_sample.fleet()
    text = shown(with_sample, path)

    assert text.count('<span class="state calm">sample data</span>') == (path == "/")
