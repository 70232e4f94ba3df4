"""What holds of every page, whatever it shows; a new route is found wanting until it is listed."""

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, StorageState

from controlplane import app
from controlplane.web import guard
from tests.web import lively
from tests.web.lively import ADDRESSES, NOT_PAGES, PAGES, Site

pytestmark = pytest.mark.timeout(600)
MAX_PAGE_BYTES = 64 * 1024
WIDE, NARROW = 1400, 380
SIGHTS = ((WIDE, "light"), (NARROW, "dark"), (WIDE, "dark"), (NARROW, "light"))
REFUSED = ("/fleets/nowhere", "/canaries?cursor=%27%20or")
# Of a page with a chart before anybody looks closer.
FILES = ("/static/style.css", "/static/live.js", "/static/explore.js")


def look(page: Page, site: Site, path: str, *, sights: tuple[tuple[int, str], ...]) -> None:
    page.goto(f"{site.url}{path}")
    assert page.url == f"{site.url}{path}"  # not the login that a lost session leads to
    for width, scheme in sights:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        found = Axe().run(page)
        assert found.violations_count == 0, (width, scheme, found.generate_report())


def test_every_route_of_a_page_is_listed() -> None:
    """A page that is not listed would be looked at by none of these tests."""
    found = {
        route.path
        for router in app.ROUTERS
        for route in router.routes
        if isinstance(route, guard.PageRoute) and "GET" in (route.methods or ())
    }

    assert found == {*ADDRESSES, *NOT_PAGES}


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing(page: Page, site: Site, path: str) -> None:
    look(page, site, path, sights=SIGHTS[:2])


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_in_the_other_sights(page: Page, site: Site, path: str) -> None:
    look(page, site, path, sights=SIGHTS[2:])


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_without_scripts(page: Page, site: Site, path: str) -> None:
    """Our scripts come empty: where JavaScript is off, axe, which is JavaScript, never ends."""
    empty = {"body": "", "content_type": "text/javascript"}
    page.route("**/static/*.js*", lambda route: route.fulfill(**empty))
    look(page, site, path, sights=SIGHTS)


@pytest.mark.parametrize("path", ["/reports/weekly", f"/canaries/{lively.ROLLED_BACK}"])
def test_axe_finds_nothing_in_a_chart_that_is_looked_into(
    page: Page, site: Site, path: str
) -> None:
    page.goto(f"{site.url}{path}")
    page.locator(".chart").first.hover()
    page.locator(".plot .main-svg").first.wait_for()
    for width, scheme in SIGHTS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        found = Axe().run(page)
        assert found.violations_count == 0, (width, scheme, found.generate_report())
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_no_wider_than_a_telephone(page: Page, site: Site, path: str) -> None:
    """Tables may scroll inside; a page that scrolls sideways hides what is wrong."""
    page.set_viewport_size({"width": NARROW, "height": 800})
    page.goto(f"{site.url}{path}")

    assert page.url == f"{site.url}{path}"
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW


@pytest.mark.parametrize("path", REFUSED)
def test_axe_finds_nothing_in_a_refusal(
    site: Site, browser: Browser, cookies: StorageState, path: str
) -> None:
    """On a page of its own, since Chromium complains of any answer that is not a success."""
    context = browser.new_context(storage_state=cookies)
    look(context.new_page(), site, path, sights=SIGHTS)
    context.close()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_weighs_little(site: Site, path: str) -> None:
    """Over the wire, with style and scripts: for a telephone in a basement."""
    with httpx.Client(base_url=site.url) as client:
        client.post("/login", data={"token": site.token}, headers={"Origin": site.url})
        weight = 0
        for each in (path, *FILES):
            with client.stream("GET", each, headers={"Accept-Encoding": "gzip"}) as answer:
                assert answer.status_code == 200
                weight += sum(len(part) for part in answer.iter_raw())

    assert weight <= MAX_PAGE_BYTES


def test_the_page_asks_for_no_file_that_is_not_counted(page: Page, site: Site) -> None:
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url.partition("?")[0]))
    page.goto(f"{site.url}/canaries/{lively.RUNNING}")
    page.wait_for_load_state("load")

    files = {url.removeprefix(site.url) for url in asked if "/static/" in url}
    assert files - {"/static/icon.svg"} == set(FILES)
