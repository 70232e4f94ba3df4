"""`steadyframe serve` in a process of its own, to be killed and started again on one port."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.worker import FLAG, FLEET

_never = threading.Event()
ENVIRONMENT = {"TICK_S": "0.2", "HOLD_S": "2", "HOLD_JITTER_S": "0", "POLL_S": "0.2"}
POLICY = """
policy: 1
name: chaos
flag: fused_allreduce
summary: Long enough to be killed in, and with leases that outlive a restart.
steps:
  - {{name: first, workers: 1, traffic: live, arm_share: 100%, bake: {bake_s}s, least_sessions: 2}}
  - {{name: again, workers: 2, traffic: live, arm_share: 100%, bake: {bake_s}s, least_sessions: 2}}
gates:
  - {{gate: floor, metric: session_fps, at_least: 24.0}}
  - {{gate: failures, metric: failed_sessions, at_most: 0}}
  - {{gate: freshness, metric: record_age, at_most: 2m}}
hard_stops: [out_of_memory, nan, rank_disagreement, breaker_trip]
limits: {{start_by: 1h, hold_after: 1h, lease: 5m, outcome_horizon: 2m, block: 5s,
  contain_within: 1h, max_flips_per_minute: 600}}
"""


class Plane:
    """One control plane over many lives."""

    def __init__(self, folder: Path, *, database_url: str | None = None) -> None:
        self.state_dir = folder / "state"
        self._database_url = database_url
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "serve.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._client = httpx.Client(base_url=self.url, timeout=30, trust_env=False)

    @property
    def database_url(self) -> str:
        return self._database_url or f"sqlite:///{self.state_dir / 'steadyframe.db'}"

    def start(self) -> None:
        """Return when it answers."""
        kept = {name: v for name, v in os.environ.items() if not name.startswith("STEADYFRAME_")}
        told = {f"STEADYFRAME_{name}": value for name, value in ENVIRONMENT.items()}
        if self._database_url:
            told["STEADYFRAME_DATABASE_URL"] = self._database_url
        program = [sys.executable, "-m", "controlplane.cli.main", "serve"]
        options = ["--port", str(self.port), "--state-dir", str(self.state_dir)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*program, *options], env={**kept, **told}, stdout=log, stderr=log
            )
        self._until_alive(self._process)

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    def stop(self) -> None:
        """End it in order, and give back what this holds."""
        self._client.close()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)

    def get(self, path: str) -> Any:
        answer = self._client.get(path, headers=self._admin())
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:
        answer = self._client.post(path, headers=self._admin(), json={"reason": "chaos", **body})
        assert answer.is_success, answer.text
        return answer.json()

    def adopt(self, *, bake_s: int) -> None:
        """A fleet that enforces, and the policy."""
        self.post("/v1/fleets", name=FLEET)
        self.post(f"/v1/fleets/{FLEET}/mode", mode="enforce")
        self.post("/v1/policies", document=POLICY.format(bake_s=bake_s))

    def worker_token(self, worker: str, *, to: Path) -> Path:
        """A file with a token of this worker."""
        made = self.post("/v1/tokens", role="worker", fleet=FLEET, worker=worker)
        to.write_text(made["token"])
        return to

    def start_canary(self) -> str:
        """Its name."""
        made = self.post(
            "/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="chaos"
        )
        name: str = made["name"]
        return name

    def canary(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/v1/canaries/{name}")["canary"]
        return found

    def generations(self) -> dict[str, int]:
        found = self.get(f"/v1/fleets/{FLEET}/workers")["items"]
        return {one["name"]: one["desired_generation"] for one in found}

    def are_settled(self, number: int) -> bool:
        found = self.get(f"/v1/fleets/{FLEET}/workers")["items"]
        return len(found) == number and all(one["is_effective"] for one in found)

    def sessions(self) -> dict[str, str]:
        """Every ended session with its outcome, page by page."""
        found: dict[str, str] = {}
        cursor = ""
        while True:  # bounded by the last page
            page = self.get(f"/v1/sessions?limit=500&fleet={FLEET}{cursor}")
            found |= {one["id"]: one["outcome"] for one in page["items"]}
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"

    def _admin(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.state_dir / 'admin.token').read_text().strip()}"}

    def _until_alive(self, process: subprocess.Popen[bytes]) -> None:
        while True:  # bounded by the test's own timeout
            assert process.poll() is None, self._log.read_text()[-3000:]
            try:
                if self._client.get("/livez").status_code == 200:
                    return
            except httpx.TransportError:
                pause()


def pause(seconds: float = 0.1) -> None:
    """Let another process go on."""
    _never.wait(seconds)
