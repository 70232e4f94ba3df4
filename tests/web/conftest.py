"""The control plane of the API's tests for the pages on top of it, and a site for real Chromium.

Module by module, since no other event loop can run in a thread that drives a browser.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, StorageState

from controlplane import assets
from controlplane.store.transaction import Database
from tests.api.conftest import plane, sqlite_plane
from tests.web import chromium, lively
from tests.web.lively import Site

__all__ = ["plane", "sqlite_plane"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Some minutes of a simulated fleet, so the first test of a module takes a while."""
    folder = tmp_path_factory.mktemp("site")
    database = Database.open(f"sqlite:///{folder / 'steadyframe.db'}")
    database.migrate(assets.migrations())
    with lively.site(database, folder / "state") as site:
        yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def cookies(browser: Browser, site: Site) -> StorageState:
    """A login for the tests of a module; one that logs out takes `own_cookies`."""
    return chromium.cookies_of(browser, url=site.url, token=site.token)


@pytest.fixture
def own_cookies(browser: Browser, site: Site) -> StorageState:
    """A login of one test alone."""
    return chromium.cookies_of(browser, url=site.url, token=site.token)


@pytest.fixture
def page(browser: Browser, cookies: StorageState) -> Iterator[Page]:
    """A page of somebody who is logged in; whatever the browser complains about fails the test."""
    context = browser.new_context(storage_state=cookies)
    page = context.new_page()
    complaints = chromium.complaints_of(page)
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def plain_page(browser: Browser, cookies: StorageState) -> Iterator[Page]:
    """The same without JavaScript."""
    context = browser.new_context(storage_state=cookies, java_script_enabled=False)
    page = context.new_page()
    complaints = chromium.complaints_of(page)
    yield page
    context.close()
    assert complaints == []
