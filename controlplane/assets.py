"""Where the files beside the code are: under `_assets` in a wheel, else in the checkout."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The folder `name`: `migrations` or `policies`.

    Raises:
        FileNotFoundError: neither the wheel nor a checkout has it: the installation is broken.
    """
    for candidate in (_PACKAGE / "_assets" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    message = f"{name}/ is missing beside {_PACKAGE}: install steadyframe again"
    raise FileNotFoundError(message)


def migrations() -> Path:
    """The folder that Alembic runs from."""
    return folder("migrations")


def policies() -> Path:
    """The folder of the policies that come with Steadyframe."""
    return folder("policies")
