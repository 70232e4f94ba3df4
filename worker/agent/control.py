"""The control plane over HTTP: one function per call of the contract, and what can come back.

No retry in here: whoever calls decides when to try again. The token is read for every request and
never logged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
from pydantic import ValidationError

from controlplane.contract.messages import (
    BreakerTrip,
    DesiredState,
    EffectiveReport,
    Message,
    ProbeReport,
    Registration,
)

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0
# The control plane holds the call for 20 s +- 5; twice that without a byte means the line is dead.
HELD_TIMEOUT_S = 50.0
MAX_PROBLEM_LENGTH = 300


class UnreachableError(Exception):
    """No answer, or one that asks to try again later."""


class SupersededError(Exception):
    """Another life of this worker has registered: take no more sessions."""


class UnknownWorkerError(Exception):
    """The control plane does not know this worker: register again."""


class RefusedError(Exception):
    """The control plane understood and said no; a repeat would be refused, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back for a batch of logs."""

    status: int
    body: bytes = b""
    retry_after_s: float | None = None


class ControlPlane(Protocol):
    """What the agent asks of the control plane; each call may raise the errors above."""

    def register(self, registration: Registration) -> DesiredState:
        """Begin a life."""
        ...

    def desired(self, *, after: int, incarnation: str) -> DesiredState:
        """The desired state, held open until its generation differs from `after`."""
        ...

    def post_effective(self, report: EffectiveReport) -> None:
        """Tell what every rank runs."""
        ...

    def post_trip(self, trip: BreakerTrip) -> None:
        """Tell that the breaker tripped."""
        ...

    def post_probe(self, report: ProbeReport) -> None:
        """Tell what came of a probe."""
        ...

    def post_logs(self, body: bytes) -> Answer:
        """Deliver a batch; raises UnreachableError only."""
        ...


class HttpControlPlane:
    """The control plane behind a URL. Safe to use from several threads."""

    def __init__(self, url: str, *, fleet: str, worker: str, token_file: Path | None) -> None:
        self._prefix = f"/v1/fleets/{fleet}/workers/{worker}"
        self._token_file = token_file
        timeout = httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        # A proxy of the environment is for the wide world; the control plane is inside the cluster.
        self._client = httpx.Client(base_url=url, timeout=timeout, trust_env=False)

    def close(self) -> None:
        """Close the connections; a call in flight ends with UnreachableError."""
        self._client.close()

    def register(self, registration: Registration) -> DesiredState:
        """Begin a life."""
        return _desired_state(self._post("registration", registration))

    def desired(self, *, after: int, incarnation: str) -> DesiredState:
        """The desired state, held open until its generation differs from `after`."""
        response = self._send(
            "GET",
            f"{self._prefix}/desired",
            params={"after": str(after), "incarnation": incarnation},
            timeout=httpx.Timeout(HELD_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )
        return _desired_state(_checked(response))

    def post_effective(self, report: EffectiveReport) -> None:
        """Tell what every rank runs."""
        self._post("effective", report)

    def post_trip(self, trip: BreakerTrip) -> None:
        """Tell that the breaker tripped."""
        self._post("trips", trip)

    def post_probe(self, report: ProbeReport) -> None:
        """Tell what came of a probe."""
        self._post("probes", report)

    def post_logs(self, body: bytes) -> Answer:
        """Deliver a batch of logs; any status is an answer."""
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        response = self._send("POST", "/v1/logs", content=body, headers=headers)
        return Answer(
            status=response.status_code,
            body=response.content,
            retry_after_s=_retry_after_s(response),
        )

    def _post(self, name: str, message: Message) -> httpx.Response:
        content = message.model_dump_json(exclude_none=True).encode()
        headers = {"Content-Type": "application/json"}
        return _checked(
            self._send("POST", f"{self._prefix}/{name}", content=content, headers=headers)
        )

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> httpx.Response:
        try:
            return self._client.request(
                method,
                path,
                params=params,
                content=content,
                headers={**(headers or {}), **self._authorization()},
                timeout=timeout or self._client.timeout,
            )
        except (httpx.HTTPError, OSError, RuntimeError, ValueError) as error:
            # RuntimeError: the client was closed while the agent stops. ValueError: a token file
            # of bytes that are no text, or of text that fits in no header.
            message = f"{method} {path}: {type(error).__name__}"
            raise UnreachableError(message) from error

    def _authorization(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        return {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}


def _checked(response: httpx.Response) -> httpx.Response:
    """The response if it is a success.

    Raises: the error of this module that its status stands for.
    """
    if response.is_success:
        return response
    problem = f"{response.status_code} {response.text[:MAX_PROBLEM_LENGTH]}"
    match response.status_code:
        case 409:
            raise SupersededError(problem)
        case 404:
            raise UnknownWorkerError(problem)
        case 400 | 413 | 422:
            raise RefusedError(problem)
        case _:
            # 401 and 403, too: tokens are rotated, and a worker that gave up would stay blind.
            raise UnreachableError(problem)


def _desired_state(response: httpx.Response) -> DesiredState:
    try:
        return DesiredState.model_validate_json(response.content)
    except ValidationError as error:
        message = f"the desired state is not of the contract: {error.errors()[:3]}"
        raise UnreachableError(message) from error


def _retry_after_s(response: httpx.Response) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None
