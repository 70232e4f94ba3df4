"""Pages as a browser gets them: headers, refusals, and text of others that stays text."""

import pytest

from controlplane.web import live
from tests.api.control_plane import FLAG, FLEET, ControlPlane
from tests.web import visitor

SCRIPT = "<script>alert(1)</script>"
STRICT = ("default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'")


@pytest.mark.parametrize(
    "path", ["/", "/login", f"/fleets/{FLEET}", f"/fleets/{FLEET}/workers/w-1", "/fleets/nowhere"]
)
def test_every_page_says_what_may_run_in_it(sqlite_plane: ControlPlane, path: str) -> None:
    sqlite_plane.fleet("w-1")
    answer = sqlite_plane.client.get(path, headers=visitor.admin(sqlite_plane))

    policy = answer.headers["content-security-policy"]
    assert all(part in policy for part in STRICT)
    assert "unsafe" not in policy
    assert answer.headers.get_list("content-security-policy") == [policy]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for inline in ("<style", "style=", "onclick", "onload", "javascript:"):
        assert inline not in answer.text


def test_every_page_is_there(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    session = visitor.admin(plane)

    for path in ("/", f"/fleets/{FLEET}", "/canaries", "/reports/weekly"):
        assert plane.client.get(path, headers=session).status_code == 200
    page = plane.client.get(f"/fleets/{FLEET}/workers/w-1", headers=session)
    assert "fallback on cpu" in page.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/fleets/nowhere", 404),
        (f"/fleets/{FLEET}/workers/nobody", 404),
        ("/canaries/none-1", 404),
        ("/canaries/none-1/decisions", 404),
        ("/fleets/%3Cscript%3E", 422),
        ("/canaries?cursor=%27%20or", 422),
        ("/reports/weekly?anchor=yesterday", 422),
        (f"/fleets/{FLEET}/workers/w-1/preview.jpg", 409),
        ("/static/nothing.css", 404),
    ],
)
def test_what_is_not_there_is_a_page_too(
    sqlite_plane: ControlPlane, path: str, status: int
) -> None:
    sqlite_plane.fleet("w-1")
    answer = sqlite_plane.client.get(path, headers=visitor.admin(sqlite_plane))

    assert answer.status_code == status
    assert "<h1>" in answer.text
    assert "<script>" not in answer.text


def test_a_picture_that_is_not_there_is_no_fault_of_the_page(sqlite_plane: ControlPlane) -> None:
    """The page says so itself; a browser would put an error into its console every few seconds."""
    sqlite_plane.fleet("w-1")
    headers = {**visitor.admin(sqlite_plane), "Accept": "image/avif,image/webp,*/*"}

    answer = sqlite_plane.client.get(f"/fleets/{FLEET}/workers/w-1/preview.jpg", headers=headers)

    assert (answer.status_code, answer.content) == (204, b"")


def test_what_people_and_workers_write_stays_text(plane: ControlPlane) -> None:
    """Every word that somebody chooses, as markup: no page may run any of it."""
    plane.fleet()
    plane.register("w-1", address=SCRIPT, stack={SCRIPT: SCRIPT}, hardware="cpu")
    plane.as_worker(
        "w-1",
        "trips",
        incarnation="life-of-w-1",
        trip="t-1",
        reason="nan",
        detail=SCRIPT,
        flags={FLAG: "nccl"},
        generation=1,
    )
    plane.post(f"/v1/fleets/{FLEET}/workers/w-1/pins", flag=FLAG, variant="nccl", reason=SCRIPT)
    plane.done("/v1/fleets", name="second")
    plane.post(f"/v1/fleets/{FLEET}/stop-the-line", reason=SCRIPT)
    session = visitor.admin(plane)

    seen = ""
    for path in ("/", f"/fleets/{FLEET}", f"/fleets/{FLEET}/workers/w-1", "/canaries"):
        text = plane.client.get(path, headers=session).text
        assert "<script>alert" not in text
        seen += text
    assert "&lt;script&gt;alert(1)" in seen


def test_names_of_the_database_stay_text_as_well(sqlite_plane: ControlPlane) -> None:
    """The API refuses such names; a page must not lean on that."""
    sqlite_plane.fleet("w-1")
    for table, column in (("fleets", "name"), ("workers", "name"), ("workers", "hardware")):
        with sqlite_plane.parts.context.database.write() as conn:
            conn.exec_driver_sql(f"update {table} set {column} = '\"><img src=x onerror=1>'")  # noqa: S608 - words of this test
    text = sqlite_plane.client.get("/", headers=visitor.admin(sqlite_plane)).text

    assert "<img" not in text
    assert "&lt;img src=x onerror=1&gt;" in text
    assert "/fleets/%22%3E%3Cimg" in text


def test_a_page_that_has_not_changed_is_not_sent_again(sqlite_plane: ControlPlane) -> None:
    session = visitor.admin(sqlite_plane)
    first = sqlite_plane.client.get("/", headers=session)

    again = sqlite_plane.client.get(
        "/", headers={**session, "If-None-Match": first.headers["etag"]}
    )

    assert again.status_code == 304
    assert again.content == b""


def test_files_are_kept_for_good_under_the_address_of_their_content(
    sqlite_plane: ControlPlane,
) -> None:
    answer = sqlite_plane.client.get("/static/style.css")

    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"] == "text/css; charset=utf-8"


def test_one_stream_too_many_is_told_to_look_by_itself(
    sqlite_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_STREAMS", 0)
    answer = sqlite_plane.client.get("/events", headers=visitor.admin(sqlite_plane))

    assert answer.status_code == 503


def test_the_stream_is_for_those_who_are_logged_in(sqlite_plane: ControlPlane) -> None:
    headers = {"Accept": "text/event-stream"}

    assert sqlite_plane.client.get("/events", headers=headers).status_code == 401
