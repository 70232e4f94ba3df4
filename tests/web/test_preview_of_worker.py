"""The preview of a real worker: it and a control plane in processes, the page in Chromium."""

import io
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, Response, expect
from websockets.sync.client import connect

from tests.chaos.plane import Plane
from tests.chaos.worker import FLEET
from tests.web import chromium
from tests.worker.supervisor.worker_process import WorkerProcess, running_worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WORKER = "worker-a"
PAGE = f"/fleets/{FLEET}/workers/{WORKER}"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    plane = Plane(tmp_path)
    plane.start()
    plane.adopt(bake_s=60)
    yield plane
    plane.stop()


@pytest.fixture
def worker(plane: Plane, tmp_path: Path) -> Iterator[WorkerProcess]:
    """The demo's preset, whose frames are of 256 x 384 pixels; it registers by itself."""
    token = plane.worker_token(WORKER, to=tmp_path / "worker.token")
    with running_worker(
        tmp_path / "worker",
        url=plane.url,
        fleet=FLEET,
        worker=WORKER,
        preset="demo",
        token_file=str(token),
    ) as worker:
        while not plane.are_settled(1):  # bounded by the test's own timeout
            time.sleep(0.1)
        yield worker


@pytest.fixture
def page(plane: Plane) -> Iterator[Page]:
    token = (plane.state_dir / "admin.token").read_text().strip()
    with chromium.browser() as browser:
        yield chromium.logged_in(browser.new_context(), url=plane.url, token=token)


@contextmanager
def watching(worker: WorkerProcess) -> Iterator[list[bytes]]:
    """Every frame that a viewer is sent, until the end."""
    frames: list[bytes] = []
    is_over = threading.Event()

    def view() -> None:
        with connect(worker.url, max_size=None, proxy=None) as stream:
            stream.send(json.dumps({"first_forward_length": 16, "seed": 1, "is_synthetic": True}))
            while not is_over.is_set():
                received = stream.recv(timeout=30)
                if isinstance(received, bytes):
                    frames.append(received)

    with ThreadPoolExecutor(1) as pool:
        viewing = pool.submit(view)
        try:
            yield frames
        finally:
            is_over.set()
        viewing.result()


def test_the_page_shows_the_frames_that_the_worker_streams(
    plane: Plane, worker: WorkerProcess, page: Page
) -> None:
    page.goto(f"{plane.url}{PAGE}")
    expect(page.locator("#frame")).to_have_text("no session has streamed yet: there is no frame")
    expect(page.locator("[data-frames]")).to_be_hidden()
    shown: list[bytes] = []

    def note(answer: Response) -> None:
        if "preview.jpg" in answer.url and answer.ok:
            shown.append(answer.body())

    with watching(worker) as streamed:
        expect(page.locator("[data-frames]")).to_be_visible(timeout=60_000)
        expect(page.locator("#frame")).to_have_text(
            "frames of the session that runs", timeout=60_000
        )
        for _ in range(3):
            with page.expect_response(lambda one: "preview.jpg" in one.url and one.ok) as answer:
                pass
            note(answer.value)
        page.wait_for_timeout(1000)  # what is shown has been sent by then

    assert len(set(shown)) >= 2
    assert set(shown) <= set(streamed)
    assert {Image.open(io.BytesIO(frame)).size for frame in shown} == {(384, 256)}
    image = page.locator("[data-frames]")
    expect(image).to_have_js_property("naturalWidth", 384, timeout=60_000)
    expect(image).to_have_js_property("naturalHeight", 256)
    expect(page.locator("#frame")).to_have_text(
        "no session runs: the last frame of one that is over", timeout=60_000
    )
