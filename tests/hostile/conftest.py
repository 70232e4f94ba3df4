"""The application of `tests/api`, for those who wish it ill."""

from tests.api.conftest import plane, sqlite_plane

__all__ = ["plane", "sqlite_plane"]
