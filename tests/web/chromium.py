"""The system's Chromium under Playwright, which downloads none of its own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, BrowserContext, Page, StorageState, sync_playwright

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


def cookies_of(browser: Browser, *, url: str, token: str) -> StorageState:
    """What a browser keeps of a login."""
    context = browser.new_context()
    logged_in(context, url=url, token=token)
    state = context.storage_state()
    context.close()
    return state


def complaints_of(page: Page) -> list[str]:
    """Filled with what the policy blocks or what fails from now on; hints are neither."""
    told: list[str] = []

    def hear(kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            told.append(text)

    page.on("console", lambda message: hear(message.type, message.text))
    page.on("pageerror", lambda error: hear("error", str(error)))
    page.on("dialog", lambda dialog: hear("error", f"dialog: {dialog.message}"))
    return told
