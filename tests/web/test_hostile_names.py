"""Words of others that mean harm, on every page that shows them: nothing runs, nothing breaks."""

import pytest
from playwright.sync_api import Page, expect

from tests.web import lively
from tests.web.lively import Site

pytestmark = pytest.mark.timeout(600)
LONG = "x" * 200
MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
TURNED = "\u202egpj.exe\u202c"  # reads backwards
RIGHT_TO_LEFT = "עובד " * 20
# In the database, past the API, which refuses such names: pages must not lean on that.
CHANGES = (
    ("workers", "hardware", LONG),
    ("workers", "address", MARKUP),
    ("canaries", "reason", RIGHT_TO_LEFT + MARKUP),
    ("transitions", "reason", TURNED + LONG),
    ("transitions", "actor", MARKUP),
    ("fleets", "stopped_reason", MARKUP + LONG),
)
NAMED = (
    ("workers", "name", lively.WORKER, "w" * 63),
    ("workers", "name", "worker-1", MARKUP),
    ("workers", "name", "worker-2", LONG + MARKUP),
    ("workers", "name", "worker-3", RIGHT_TO_LEFT + TURNED + MARKUP),
    ("fleets", "name", lively.EMPTY, MARKUP),
    ("fleets", "name", lively.STOPPED, TURNED + LONG),
    ("canaries", "name", lively.PROMOTED, LONG + MARKUP),
)
PAGES = (
    "/",
    f"/fleets/{lively.FLEET}",
    f"/fleets/{lively.FLEET}/workers/{'w' * 63}",
    "/canaries",
    f"/canaries/{lively.ROLLED_BACK}",
    f"/canaries/{lively.ROLLED_BACK}/decisions",
    "/reports/weekly",
)


@pytest.fixture(scope="module")
def hostile(site: Site) -> Site:
    with site.fleet.database.write() as conn:
        for table, column, value in CHANGES:
            conn.exec_driver_sql(f"update {table} set {column} = ?", (value,))  # noqa: S608 - words of this test
        for table, column, before, value in NAMED:
            changed = conn.exec_driver_sql(
                f"update {table} set {column} = ? where {column} = ?",  # noqa: S608 - words of this test
                (value, before),
            )
            assert changed.rowcount == 1
    return site


@pytest.mark.parametrize("width", [1400, 380])
@pytest.mark.parametrize("path", PAGES)
def test_nothing_runs_and_the_layout_holds(
    page: Page, hostile: Site, path: str, width: int
) -> None:
    """The page's fixture fails the test if the browser complains, runs or shows anything."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{hostile.url}{path}")

    assert page.url == f"{hostile.url}{path}"
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.locator("main img:not([data-frames])").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    text = page.locator("main").inner_text()
    # What would turn the words around it is written out.
    assert "\u202e" not in text


def test_a_chart_shows_them_as_text(page: Page, hostile: Site) -> None:
    """Plotly reads markup in words, too."""
    page.goto(f"{hostile.url}/canaries/{lively.ROLLED_BACK}")
    page.locator("#rates .chart").hover()
    chart = page.locator(".plot")
    chart.wait_for()
    chart.press("ArrowRight")

    expect(page.locator(".plot .hoverlayer")).to_contain_text("<script>alert(1)</script>")
    assert page.locator(".plot a, .plot img, .plot script").count() == 0


def test_a_turned_name_is_written_out(page: Page, hostile: Site) -> None:
    page.goto(f"{hostile.url}/")

    assert "\\u202egpj.exe\\u202c" in page.locator("main").inner_text()
