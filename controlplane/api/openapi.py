"""The OpenAPI document: what FastAPI derives from the routes, and what it cannot know of them.

Who may ask comes from each route's own requirement, the form of answers from `answers`, examples
from `examples.json`, which a test records anew. Nothing here decides what a route does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib import metadata, resources
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from controlplane.api import otlp, problems
from controlplane.api.answers import ANSWERS
from controlplane.api.answers.form import Answer, Rehearsed
from controlplane.api.auth import Require

SCHEME: Final = "token"
REF: Final = "#/components/schemas/{model}"
DESCRIPTION: Final = """\
Every request but those for health carries `Authorization: Bearer TOKEN`; a token has a role and may
be bound to a fleet or a worker. Every change wants a `reason`, may carry `Idempotency-Key` to be
done once however often it is sent, and with `dry_run=true` says what it would do and does nothing.
Refusals are `application/problem+json` (RFC 9457) and name the key, the value and what is allowed.
"""
TAGS: Final = {
    "health": "Whether the process lives and does its work; open to everybody.",
    "metrics": "For Prometheus.",
    "fleets": "Fleets and their workers, as people see and change them.",
    "workers": "Control facts of workers: what they tell, and what they are told.",
    "telemetry": "OTLP/HTTP: logs are evidence.",
    "policies": "Flags, and what a canary must show.",
    "canaries": "Canaries, what was decided and why.",
    "qualifications": "What is proven, or failed, on which hardware and stack.",
    "office": "Sessions, the audit log, tokens.",
    "reports": "How fleets did, week by week.",
}
METRICS_EXAMPLE: Final = """\
# HELP steadyframe_workers Workers by where they stand; each in one state.
# TYPE steadyframe_workers gauge
steadyframe_workers{fleet="video",hardware="cpu",state="serving"} 3.0
"""
_TEXTS: Final = {
    "GET /metrics": "text/plain; version=0.0.4; charset=utf-8",
    "GET /v1/reports/weekly.csv": "text/csv; charset=utf-8",
}
_OTLP: Final = {"POST /v1/logs": "resourceLogs", "POST /v1/metrics": "resourceMetrics"}
# Whoever says what a worker does may have been overtaken by a newer process of it.
_OVERTAKEN: Final = ("registration", "desired", "effective", "trips", "probes")


class Refused(Answer):
    """One value that is not allowed."""

    key: str
    value: Any
    allowed: str


class BadRow(Refused):
    """One row of an import that is not."""

    line: int


class Problem(Answer):
    """Why a request was refused (RFC 9457); which of the other keys there are depends on that."""

    type: str
    title: str
    status: int
    detail: str
    key: str = ""
    value: Any = None
    allowed: str = ""
    errors: tuple[Refused, ...] = ()
    kind: str = ""
    name: Any = None
    num_bad: int = 0
    bad: tuple[BadRow, ...] = ()
    error_id: str = ""


@cache
def examples() -> Mapping[str, Any]:
    """Requests and answers by operation, and a problem of each status, as they were recorded."""
    recorded: Mapping[str, Any] = json.loads(
        resources.files(__package__).joinpath("examples.json").read_text()
    )
    return recorded


def install(app: FastAPI, *, routers: Sequence[APIRouter]) -> None:
    """Make `app`, which includes `routers`, describe itself in full."""
    made: dict[str, Any] = {}

    def described() -> dict[str, Any]:
        if not made:
            made.update(document(app, routers=routers))
        return made

    app.openapi = described  # type: ignore[method-assign] # the way that FastAPI documents


def document(app: FastAPI, *, routers: Sequence[APIRouter]) -> dict[str, Any]:
    """The OpenAPI document of `app`, which includes `routers`."""
    tags = [{"name": name, "description": said} for name, said in TAGS.items()]
    made = get_openapi(
        title="Steadyframe",
        version=metadata.version("steadyframe"),
        description=DESCRIPTION,
        routes=app.routes,
        tags=tags,
    )
    schemas, definitions = _schemas()
    components = made.setdefault("components", {})
    kept = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # our refusals are problems
        kept.pop(name, None)
    kept.update(definitions)
    components["securitySchemes"] = {
        SCHEME: {
            "type": "http",
            "scheme": "bearer",
            "description": "A token from `steadyframe token create` or POST /v1/tokens.",
        }
    }
    for route in (one for router in routers for one in router.routes):
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in sorted(route.methods or ()):
                operation = made["paths"][route.path][method.lower()]
                _describe(operation, f"{method} {route.path}", route, schemas=schemas)
    return made


def _describe(
    operation: dict[str, Any], name: str, route: APIRoute, *, schemas: Mapping[str, Any]
) -> None:
    recorded = examples()["operations"].get(name, {})
    roles = {one.role for one in _requirements(route.dependant)}
    operation["security"] = [{SCHEME: []}] if roles else []
    said = operation.get("description", "")
    needs = "".join(f"Needs the role {role}." for role in sorted(roles))
    operation["description"] = f"{said}\n\n{needs}" if needs else said
    if name in _OTLP:
        operation["requestBody"] = _otlp_body(_OTLP[name])
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        if media == otlp.JSON and "request" in recorded:
            content["example"] = recorded["request"]
    responses = _answered(name, operation, recorded, schemas=schemas)
    for status in _refusals(name, operation, is_open=not roles):
        responses[str(int(status))] = _problem(status)
    operation["responses"] = responses


def _answered(
    name: str,
    operation: Mapping[str, Any],
    recorded: Mapping[str, Any],
    *,
    schemas: Mapping[str, Any],
) -> dict[str, Any]:
    examples_of = recorded.get("responses", {})
    if name in _TEXTS:
        example = METRICS_EXAMPLE if name == "GET /metrics" else examples_of["200"]
        content = {_TEXTS[name]: {"schema": {"type": "string"}, "example": example}}
        return {"200": {"description": "As it says.", "content": content}}
    if name in _OTLP:
        return {"200": _otlp_answer(examples_of["200"])}
    if name not in ANSWERS:
        return {"204": {"description": "Taken; there is nothing to say."}}
    status, _ = ANSWERS[name]
    answers = {str(status): _json("What was asked for.", schemas[name], examples_of[str(status)])}
    if name == "GET /readyz":
        not_ready = {"status": "not ready", "checks": {"database": True, "judge": False}}
        answers["503"] = _json("Not now.", schemas[name], not_ready)
    if any(one["name"] == "dry_run" for one in operation.get("parameters", [])):
        _add_rehearsal(answers, schemas)
    return answers


def _add_rehearsal(answers: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    example = examples()["operations"]["POST /v1/tokens"]["responses"]["200"]
    rehearsed = _json("With `dry_run`: what it would do.", schemas["rehearsed"], example)
    if "200" not in answers:
        answers["200"] = rehearsed
        return
    content = answers["200"]["content"]["application/json"]
    done = content.pop("example")
    content["schema"] = {"anyOf": [content["schema"], schemas["rehearsed"]]}
    content["examples"] = {"done": {"value": done}, "rehearsed": {"value": example}}


def _refusals(name: str, operation: Mapping[str, Any], *, is_open: bool) -> Iterator[HTTPStatus]:
    yield HTTPStatus.MISDIRECTED_REQUEST
    yield HTTPStatus.INTERNAL_SERVER_ERROR
    if is_open:
        return
    yield HTTPStatus.UNAUTHORIZED
    yield HTTPStatus.FORBIDDEN
    has_body = "requestBody" in operation
    parameters = operation.get("parameters", [])
    if has_body:
        yield HTTPStatus.BAD_REQUEST
        yield HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    if name in _OTLP:
        yield HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        return
    if has_body or parameters:
        yield HTTPStatus.UNPROCESSABLE_ENTITY
    named = {one["name"] for one in parameters if one["in"] == "path" or one["name"] == "fleet"}
    if named or has_body:
        yield HTTPStatus.NOT_FOUND
    if has_body or name.endswith(_OVERTAKEN):
        yield HTTPStatus.CONFLICT
    if name.endswith(_OVERTAKEN):
        yield HTTPStatus.SERVICE_UNAVAILABLE


def _problem(status: HTTPStatus) -> dict[str, Any]:
    fault = {"error_id": "7c1e0f6a9b2d4e53"}
    busy = {"detail": "others change the same worker: try again"}
    made = {
        HTTPStatus.INTERNAL_SERVER_ERROR: {
            "detail": "this is a fault of ours; the log has it under 7c1e0f6a9b2d4e53",
            **fault,
        },
        HTTPStatus.SERVICE_UNAVAILABLE: busy,
    }
    example = examples()["problems"].get(str(int(status))) or {
        "type": "about:blank",
        "title": status.phrase,
        "status": int(status),
        **made[status],
    }
    schema = {"$ref": REF.format(model="Problem")}
    content = {problems.MEDIA_TYPE: {"schema": schema, "example": example}}
    return {"description": status.phrase, "content": content}


def _otlp_body(key: str) -> dict[str, Any]:
    # The whole of it is OpenTelemetry's to say; what is wrong within is told in `partial_success`.
    # Null is protobuf's JSON for nothing of it.
    parts = {"type": ["array", "null"], "items": {"type": "object"}}
    as_json = {"schema": {"type": "object", "properties": {key: parts}}}
    as_bytes = {"schema": {"type": "string", "format": "binary"}}
    return {"required": True, "content": {otlp.JSON: as_json, otlp.PROTOBUF: as_bytes}}


def _otlp_answer(example: Any) -> dict[str, Any]:
    told = {
        "rejectedLogRecords": {"type": "string"},
        "errorMessage": {"type": "string"},
    }
    schema = {
        "type": "object",
        "properties": {"partialSuccess": {"type": "object", "properties": told}},
        "additionalProperties": False,
    }
    content = {
        otlp.JSON: {"schema": schema, "example": example},
        otlp.PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
    }
    return {"description": "Taken, but for what `partialSuccess` says.", "content": content}


def _json(said: str, schema: Any, example: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, "example": example}}
    return {"description": said, "content": content}


@cache
def _schemas() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """References by operation, and `rehearsed`; and the definitions that they name."""
    forms = {name: form for name, (_, form) in ANSWERS.items()}
    named = [(name, "serialization", TypeAdapter(form)) for name, form in forms.items()]
    named.append(("rehearsed", "serialization", TypeAdapter(Rehearsed)))
    named.append(("problem", "validation", TypeAdapter(Problem)))
    found, defined = TypeAdapter.json_schemas(named, ref_template=REF)  # type: ignore[arg-type] # the modes are literals
    return {name: schema for (name, _), schema in found.items()}, defined["$defs"]


def _requirements(dependant: Dependant) -> Iterator[Require]:
    if isinstance(dependant.call, Require):
        yield dependant.call
    for inner in dependant.dependencies:
        yield from _requirements(inner)
