"""Requests from all over the OpenAPI schema, by each kind of token: no fault, no undocumented word.

Cases are the same in every run. The held-open call is among them, since in tests it is held for a
millisecond; the stream of events is a page's, without an end, and so not part of the schema.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import hypothesis
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from controlplane import app
from controlplane.api import openapi
from tests.api import played
from tests.api.control_plane import FLEET, ControlPlane, bearer

POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
# Beside names that are made up, these lead further in than "not found".
KNOWN: Final = {
    "fleet": FLEET,
    "worker": "w-1",
    "token_id": "00000000-0000-7000-8000-000000000004",
}
ALWAYS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
# What fits the form of these may still not hold together: a policy is a document of its own, ranks
# must agree, a variant must be one of the flag's, a day one of the calendar, a canary has a flag or
# a stack for its subject, and a whole number is written without a point.
HELD_TO_MORE_THAN_FORM: Final = frozenset(
    {
        "POST /v1/canaries",
        "POST /v1/canaries/{name}/quality",
        "POST /v1/policies",
        "POST /v1/policies/lint",
        "POST /v1/imports/sessions",
        "POST /v1/tokens",
        "POST /v1/fleets/{fleet}/attestations",
        "POST /v1/logs",
        "POST /v1/metrics",
        "GET /v1/reports/weekly",
        "GET /v1/reports/weekly.csv",
        *(
            f"POST /v1/fleets/{{fleet}}/workers/{{worker}}/{name}"
            for name in ("registration", "effective", "trips", "probes", "pins", "unpin")
        ),
    }
)
NUM_EXAMPLES: Final = {POSITIVE: 5, NEGATIVE: 3}
NUM_REFUSED: Final = 1  # where the role is refused whatever is sent
load_all_checks()


@dataclass(kw_only=True)
class Seen:
    """What was sent and what was wrong with the answers."""

    cases: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


@cache
def _operations() -> tuple[Any, ...]:
    """Operations of the schema without its tokens, whose absence is a test of its own."""
    bare = FastAPI()
    for router in app.ROUTERS:
        bare.include_router(router)
    document = json.loads(json.dumps(openapi.document(bare, routers=app.ROUTERS)))
    for item in document["paths"].values():
        for operation in item.values():
            del operation["security"]
    found = schemathesis.openapi.from_dict(document).get_all_operations()
    return tuple(one.ok() for one in found if isinstance(one, Ok))


@pytest.mark.parametrize("mode", [POSITIVE, NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize("role", ["admin", "viewer", "worker"])
def test_whatever_is_sent_the_answer_is_one_that_is_documented(
    sqlite_plane: ControlPlane, role: str, mode: GenerationMode
) -> None:
    played.played(sqlite_plane)
    headers = _headers(sqlite_plane, role)
    seen = Seen()
    sent_to = [one for one in _operations() if mode is POSITIVE or _has_parts(one)]

    for operation in sent_to:
        _fuzz(sqlite_plane, operation, mode=mode, role=role, headers=headers, seen=seen)

    assert not seen.faults, "\n\n".join(seen.faults)
    assert set(seen.cases) == {one.label for one in sent_to}
    assert seen.cases.total() > len(sent_to)


def _headers(plane: ControlPlane, role: str) -> dict[str, str]:
    if role == "admin":
        return plane.admin
    return bearer(plane.token("viewer") if role == "viewer" else plane.worker_token("w-1"))


def _has_parts(operation: Any) -> bool:
    """Whether there is anything that could be wrong with a request."""
    return bool(operation.path_parameters or operation.query or operation.body)


def _fuzz(
    plane: ControlPlane,
    operation: Any,
    *,
    mode: GenerationMode,
    role: str,
    headers: dict[str, str],
    seen: Seen,
) -> None:
    is_a_workers = bool({"workers", "telemetry"} & set(operation.tags))
    is_refused = is_a_workers != (role == "worker")
    num_examples = NUM_REFUSED if is_refused else NUM_EXAMPLES[mode]
    checks = [CHECKS.get_one(name) for name in _checks(operation, mode)]

    def send(case: Any) -> None:
        answer = _answered(plane, case, headers)
        seen.cases[operation.label] += 1
        case.validate_response(answer, checks=checks)

    for strategy in _strategies(operation.label, mode):
        try:
            _example_after_example(send, strategy, num_examples)
        except (Failure, FailureGroup) as error:
            several = error.exceptions if isinstance(error, FailureGroup) else (error,)
            seen.faults.append(f"{operation.label}: {'; '.join(str(one) for one in several)}")


def _checks(operation: Any, mode: GenerationMode) -> tuple[str, ...]:
    if mode is NEGATIVE:
        return (*ALWAYS, "negative_data_rejection")
    if operation.label in HELD_TO_MORE_THAN_FORM:
        return ALWAYS
    return (*ALWAYS, "positive_data_acceptance")


@cache
def _strategies(label: str, mode: GenerationMode) -> tuple[SearchStrategy[Any], ...]:
    (operation,) = [one for one in _operations() if one.label == label]
    free = operation.as_strategy(generation_mode=mode)
    names = {one.name for one in operation.path_parameters}
    known = {name: KNOWN[name] for name in names & set(KNOWN)}
    if "name" in names:
        known["name"] = "fused-allreduce-1" if "canaries" in operation.tags else "demo"
    if mode is NEGATIVE or not known:
        return (free,)
    return free, operation.as_strategy(generation_mode=mode, path_parameters=known)


def _example_after_example(send: Any, strategy: SearchStrategy[Any], num_examples: int) -> None:
    limited = hypothesis.settings(
        derandomize=True,
        database=None,
        max_examples=num_examples,
        phases=[Phase.generate],  # no shrinking: the first fault is told as it is
        suppress_health_check=list(HealthCheck),
    )
    limited(hypothesis.given(case=strategy)(send))()


def _answered(plane: ControlPlane, case: Any, headers: dict[str, str]) -> Any:
    sent = case.as_transport_kwargs(base_url="http://localhost")
    body = {"json": sent["json"]} if "json" in sent else {}
    if sent.get("data") is not None:
        body = {"content": sent["data"]}
    return plane.client.request(
        sent["method"],
        sent["url"],
        params=sent.get("params"),
        headers={**(sent.get("headers") or {}), **headers},
        **body,
    )
