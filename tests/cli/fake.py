"""A control plane that answers from a table, in place of the network."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
from typer.testing import CliRunner, Result

from controlplane.cli.main import app

PROBLEM = {"Content-Type": "application/problem+json"}
EFFECT = "worker-a: fused_allreduce nccl -> fused_steady"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: httpx.Headers

    @property
    def is_dry(self) -> bool:
        return self.query.get("dry_run") == "true"


@dataclass(slots=True)
class FakeControlPlane(httpx.BaseTransport):
    """Answers `routes[(method, path)]`; POSTs that are dry with one effect."""

    routes: dict[tuple[str, str], Any] = field(default_factory=dict)
    problems: dict[tuple[str, str], tuple[int, dict[str, Any]]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    error: httpx.TransportError | None = None
    num_errors: int = 1_000_000

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        content = request.read()
        call = Call(
            method=request.method,
            path=request.url.path,
            query=dict(request.url.params),
            body=json.loads(content) if content else None,
            headers=request.headers,
        )
        self.calls.append(call)
        if self.error is not None and self.num_errors > 0:
            self.num_errors -= 1
            raise self.error
        key = (call.method, call.path)
        if key in self.problems:
            status, problem = self.problems[key]
            return httpx.Response(status, json=problem, headers=PROBLEM)
        if key not in self.routes:
            missing = {"detail": f"no {call.path} in this test"}
            return httpx.Response(404, json=missing, headers=PROBLEM)
        return httpx.Response(200, json={"effects": [EFFECT]} if call.is_dry else self.routes[key])

    @property
    def made(self) -> list[Call]:
        """Changes that were carried out, not rehearsed."""
        return [call for call in self.calls if call.method == "POST" and not call.is_dry]


def run(
    plane: FakeControlPlane, *arguments: str, environment: dict[str, str] | None = None
) -> Result:
    """`steadyframe ARGUMENTS` against `plane`, without a terminal and without a home."""
    variables = {
        "STEADYFRAME_URL": "http://plane.test",
        "STEADYFRAME_TOKEN": "sf_test",
        "STEADYFRAME_STATE_DIR": "/nonexistent",
        "NO_COLOR": "1",
        **(environment or {}),
    }
    return CliRunner().invoke(app, list(arguments), obj=plane, env=variables)
