"""The control plane of the API's tests, for the pages on top of it."""

from tests.api.conftest import plane, sqlite_plane

__all__ = ["plane", "sqlite_plane"]
