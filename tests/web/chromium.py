"""The system's Chromium under Playwright, which downloads none of its own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoChromiumError(Exception):
    """The tests need Chromium: `bash scripts/system-packages.sh` installs it."""


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window.

    While it is there, no other event loop can run in this thread: that is how Playwright works.
    """
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        raise NoChromiumError(NoChromiumError.__doc__)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield started
        finally:
            started.close()


def logged_in(context: BrowserContext, *, url: str, token: str) -> Page:
    """A page after the login form, as a person fills it in."""
    page = context.new_page()
    page.goto(f"{url}/login")
    page.get_by_label("API token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{url}/")
    return page
