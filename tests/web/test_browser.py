"""The pages in real Chromium: nothing for axe to find, nothing that the policy blocks, live.

One module, since no other event loop can run in a thread that drives a browser.
"""

import re
from collections.abc import Iterator

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from controlplane import assets
from controlplane.store.transaction import Database
from tests.web import chromium, lively
from tests.web.lively import PAGES, Site

MAX_PAGE_BYTES = 64 * 1024
# The first test fills the site: some minutes of a simulated fleet.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    database = Database.open(f"sqlite:///{folder / 'steadyframe.db'}")
    database.migrate(assets.migrations())
    with lively.site(database, folder / "state") as site:
        yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.browser() as browser:
        yield browser


@pytest.fixture
def cookies(browser: Browser, site: Site) -> dict[str, object]:
    """A login of this test alone: another one logs out."""
    context = browser.new_context()
    chromium.logged_in(context, url=site.url, token=site.token)
    state: dict[str, object] = dict(context.storage_state())
    context.close()
    return state


@pytest.fixture
def page(browser: Browser, cookies: dict[str, object]) -> Iterator[Page]:
    """A page of somebody who is logged in; whatever the browser complains about fails the test."""
    context = browser.new_context(storage_state=cookies)  # type: ignore[arg-type]  # as it gave it
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.extend(_complaint(message)))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


def _complaint(message: ConsoleMessage) -> list[str]:
    """What the policy blocked, or what failed; hints for developers are neither."""
    return [message.text] if message.type in ("error", "warning") else []


@pytest.mark.parametrize("path", [*PAGES, "/login"])
def test_axe_finds_nothing(page: Page, site: Site, path: str) -> None:
    for width, scheme in ((1400, "light"), (400, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.goto(f"{site.url}{path}")
        assert page.url == f"{site.url}{path}"  # not the login that a lost session leads to
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_no_wider_than_a_telephone(page: Page, site: Site, path: str) -> None:
    """Tables may scroll inside; a page that scrolls sideways hides what is wrong."""
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"{site.url}{path}")

    assert page.url == f"{site.url}{path}"
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_answer_comes_first(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/canaries/{lively.ROLLED_BACK}")

    answer = page.get_by_role("status")
    expect(answer).to_contain_text("Safe again")
    expect(answer).to_contain_text("22.7")
    assert page.locator("main > *").nth(1).get_attribute("id") == "answer"


def test_an_open_page_follows_what_happens_and_keeps_the_focus(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/fleets/{lively.FLEET}")
    link = page.get_by_role("link", name=lively.WORKER)
    link.focus()
    before = page.locator("#tiles").inner_text()

    site.fleet.world.run(seconds=4)
    site.parts.context.signals.notify("canaries")

    expect(page.locator("#tiles")).not_to_have_text(before)
    expect(page.get_by_role("link", name=lively.WORKER)).to_be_focused()


def test_updates_can_be_paused(page: Page, site: Site) -> None:
    """What moves by itself must be stoppable, by keyboard too."""
    page.goto(f"{site.url}/canaries")
    button = page.get_by_role("button", name="Pause updates")
    button.press("Enter")

    expect(button).to_have_attribute("aria-pressed", "true")


def test_the_preview_shows_a_frame_of_the_worker(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/fleets/{lively.FLEET}/workers/{lively.WORKER}")
    image = page.get_by_role("img", name="newest frame")

    expect(image).to_be_visible()
    expect(image).to_have_attribute("src", re.compile(r"\?n=\d+"))
    assert image.evaluate("image => image.naturalWidth") == 384


def test_every_page_reads_without_scripts(
    browser: Browser, cookies: dict[str, object], site: Site
) -> None:
    context = browser.new_context(
        storage_state=cookies,  # type: ignore[arg-type]  # as it gave it
        java_script_enabled=False,
    )
    page = context.new_page()
    for path in PAGES:
        page.goto(f"{site.url}{path}")
        assert page.get_by_role("heading", level=1).count() == 1
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("API token")).to_be_visible()
    context.close()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_weighs_little(site: Site, path: str) -> None:
    """Over the wire, with style and script: for a telephone in a basement."""
    with httpx.Client(base_url=site.url) as client:
        form = {"token": site.token}
        client.post("/login", data=form, headers={"Origin": site.url})
        weight = 0
        for each in (path, "/static/style.css", "/static/live.js"):
            with client.stream("GET", each, headers={"Accept-Encoding": "gzip"}) as answer:
                assert answer.status_code == 200
                weight += sum(len(part) for part in answer.iter_raw())

    assert weight <= MAX_PAGE_BYTES
