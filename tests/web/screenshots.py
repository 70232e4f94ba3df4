"""Pictures of the pages in real Chromium, and their weight: `python -m tests.web.screenshots`.

Run by hand when a page changes; the pictures are committed in docs/screenshots.
"""

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser

from controlplane import assets
from controlplane.cli import sample
from controlplane.store.transaction import Database
from tests.web import chromium, lively
from tests.web.lively import Site

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
_PLAIN = Image.Dither.NONE
MAX_BYTES = 150 * 1024
WIDE, NARROW = 1400, 400
_WEEKLY = f"/reports/weekly?fleet={sample.FLEET}&anchor=2026-10-08"
SHOTS = (
    ("fleet", f"/fleets/{lively.FLEET}", WIDE, "light"),
    ("fleet-dark", f"/fleets/{lively.FLEET}", WIDE, "dark"),
    ("worker", f"/fleets/{lively.FLEET}/workers/{lively.WORKER}", WIDE, "light"),
    ("canary", f"/canaries/{lively.ROLLED_BACK}", WIDE, "light"),
    ("canary-running", f"/canaries/{lively.RUNNING}", WIDE, "dark"),
    ("canary-narrow", f"/canaries/{lively.RUNNING}", NARROW, "light"),
    ("weekly", _WEEKLY, WIDE, "light"),
    ("weekly-narrow", _WEEKLY, NARROW, "dark"),
    ("overview", "/", WIDE, "light"),
    ("stopped", f"/fleets/{lively.STOPPED}", WIDE, "light"),
    ("empty", f"/fleets/{lively.EMPTY}", WIDE, "dark"),
)
# The document, its style and its script, as they came over the wire; not the frames of a preview.
_MEASURES = """async () => {
  await new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)));
  const loaded = [...performance.getEntriesByType('navigation'),
    ...performance.getEntriesByType('resource').filter(one => one.name.includes('/static/'))];
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  return [loaded.reduce((sum, one) => sum + one.transferSize, 0), paint ? paint.startTime : NaN];
}"""


def main() -> None:
    """Write every picture, or those named as arguments."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = Database.open(f"sqlite:///{folder / 'steadyframe.db'}")
        database.migrate(assets.migrations())
        with lively.site(database, folder / "state") as site, chromium.browser() as browser:
            for shot in SHOTS:
                if len(sys.argv) == 1 or shot[0] in sys.argv[1:]:
                    _take(browser, site, *shot)
            _measure(browser, site)


def _take(browser: Browser, site: Site, name: str, path: str, width: int, scheme: str) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        java_script_enabled=False,  # so that the picture holds still
    )
    page = chromium.logged_in(context, url=site.url, token=site.token)
    page.goto(f"{site.url}{path}")
    target = FOLDER / f"{name}.png"
    taken = Image.open(io.BytesIO(page.screenshot(full_page=True)))
    # A page has few colours; a palette of them is a third of the bytes.
    few = taken.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=_PLAIN)
    few.save(target, optimize=True)
    context.close()
    assert target.stat().st_size < MAX_BYTES, f"{target.name} is {target.stat().st_size} bytes"
    sys.stdout.write(f"{target.name} {target.stat().st_size // 1024} KiB\n")


def _measure(browser: Browser, site: Site) -> None:
    """Say how heavy each page is with nothing cached, and how soon it is there."""
    for path in lively.PAGES:
        context = browser.new_context()
        page = chromium.logged_in(context, url=site.url, token=site.token)
        page.route("**/static/**", lambda route: route.continue_())  # switches the cache off
        page.goto(f"{site.url}{path}")
        num_bytes, paint_ms = page.evaluate(_MEASURES)
        context.close()
        sys.stdout.write(f"{path} {num_bytes / 1024:.1f} KiB, first paint {paint_ms:.0f} ms\n")


if __name__ == "__main__":
    main()
