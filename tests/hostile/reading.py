"""Everything that can be read back: where what was put in is looked for, and its damage."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import structlog

from tests.api.control_plane import FLAG, FLEET, ControlPlane
from tests.hostile.surfaces import CANARY, WORKER, surfaces

ANSWERS = (
    "/v1/fleets",
    f"/v1/fleets/{FLEET}",
    f"/v1/fleets/{FLEET}/workers",
    f"/v1/fleets/{FLEET}/workers/{WORKER}",
    f"/v1/fleets/{FLEET}/workers/{WORKER}/explain",
    "/v1/canaries",
    f"/v1/canaries/{CANARY}",
    f"/v1/canaries/{CANARY}/decisions",
    f"/v1/canaries/{CANARY}/transitions",
    f"/v1/canaries/{CANARY}/quality",
    "/v1/qualifications?limit=500",
    "/v1/sessions?limit=500",
    "/v1/audit?limit=500",
    "/v1/tokens",
    "/v1/flags",
    "/v1/policies",
    "/v1/policies/demo",
    "/v1/reports/weekly",
)
PAGES = (
    "/",
    f"/fleets/{FLEET}",
    f"/fleets/{FLEET}/workers/{WORKER}",
    "/canaries",
    f"/canaries/{CANARY}",
    f"/canaries/{CANARY}/decisions",
    "/reports/weekly",
)
# Markup of the hostile texts: a page in which one of these stands as markup ran somebody's data.
ELEMENT, ATTRIBUTE = "xhostile", "onhostile"


def people(plane: ControlPlane) -> None:
    """A fleet with a canary in preflight on `WORKER`, whose answer says something hostile."""
    plane.fleet(WORKER, "w-2")
    plane.done("/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="preflight")
    plane.tick()
    (probes,) = [one for one in surfaces(plane) if one.name.endswith("/probes")]
    # The first answer to a probe stands, so what is sent later is not kept.
    told = {**probes.document, "detail": f'<script>{ELEMENT}</script>"><{ELEMENT} {ATTRIBUTE}=1>'}
    said = probes.send(plane, told, number=1)
    assert said.is_taken, said
    shown = any(told["detail"] in text for text in texts(answers(plane)))
    assert shown, "the probe's detail is shown nowhere"


def answers(plane: ControlPlane) -> dict[str, Any]:
    """What every read answers; each must succeed and hold finite numbers only."""
    found = {}
    for path in ANSWERS:
        answer = plane.client.get(path, headers=plane.admin)
        assert answer.status_code == 200, (path, answer.text[:500])
        found[path] = json.loads(answer.content, parse_constant=_no_such_number)
    return found


def texts(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys included."""
    match value:
        case dict():
            for key, inner in value.items():
                yield key
                yield from texts(inner)
        case list():
            for inner in value:
                yield from texts(inner)
        case str():
            yield value
        case _:  # no text in it
            return


def check_pages(plane: ControlPlane, session: dict[str, str]) -> None:
    """Every page answers, and no element, attribute or script of it comes from data."""
    for path in PAGES:
        answer = plane.client.get(path, headers=session)
        assert answer.status_code == 200, (path, answer.text[:500])
        page = _Page()
        page.feed(answer.text)
        page.close()
        assert not page.faults, (path, page.faults)
        assert "54439" not in answer.text, f"{path} evaluated an expression of somebody's text"


def check_ticks(plane: ControlPlane) -> None:
    """The reconcilers get through a tick: what was stored fails none of their beats."""
    with structlog.testing.capture_logs() as logged:
        plane.tick()
    failed = [entry for entry in logged if entry["event"] == "beat_failed"]
    assert not failed, failed


class _Page(HTMLParser):
    """Looks for what no template of ours writes."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self._is_script = self._is_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_script = tag == "script"
        named = dict(attrs)
        # Data for the charts: a browser runs no script of this type.
        self._is_data = tag == "script" and named == {"type": "application/json"}
        if tag in (ELEMENT, "img") and ELEMENT in str(named):
            self.faults.append(f"element {tag}")
        if tag == ELEMENT:
            self.faults.append(f"element {tag}")
        is_ours = self._is_data or str(named.get("src", "")).startswith("/static/")
        if tag == "script" and not is_ours:
            self.faults.append(f"script {named}")
        self.faults += [
            f"attribute {name}={value}"
            for name, value in attrs
            if name.startswith("on") or name == "style" or _runs(value)
        ]

    def handle_data(self, data: str) -> None:
        if self._is_data:
            json.loads(data, parse_constant=_no_such_number)
            self.faults += [f"markup in data {data[:80]}"] if set("<>&") & set(data) else []
        elif self._is_script and data.strip():
            self.faults.append(f"inline script {data[:80]}")

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._is_script = self._is_data = False


def _runs(value: str | None) -> bool:
    return (value or "").strip().lower().startswith(("javascript:", "vbscript:", "data:"))


def _no_such_number(text: str) -> None:
    message = f"{text} is no number that JSON has"
    raise AssertionError(message)
