"""The control plane is killed at any moment: nothing is lost, and nothing flips twice."""

from pathlib import Path

import pytest

from tests import tally
from tests.chaos.plane import Plane
from tests.chaos.survival import survive


@pytest.mark.timeout(600)
def test_ten_kills_on_sqlite(tmp_path: Path) -> None:
    assert survive(Plane(tmp_path), tmp_path, num_kills=10, seed=1) > 0


@pytest.mark.timeout(600)
def test_ten_kills_on_postgresql(tmp_path: Path, postgresql_url: str) -> None:
    plane = Plane(tmp_path, database_url=postgresql_url)
    assert survive(plane, tmp_path, num_kills=10, seed=2) > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "seed"), [("sqlite", 50), ("postgresql", 51)])
def test_a_canary_lives_through_half_of_fifty_kills(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, seed: int
) -> None:
    """Fifty on the two databases together, each of which meets the canary running."""
    url = request.getfixturevalue("postgresql_url") if kind == "postgresql" else None

    num_lived = survive(Plane(tmp_path, database_url=url), tmp_path, num_kills=25, seed=seed)

    request.node.user_properties.append(("num_kills_survived_by_the_canary", num_lived))
    tally.note("kills_with_a_running_canary", test=request.node.name, count=num_lived)
    assert num_lived == 25
