"""The pages in real Chromium: live, by keyboard, with a closer look, and without scripts."""

import re

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from tests.web import lively
from tests.web.lively import PAGES, Site

# The first test fills the site: some minutes of a simulated fleet.
pytestmark = pytest.mark.timeout(600)
WEEKLY = "/reports/weekly?fleet=sample&anchor=2026-10-08"


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
    # Waited for: a source that has just been named is not loaded yet.
    expect(image).to_have_js_property("naturalWidth", 384)


def test_every_page_reads_without_scripts(
    browser: Browser, own_cookies: StorageState, site: Site
) -> None:
    context = browser.new_context(storage_state=own_cookies, java_script_enabled=False)
    page = context.new_page()
    for path in PAGES:
        page.goto(f"{site.url}{path}")
        assert page.get_by_role("heading", level=1).count() == 1
    page.goto(f"{site.url}/")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("API token")).to_be_visible()
    context.close()


def test_the_weeks_begin_on_a_day_that_is_asked_for_without_scripts_too(
    plain_page: Page, site: Site
) -> None:
    plain_page.goto(f"{site.url}/reports/weekly?fleet=sample")
    plain_page.get_by_label("Weeks begin on the weekday of").fill("2026-10-08")
    plain_page.get_by_role("button", name="Show").click()

    # The published weeks: 14, 23, 18, 11 and 7 % before 8 October, 0.7 % after.
    expect(plain_page.locator(".chart .share")).to_have_text(
        ["14.0", "23.0", "18.0", "11.0", "7.0", "0.7", "0.7"]
    )
    assert plain_page.url == f"{site.url}{WEEKLY}"


def test_plotly_comes_only_when_somebody_looks_closer(page: Page, site: Site) -> None:
    """It weighs more than all pages together."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{site.url}{WEEKLY}")
    expect(page.get_by_role("button", name="Look closer")).to_be_visible()
    assert not any("plotly" in url for url in asked)

    page.locator(".chart").hover()

    expect(page.locator(".plot .main-svg").first).to_be_visible()
    expect(page.locator(".chart")).to_be_hidden()
    assert all(url.startswith(site.url) for url in asked)
    assert [url.partition("?")[0] for url in asked if "plotly.min" in url] == [
        f"{site.url}/static/plotly.min.js"
    ]


def test_a_week_tells_its_counts_on_hover(page: Page, site: Site) -> None:
    page.goto(f"{site.url}{WEEKLY}")
    page.locator(".chart").hover()
    bar = page.locator(".plot .trace.bars").first.locator("path").nth(1)
    expect(bar).to_be_visible()

    # Near the top: the very slow ones are drawn over its foot. Plotly answers to a pointer alone.
    box = bar.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5, steps=3)

    expect(page.locator(".plot .hoverlayer")).to_contain_text("575 of 2,500 rated sessions")


def test_a_chart_is_looked_into_by_keyboard(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/canaries/{lively.ROLLED_BACK}")
    page.get_by_role("button", name="Look closer").press("Enter")
    chart = page.get_by_role("group", name="sessions of the canary")
    expect(chart).to_be_focused()

    chart.press("ArrowLeft")

    told = page.locator("[data-explored] p[role=status]")
    expect(told).to_contain_text("fps")
    before = told.inner_text()
    chart.press("ArrowRight")
    expect(told).not_to_have_text(before)
    expect(page.locator(".plot .hoverlayer")).to_contain_text("first-forward length")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_chart_has_the_colours_of_the_page(page: Page, site: Site, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(f"{site.url}{WEEKLY}")
    page.locator(".chart").hover()
    bar = page.locator(".plot .trace.bars").first.locator("path").first

    expect(bar).to_have_css(
        "fill", "rgb(224, 160, 76)" if scheme == "dark" else "rgb(217, 138, 43)"
    )


def test_nothing_moves_for_who_wants_no_motion(page: Page, site: Site) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{site.url}{WEEKLY}")
    page.locator(".chart").hover()
    expect(page.locator(".plot .main-svg").first).to_be_visible()

    assert page.evaluate("document.getAnimations().length") == 0


def test_an_open_chart_follows_what_happens(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/canaries/{lively.RUNNING}")
    page.locator("#rates .chart").hover()
    points = page.locator(".plot .scatterlayer .point")
    expect(points.first).to_be_visible()
    before = points.count()

    site.fleet.world.run(seconds=8)
    site.parts.context.signals.notify("canaries")

    expect(points.nth(before)).to_be_visible()
    expect(page.locator(".plot")).to_have_count(1)


def test_an_open_page_comes_back_with_the_server(
    browser: Browser, cookies: StorageState, site: Site
) -> None:
    """The page stays, says that it is out of date, and goes on when the server is there again."""
    context = browser.new_context(storage_state=cookies)
    page = context.new_page()
    page.goto(f"{site.url}/fleets/{lively.FLEET}")
    page.evaluate("globalThis.isSamePage = true")
    before = page.locator("#tiles").inner_text()

    site.stop()
    expect(page.locator("body")).to_have_class(re.compile("stale"))
    site.start()
    site.fleet.world.run(seconds=4)

    expect(page.locator("body")).not_to_have_class(re.compile("stale"), timeout=20_000)
    expect(page.locator("#tiles")).not_to_have_text(before)
    assert page.evaluate("globalThis.isSamePage")
    context.close()


def test_back_leads_back_to_a_page_that_is_live(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/fleets/{lively.FLEET}")
    page.get_by_role("link", name=lively.WORKER).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(lively.WORKER)

    page.go_back()

    expect(page.get_by_role("heading", level=1)).to_have_text(f"fleet {lively.FLEET}")
    assert page.url == f"{site.url}/fleets/{lively.FLEET}"
    before = page.locator("#tiles").inner_text()
    site.fleet.world.run(seconds=4)
    site.parts.context.signals.notify("canaries")
    expect(page.locator("#tiles")).not_to_have_text(before)
