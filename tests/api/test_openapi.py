"""The API describes itself: in full, with examples that are true, and nothing that is not there."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from controlplane import app
from controlplane.api import openapi
from controlplane.api.answers import ANSWERS
from tests.api import played
from tests.api.control_plane import ControlPlane, bearer

Operation = dict[str, Any]
ROUTES = sorted(
    f"{method} {route.path}"
    for router in app.ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and route.include_in_schema
    for method in route.methods or ()
)
OPEN = {"GET /livez", "GET /readyz"}


@pytest.fixture(scope="module")
def document() -> Any:
    """What the routes alone describe; that the application says the same is a test of its own."""
    bare = FastAPI()
    for router in app.ROUTERS:
        bare.include_router(router)
    return json.loads(json.dumps(openapi.document(bare, routers=app.ROUTERS)))


def test_the_application_describes_itself_so(sqlite_plane: ControlPlane, document: Any) -> None:
    assert sqlite_plane.client.get("/openapi.json").json() == document


def _operation(document: Any, name: str) -> Operation:
    method, path = name.split(" ")
    found: Operation = document["paths"][path][method.lower()]
    return found


def _examples(content: dict[str, Any]) -> list[Any]:
    several = [one["value"] for one in content.get("examples", {}).values()]
    return [*several, *([content["example"]] if "example" in content else [])]


def _contents(operation: Operation) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Where it is, its media type, and its schema and examples."""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield "request", media, content
    for status, response in operation["responses"].items():
        for media, content in response.get("content", {}).items():
            yield status, media, content


def _check(document: Any, schema: Any, value: Any) -> None:
    validator = jsonschema_rs.Draft202012Validator(
        {**schema, "components": document["components"]}, validate_formats=True
    )
    validator.validate(value)


@pytest.mark.parametrize("name", ROUTES)
def test_every_operation_says_what_it_is_for(document: Any, name: str) -> None:
    operation = _operation(document, name)

    assert operation["summary"]
    assert len(operation["description"].split(".")[0]) > 8
    assert set(operation["tags"]) <= {one["name"] for one in document["tags"]}
    assert all(response["description"] for response in operation["responses"].values())


@pytest.mark.parametrize("name", ROUTES)
def test_every_operation_has_examples_that_fit_their_schema(document: Any, name: str) -> None:
    contents = list(_contents(_operation(document, name)))

    for where, media, content in contents:
        if content["schema"].get("format") == "binary":
            continue  # protobuf, of which JSON shows nothing
        found = _examples(content)
        assert found, f"{where} {media}"
        for example in found:
            _check(document, content["schema"], example)
    assert contents


@pytest.mark.parametrize("name", ROUTES)
def test_the_schema_of_an_answer_would_refuse_another(document: Any, name: str) -> None:
    """A schema that takes everything would make every test of conformance pass."""
    if name not in ANSWERS:
        return
    status, _ = ANSWERS[name]
    content = _operation(document, name)["responses"][str(status)]["content"]["application/json"]
    other: list[Any] = [{}, [], "text"]
    other.append({**_examples(content)[0], "contract": "x", "undocumented": 1})
    for wrong in other:
        with pytest.raises(jsonschema_rs.ValidationError):
            _check(document, content["schema"], wrong)


@pytest.mark.parametrize("name", ROUTES)
def test_every_operation_names_its_token_and_its_refusals(document: Any, name: str) -> None:
    operation = _operation(document, name)
    statuses = set(operation["responses"])

    assert {"421", "500"} <= statuses
    if name in OPEN:
        assert operation["security"] == []
        return
    assert operation["security"] == [{"token": []}]
    assert "Needs the role" in operation["description"]
    assert {"401", "403"} <= statuses
    if "requestBody" in operation:
        assert {"400", "413"} <= statuses
    for status in statuses - {"200", "201", "202", "204"}:
        assert list(operation["responses"][status]["content"]) == ["application/problem+json"]


def test_the_token_is_a_bearers(document: Any) -> None:
    scheme = document["components"]["securitySchemes"]["token"]

    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


def test_the_document_names_every_operation_and_no_other(document: Any) -> None:
    described = {
        f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item
    }

    assert described == set(ROUTES)
    assert set(ANSWERS) <= described


def test_every_reference_leads_somewhere(document: Any) -> None:
    text = json.dumps(document)
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}

    assert named <= set(document["components"]["schemas"])
    assert "#/$defs/" not in text
    assert "HTTPValidationError" not in text


def test_the_examples_have_the_form_of_what_is_asked_and_answered(plane: ControlPlane) -> None:
    """Played anew they are the same, but for sentences and numbers.

    `python -m tests.api.played` records what has changed.
    """
    recorded = openapi.examples()

    assert _form(played.played(plane)) == _form(recorded["operations"])
    assert _form(played.refused(plane)) == _form(recorded["problems"])


def _form(value: Any, key: str = "") -> Any:
    """Keys and types of `value`, without what is free in form or in number."""
    if key in {"inputs", "document", "policy", "gates"}:
        return type(value).__name__
    if isinstance(value, dict):
        return {name: _form(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return sorted({str(_form(one)) for one in value})
    return type(value).__name__


def test_no_example_is_missing_or_left_over() -> None:
    recorded = set(openapi.examples()["operations"])

    assert recorded == set(ROUTES) - {"GET /metrics"}


@pytest.mark.parametrize("path", ["/v1/fleets", "/v1/policies", "/v1/policies/lint", "/v1/tokens"])
def test_what_needs_no_state_takes_its_own_example(
    sqlite_plane: ControlPlane, document: Any, path: str
) -> None:
    """All the others are asked with theirs in the order of `played`."""
    operation = _operation(document, f"POST {path}")
    body = operation["requestBody"]["content"]["application/json"]["example"]

    answer = sqlite_plane.client.post(path, headers=sqlite_plane.admin, json=body)

    content = operation["responses"][str(answer.status_code)]["content"]["application/json"]
    assert answer.is_success, answer.text
    _check(document, content["schema"], answer.json())


def test_the_document_is_open_but_says_no_secret(sqlite_plane: ControlPlane) -> None:
    text = sqlite_plane.client.get("/openapi.json").text

    assert sqlite_plane.admin["Authorization"].split()[1] not in text
    assert played.SHOWN_SECRET in text
    assert bearer(played.SHOWN_SECRET) != sqlite_plane.admin
