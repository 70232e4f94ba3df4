"""Every operation of the API, asked once in an order in which it is answered: the examples.

What it records is what `controlplane/api/examples.json` holds; `python -m tests.api.played` writes
that file anew, and a test compares the form of the two. Clock and ids are those of tests, so a
second recording is the same as the first.
"""

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from controlplane import assets
from controlplane.store.transaction import Database
from tests.api import otlp_bodies
from tests.api.control_plane import (
    FLAG,
    FLEET,
    ControlPlane,
    bearer,
    control_plane,
    effective,
    registration,
    reporter,
)
from tests.clock import CountingId, FakeClock

FILE = Path(__file__).parents[2] / "controlplane" / "api" / "examples.json"
WORKERS = f"/v1/fleets/{FLEET}/workers"
SECRET = re.compile(r"sf_[A-Za-z0-9_-]{43}")
SHOWN_SECRET = "sf_" + "x" * 43
POLICY = (assets.policies() / "demo.yaml").read_text()
PROTOBUF = "application/x-protobuf"


@dataclass(kw_only=True)
class Recorder:
    """Asks, and keeps what was asked and answered by operation and status."""

    plane: ControlPlane
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __call__(
        self,
        operation: str,
        *,
        path: str | None = None,
        body: Any = None,
        by: Mapping[str, str] | None = None,
        status: int = 200,
        **query: Any,
    ) -> Any:
        """Ask for `operation`; `path` where its template has places. Returns the JSON answer."""
        method, template = operation.split(" ")
        content = {"json": body} if body is not None else {}
        headers = self.plane.admin if by is None else by
        answer = self.plane.client.request(
            method, path or template, headers=headers, params=query, **content
        )
        assert answer.status_code == status, f"{operation}: {answer.status_code} {answer.text}"
        return self._keep(operation, answer, body=body)

    def _keep(self, operation: str, answer: httpx.Response, *, body: Any) -> Any:
        is_json = "json" in answer.headers.get("content-type", "")
        shown = answer.json() if is_json else answer.text
        kept = self.kept.setdefault(operation, {"responses": {}})
        if body is not None and answer.is_success:
            kept.setdefault("request", body)
        if answer.status_code != httpx.codes.NO_CONTENT:
            kept["responses"].setdefault(str(answer.status_code), _censored(_shortened(shown)))
        return shown


def played(plane: ControlPlane) -> dict[str, dict[str, Any]]:
    """What was asked and answered, by operation."""
    ask = Recorder(plane=plane)
    _begin(ask)
    _work(ask)
    _change(ask)
    _look(ask)
    _end(ask)
    return {name: ask.kept[name] for name in sorted(ask.kept)}


def refused(plane: ControlPlane) -> dict[str, Any]:
    """One problem of each status, from a control plane that `played` was played on."""
    client, admin = plane.client, plane.admin
    worker = bearer(plane.worker_token("w-1"))
    rubbish = {**admin, "Content-Type": "application/json"}
    answers: list[Callable[[], httpx.Response]] = [
        lambda: client.post("/v1/fleets", headers=rubbish, content=b"{"),
        lambda: client.get("/v1/fleets"),
        lambda: client.get("/v1/fleets", headers=worker),
        lambda: client.get("/v1/fleets/nowhere", headers=admin),
        lambda: plane.post("/v1/fleets", name=FLEET),
        lambda: client.post("/v1/fleets", headers=rubbish, content=bytes(2 << 20)),
        lambda: client.post("/v1/logs", headers={**worker, "Content-Type": "text/plain"}),
        lambda: client.get("/v1/fleets", headers={**admin, "Host": "elsewhere.example"}),
        lambda: plane.post(f"/v1/fleets/{FLEET}/mode", mode="act"),
    ]
    found = [answer() for answer in answers]
    return {str(one.status_code): one.json() for one in found}


def _begin(ask: Recorder) -> None:
    because = {"reason": "first fleet of the video model"}
    ask("GET /livez", by={})
    ask("GET /readyz", by={})
    ask("POST /v1/fleets", body={"name": FLEET, **because}, status=201)
    path = f"/v1/fleets/{FLEET}/mode"
    ask("POST /v1/fleets/{fleet}/mode", path=path, body={"mode": "enforce", **because})
    for worker in ("w-1", "w-2", "w-3"):
        _join(ask, worker)


def _join(ask: Recorder, worker: str) -> None:
    name = "/v1/fleets/{fleet}/workers/{worker}"
    by = bearer(ask.plane.worker_token(worker))
    body = {**registration(worker, address=f"http://{worker}.example:9000"), "contract": 1}
    path = f"{WORKERS}/{worker}"
    state = ask(f"POST {name}/registration", path=f"{path}/registration", body=body, by=by)
    report = effective(worker, state["generation"])
    ask(f"POST {name}/effective", path=f"{path}/effective", body=report, by=by, status=204)


def _work(ask: Recorder) -> None:
    """Sessions, and a canary that one worker is exposed to."""
    plane = ask.plane
    records = [
        otlp_bodies.record("session.started", session="s-1", seq=1),
        otlp_bodies.record("session.ended", session="s-2", seq=2),
        otlp_bodies.record(
            "process.window",
            seq=3,
            resident_bytes=1 << 30,
            num_sessions_started=2,
            lengths=[{"length": 64, "retained_bytes": 0}],
        ),
    ]
    by = bearer(plane.worker_token("w-1"))
    document = otlp_bodies.as_json(*records, resource=reporter("w-1"))
    ask("POST /v1/logs", body=document, by=by)
    resource = document["resourceLogs"][0]["resource"]
    ask("POST /v1/metrics", body={"resourceMetrics": [{"resource": resource}]}, by=by)
    wanted = {"fleet": FLEET, "flag": FLAG, "variant": "fused_steady", "policy": "preflight"}
    body = {**wanted, "hardware": "cpu", "reason": "half a millisecond less for each step"}
    ask("POST /v1/canaries", body=body, status=201)
    _measure(ask)
    plane.tick()
    _probe(ask)
    _trip(ask)


def _measure(ask: Recorder) -> None:
    path = "/v1/canaries/fused-allreduce-1/quality"
    measured = {"measure": "vmaf", "value": 93.5, "num_samples": 200}
    body = {**measured, "reason": "clips of the nightly run"}
    ask("POST /v1/canaries/{name}/quality", path=path, body=body, status=201)


def _probe(ask: Recorder) -> None:
    """What preflight asked, and one report that fails it: a decision, and a way back."""
    plane = ask.plane
    name = "/v1/fleets/{fleet}/workers/{worker}"
    by = bearer(plane.worker_token("w-1"))
    asked: dict[str, Any] = {"after": 1, "incarnation": "life-of-w-1"}
    path = f"{WORKERS}/w-1"
    probe = ask(f"GET {name}/desired", path=f"{path}/desired", by=by, **asked)["probe"]
    report = {
        "incarnation": "life-of-w-1",
        "probe": probe["id"],
        "canary": probe["canary"],
        "lengths": [{"length": length, "retained_bytes": 16 << 20} for length in (8, 24)],
        "flag_bytes_before": 0,
        "rollback_ms": 41.7,
        "flag_bytes_left": 32 << 20,
    }
    ask(f"POST {name}/probes", path=f"{path}/probes", body=report, by=by, status=204)
    plane.tick()


def _trip(ask: Recorder) -> None:
    by = bearer(ask.plane.worker_token("w-3"))
    trip = {
        "incarnation": "life-of-w-3",
        "trip": "trip-1",
        "reason": "underrun",
        "flags": {FLAG: "nccl"},
        "generation": 1,
        "rank": 0,
        "session": "s-3",
        "detail": "the playback buffer would have run dry in 80 ms",
    }
    path = f"{WORKERS}/w-3/trips"
    operation = "POST /v1/fleets/{fleet}/workers/{worker}/trips"
    ask(operation, path=path, body=trip, by=by, status=204)


def _change(ask: Recorder) -> None:
    name = "/v1/fleets/{fleet}/workers/{worker}"
    because = {"reason": "frames freeze, ticket 4711"}
    pin = {"flag": FLAG, "variant": "nccl", "expires_in_s": 3600, **because}
    ask(f"POST {name}/pins", path=f"{WORKERS}/w-2/pins", body=pin)
    body = {"flag": FLAG, **because}
    ask(f"POST {name}/unpin", path=f"{WORKERS}/w-2/unpin", body=body)
    for change in ("cordon", "uncordon"):
        ask(f"POST {name}/{change}", path=f"{WORKERS}/w-2/{change}", body=because)
    ask(f"POST {name}/restore", path=f"{WORKERS}/w-3/restore", body=because)
    fleet = "POST /v1/fleets/{fleet}"
    for change in ("stop-the-line", "lift"):
        ask(f"{fleet}/{change}", path=f"/v1/fleets/{FLEET}/{change}", body=because)
    _qualify(ask)
    document = POLICY.replace("name: demo", "name: demo-2", 1)
    ask("POST /v1/policies", body={"document": document, **because}, status=201)
    ask("POST /v1/policies/lint", body={"document": document})
    ask("POST /v1/tokens", body={"role": "viewer", "reason": "for Prometheus"}, status=201)
    rehearsed = {"role": "admin", "reason": "to see what would happen"}
    ask("POST /v1/tokens", body=rehearsed, dry_run="true")
    _import(ask)


def _qualify(ask: Recorder) -> None:
    """A worker that runs the variant, for the adoption of a fleet, and second thoughts."""
    generation = ask.plane.desired("w-2", after=0).json()["generation"]
    report = effective("w-2", generation, flags={FLAG: "fused_steady"})
    assert ask.plane.as_worker("w-2", "effective", **report).is_success
    body = {"flag": FLAG, "variant": "fused_steady", "reason": "ran well for seven weeks"}
    path = f"/v1/fleets/{FLEET}/attestations"
    operation = "POST /v1/fleets/{fleet}/attestations"
    number = ask(operation, path=path, body=body, status=201)["numbers"][0]
    ask("GET /v1/qualifications")
    path = f"/v1/qualifications/{number}"
    ask("GET /v1/qualifications/{number}", path=path)
    body = {"reason": "it was another build that ran well"}
    ask("POST /v1/qualifications/{number}/revoke", path=f"{path}/revoke", body=body)


def _import(ask: Recorder) -> None:
    columns = ["session", "started_at", "worker", "hardware", "stack", "flags"]
    columns += ["streamed_s", "fps", "outcome"]
    row = ["old-1", "2026-10-05T08:00:00Z", "w-1", "cpu", "0123456789abcdef", f"{FLAG}=nccl"]
    row += ["62.5", "24.4", "completed"]
    body = {"fleet": FLEET, "columns": columns, "lines": [2], "rows": [row]}
    reason = "the weeks before Steadyframe"
    ask("POST /v1/imports/sessions", body={**body, "reason": reason}, status=201)


def _look(ask: Recorder) -> None:
    name = "fused-allreduce-1"
    for path in ("fleets", "flags", "policies", "canaries", "sessions", "audit", "tokens"):
        ask(f"GET /v1/{path}")
    ask("GET /v1/fleets/{fleet}", path=f"/v1/fleets/{FLEET}")
    workers = "GET /v1/fleets/{fleet}/workers"
    ask(workers, path=WORKERS)
    ask(f"{workers}/{{worker}}", path=f"{WORKERS}/w-1")
    ask(f"{workers}/{{worker}}/explain", path=f"{WORKERS}/w-1/explain")
    ask("GET /v1/policies/{name}", path="/v1/policies/demo")
    ask("GET /v1/canaries/{name}", path=f"/v1/canaries/{name}")
    for tail in ("decisions", "transitions", "explanation", "quality"):
        ask(f"GET /v1/canaries/{{name}}/{tail}", path=f"/v1/canaries/{name}/{tail}")
    decided = ask("GET /v1/canaries/{name}/decisions", path=f"/v1/canaries/{name}/decisions")
    path = f"/v1/decisions/{decided['items'][0]['id']}"
    ask("GET /v1/decisions/{decision_id}", path=path)
    ask("POST /v1/decisions/{decision_id}/verify", path=f"{path}/verify")
    for form in ("weekly", "weekly.csv"):
        ask(f"GET /v1/reports/{form}")


def _end(ask: Recorder) -> None:
    path = "/v1/canaries/fused-allreduce-1/requests"
    body = {"kind": "abort", "reason": "seen enough"}
    ask("POST /v1/canaries/{name}/requests", path=path, body=body, status=202)
    made = ask.plane.done("/v1/tokens", role="viewer")["id"]
    path = f"/v1/tokens/{made}/revoke"
    ask("POST /v1/tokens/{token_id}/revoke", path=path, body={"reason": "it leaked"})


def _shortened(shown: Any) -> Any:
    """`shown` with at most two items of a list: enough to see the form."""
    if isinstance(shown, dict) and "items" in shown:
        return {**shown, "items": shown["items"][:2]}
    return shown


def _censored(shown: Any) -> Any:
    """`shown` without secrets: the file is public, and they differ from one time to the next."""
    return json.loads(SECRET.sub(SHOWN_SECRET, json.dumps(shown)))


def main() -> None:
    """Write the examples anew."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database.open(f"sqlite:///{folder}/steadyframe.db")
        clock, new_id = FakeClock(), CountingId()
        with control_plane(database, Path(folder), clock=clock, new_id=new_id) as plane:
            document = {"operations": played(plane), "problems": refused(plane)}
    FILE.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
