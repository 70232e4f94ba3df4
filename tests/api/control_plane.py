"""A control plane as tests speak to it: an admin, and workers with tokens of their own."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from controlplane import app
from controlplane.app import Parts
from controlplane.contract import vocabulary
from controlplane.settings import Settings
from controlplane.store.transaction import Database
from tests.api.local_client import LocalClient, local_client
from tests.clock import CountingId, FakeClock

FLEET = "video"
FLAG = "fused_allreduce"
KNOWN = {FLAG: ["nccl", "fused_steady", "fused_all"]}
STACK = {"torch": "2.13", "driver": "580.12"}


@dataclass(kw_only=True)
class ControlPlane:
    """The application under test and those who speak to it."""

    client: LocalClient
    parts: Parts
    clock: FakeClock
    admin: dict[str, str]
    state_dir: Path
    num_nudges: int = 0
    _tokens: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, *, token: str | None = None) -> Any:
        """What the admin, or whoever holds `token`, reads."""
        answer = self.client.get(path, headers=bearer(token) if token else self.admin)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(
        self, path: str, *, token: str | None = None, key: str | None = None, **body: Any
    ) -> httpx.Response:
        """What comes back when the admin, or whoever holds `token`, asks for a change."""
        headers = bearer(token) if token else dict(self.admin)
        if key:
            headers["Idempotency-Key"] = key
        return self.client.post(path, headers=headers, json={"reason": "a test", **body})

    def done(self, path: str, **body: Any) -> Any:
        """The answer to a change that must succeed."""
        answer = self.post(path, **body)
        assert answer.is_success, answer.text
        return answer.json()

    def token(self, role: str, **grant: Any) -> str:
        """A new token."""
        made: str = self.done("/v1/tokens", role=role, **grant)["token"]
        return made

    def worker_token(self, worker: str, *, fleet: str = FLEET) -> str:
        """The token of a worker, made once."""
        if worker not in self._tokens:
            self._tokens[worker] = self.token("worker", fleet=fleet, worker=worker)
        return self._tokens[worker]

    def as_worker(
        self, worker: str, path: str, /, *, by: str | None = None, **body: Any
    ) -> httpx.Response:
        """What a worker gets for a POST below its own path."""
        return self.client.post(
            f"/v1/fleets/{FLEET}/workers/{worker}/{path}",
            headers=bearer(self.worker_token(by or worker)),
            json=body,
        )

    def as_raw_worker(self, worker: str, path: str, body: Any) -> httpx.Response:
        """The same with a body that only Python calls JSON: NaN, infinities, lone surrogates."""
        return self.client.post(
            f"/v1/fleets/{FLEET}/workers/{worker}/{path}",
            headers={**bearer(self.worker_token(worker)), "Content-Type": "application/json"},
            content=json.dumps(body).encode(),
        )

    def register(self, worker: str, /, **changes: Any) -> httpx.Response:
        """What a worker gets when it registers."""
        return self.as_worker(worker, "registration", **registration(worker, **changes))

    def desired(self, worker: str, *, after: int, incarnation: str | None = None) -> httpx.Response:
        """What a worker gets when it asks what to run."""
        return self.client.get(
            f"/v1/fleets/{FLEET}/workers/{worker}/desired",
            params={"after": after, "incarnation": incarnation or f"life-of-{worker}"},
            headers=bearer(self.worker_token(worker)),
        )

    def fleet(self, *workers: str, mode: str = "enforce") -> None:
        """An adopted fleet with these workers."""
        self.done("/v1/fleets", name=FLEET)
        if mode != "observe":
            self.done(f"/v1/fleets/{FLEET}/mode", mode=mode)
        for worker in workers:
            self.join(worker)

    def join(self, worker: str, /, **changes: Any) -> None:
        """Register a worker, whose ranks then run what it is told."""
        answer = self.register(worker, **changes)
        assert answer.status_code == 200, answer.text
        state = answer.json()
        self.as_worker(worker, "effective", **effective(worker, state["generation"]))

    def logs(self, worker: str, body: bytes, **headers: str) -> httpx.Response:
        """What a worker gets when it sends OTLP logs."""
        return self.client.post(
            "/v1/logs",
            content=body,
            headers={
                "Content-Type": "application/x-protobuf",
                **bearer(self.worker_token(worker)),
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
        )

    def tick(self) -> None:
        """One tick of the reconcilers."""
        self.parts.loop.tick()

    def audit(self) -> list[str]:
        """Actions of the audit log, newest first."""
        return [row["action"] for row in self.get("/v1/audit")["items"]]


def bearer(token: str) -> dict[str, str]:
    """The header for a token."""
    return {"Authorization": f"Bearer {token}"}


def registration(worker: str, /, **changes: Any) -> dict[str, Any]:
    """What a worker registers with."""
    return {
        "fleet": FLEET,
        "worker": worker,
        "incarnation": f"life-of-{worker}",
        "hardware": "cpu",
        "stack": STACK,
        "generation": 0,
        "flags": {FLAG: "nccl"},
        "capabilities": KNOWN,
        **changes,
    }


def effective(worker: str, generation: int, /, **changes: Any) -> dict[str, Any]:
    """What a worker says when its one rank runs the fallback."""
    rank = {"rank": 0, "generation": generation, "digest": "0123456789abcdef", "step": 7}
    return {
        "incarnation": f"life-of-{worker}",
        "generation": generation,
        "flags": {FLAG: "nccl"},
        "ranks": [rank],
        **changes,
    }


def reporter(worker: str, /, **changes: str) -> dict[str, str]:
    """The OTLP resource that a registered worker reports as."""
    return {
        "service.instance.id": f"life-of-{worker}",
        "steadyframe.fleet": FLEET,
        "steadyframe.worker": worker,
        "steadyframe.hardware": "cpu",
        "steadyframe.stack": vocabulary.stack_digest(STACK),
        **changes,
    }


@contextmanager
def control_plane(
    database: Database, state_dir: Path, *, clock: FakeClock, new_id: CountingId, **settings: Any
) -> Iterator[ControlPlane]:
    """A control plane on `database`; nothing ticks by itself, and held calls end at once."""
    made = Settings(
        **{
            "state_dir": state_dir,
            "is_reconciling": False,
            "hold_s": 0.001,
            "hold_jitter_s": 0,
            **settings,
        }
    )
    app.opened(made).close()
    parts = app.assemble(made, database=database, clock=clock, new_id=new_id)
    token = (state_dir / app.ADMIN_TOKEN_FILE).read_text().strip()
    with local_client(parts.app) as client:
        plane = ControlPlane(
            client=client, parts=parts, clock=clock, admin=bearer(token), state_dir=state_dir
        )

        def nudge() -> None:
            plane.num_nudges += 1

        parts.app.state.context = replace(parts.context, nudge=nudge)
        yield plane
