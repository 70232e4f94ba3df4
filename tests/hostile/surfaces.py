"""Every field that somebody outside can set, found by looking at the models and routes themselves.

A field that is added tomorrow is among them: documents are made from the schemas of the running
application, of the OTLP records and of the import, and each of their values is a `Target`.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from controlplane import assets
from controlplane.api.routes import imports
from controlplane.contract import vocabulary
from controlplane.contract.records import RECORD_TYPES
from controlplane.contract.vocabulary import ResourceKey
from controlplane.domain import imported
from tests.api.control_plane import FLAG, FLEET, KNOWN, STACK, ControlPlane, bearer
from tests.api.otlp_bodies import record, request
from tests.clock import START

Kind = Literal["text", "number", "truth"]
WORKER = "w-1"
LIFE = f"life-of-{WORKER}"
CANARY = f"{FLAG.replace('_', '-')}-1"
# What a schema cannot know: names that are there. Everything else is made up from the schema.
_THERE: Mapping[str, Any] = {
    "fleet": FLEET,
    "worker": WORKER,
    "incarnation": LIFE,
    "hardware": "cpu",
    "flag": FLAG,
    "variant": "nccl",
    "flags": {FLAG: "nccl"},
    "capabilities": KNOWN,
    "stack": STACK,
    "policy": "demo",
    "mode": "observe",
    "role": "worker",
    "contract": vocabulary.CONTRACT_VERSION,
    "generation": 1,
    "num_frames": 240,
    "num_first_chunk_frames": 4,
    "streamed_s": 9.6,
    "is_sample": False,
}
_WORDS = ("a", "nccl", "0123456789abcdef", "a1")
ROW = {
    "session": "past-1",
    "started_at": START.isoformat(),
    "worker": WORKER,
    "hardware": "cpu",
    "stack": "torch=2.13",
    "flags": f"{FLAG}=nccl",
    "streamed_s": "10",
    "outcome": "completed",
    "num_frames": "240",
    "num_first_chunk_frames": "4",
    "fps": "23.6",
    "reason": "",
    "first_forward_length": "8",
    "is_mixed": "false",
    "is_synthetic": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What came back."""

    status: int
    is_taken: bool
    why: str  # all that a refusal says

    def names(self, path: tuple[str | int, ...]) -> bool:
        """Whether the refusal names the value's place, or what holds it."""
        words = [part.removeprefix(_KEY) for part in path if isinstance(part, str)]
        # Of a document the refusal names the key inside it, or the line that is no YAML.
        is_document = words == ["document"] and '"key"' in self.why
        return is_document or any(word.removesuffix("s") in self.why for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """One thing that can be sent, with a document that is taken."""

    name: str
    document: Mapping[str, Any]
    kind: Literal["operator", "worker", "record", "resource", "row", "policy"]
    path: str = ""

    def targets(self, kind: Kind) -> Iterator[tuple[str | int, ...]]:
        """Places of values of that kind; of text, of the keys of maps as well."""
        yield from _places(self.document, kind)

    def with_value(self, place: tuple[str | int, ...], value: object) -> dict[str, Any]:
        """The document with another value in one place."""
        changed: Any = copy.deepcopy(dict(self.document))
        at = changed
        for part in place[:-1]:
            at = at[part]
        if isinstance(place[-1], str) and place[-1].startswith(_KEY):
            name = place[-1].removeprefix(_KEY)
            at[value] = at.pop(name)
        else:
            at[place[-1]] = value
        made: dict[str, Any] = changed
        return made

    def send(self, plane: ControlPlane, document: Mapping[str, Any], *, number: int) -> Said:
        """Send it; `number` keeps one call from being a repeat of another."""
        if self.kind in ("record", "resource"):
            return self._send_otlp(plane, document, number=number)
        if self.kind == "row":
            document = _table(document)
        if self.kind == "policy":
            document = {"reason": "hostile", "document": yaml.safe_dump(dict(document))}
        path = self.path.format(fleet=FLEET, worker=WORKER, name=CANARY, token_id="none", number=1)
        sender = bearer(plane.worker_token(WORKER)) if self.kind == "worker" else plane.admin
        body = json.dumps(document).encode()
        headers = {**sender, "Content-Type": "application/json"}
        answer = plane.client.post(path, headers=headers, content=body)
        return Said(status=answer.status_code, is_taken=answer.is_success, why=answer.text)

    def _send_otlp(self, plane: ControlPlane, document: Mapping[str, Any], *, number: int) -> Said:
        who = {
            ResourceKey.INCARNATION.value: LIFE,
            ResourceKey.FLEET.value: FLEET,
            ResourceKey.WORKER.value: WORKER,
            ResourceKey.HARDWARE.value: "cpu",
            ResourceKey.STACK.value: vocabulary.stack_digest(STACK),
        }
        if self.kind == "resource":
            told = record("session.started", session=f"of-resource-{number}", seq=number)
            body = request(told, resource={**who, **document})
        else:
            own = {"seq": number, "session": f"s-{number}"}
            same = {name for name in own if document.get(name) is self.document.get(name)}
            fields = {**document, **{name: own[name] for name in same}}
            body = request(record(self.name, **fields), resource=who)
        answer = plane.logs(WORKER, body)
        if answer.status_code != 200:
            return Said(status=answer.status_code, is_taken=False, why=answer.text)
        partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
        is_taken = not partial.rejected_log_records
        return Said(status=200, is_taken=is_taken, why=partial.error_message)


_KEY = "key:"
_ROWS = "/sessions"
_OTLP = ("/v1/logs", "/v1/metrics")  # what is in them is sent as records
_POLICY = assets.policies() / "demo.yaml"
_CANARIES = "/v1/canaries"  # of a flag and a variant, or of a stack: two forms in one schema
# Where a schema says "text" and the route wants text of a certain form.
_SENSIBLE: Mapping[str, Mapping[str, Any]] = {
    _CANARIES: {"variant": "fused_small_tiles"},
    "/v1/fleets/{fleet}/attestations": {"stack": vocabulary.stack_digest(STACK)},
    "/v1/policies": {"document": _POLICY.read_text()},
    "/v1/policies/lint": {"document": _POLICY.read_text()},
    imports.PREFIX + _ROWS: {"columns": list(ROW), "lines": [], "rows": []},
}


def surfaces(plane: ControlPlane) -> list[Surface]:
    """Everything that can be sent to this application."""
    return [*_bodies(plane), *_records(), _resource(), *_rows(), _policy()]


def _bodies(plane: ControlPlane) -> Iterator[Surface]:
    schema = plane.client.app.openapi()
    for path, calls in sorted(schema["paths"].items()):
        content = calls.get("post", {}).get("requestBody", {}).get("content", {})
        if "application/json" not in content or path in _OTLP:
            continue
        document = _example(content["application/json"]["schema"], schema, name="")
        document |= _SENSIBLE.get(path, {})
        if "probe" in document:
            document |= _probe(plane)
        if path == _CANARIES:
            del document["stack"]
            about_stack = {key: document[key] for key in document.keys() - {"flag", "variant"}}
            about_stack["stack"] = vocabulary.stack_digest(STACK)
            yield Surface(name="canaries", document=about_stack, kind="operator", path=path)
        is_worker = "incarnation" in document
        yield Surface(
            name=path.removeprefix("/v1/"),
            document=document,
            kind="worker" if is_worker else "operator",
            path=path,
        )


def _probe(plane: ControlPlane) -> dict[str, Any]:
    """The probe that the canary asks of the worker."""
    found = plane.client.get(f"/v1/canaries/{CANARY}", headers=plane.admin)
    canary = found.json().get("canary", {"id": "none", "version": 0})
    return {"canary": canary["id"], "probe": f"{canary['id']}-{canary['version']}"}


def _records() -> Iterator[Surface]:
    for event, kind in RECORD_TYPES.items():
        schema = kind.model_json_schema()
        document = _example(schema, schema, name="")
        yield Surface(name=event.value, document=document, kind="record")


def _resource() -> Surface:
    names = {
        ResourceKey.INCARNATION.value: LIFE,
        ResourceKey.FLEET.value: FLEET,
        ResourceKey.WORKER.value: WORKER,
        ResourceKey.HARDWARE.value: "cpu",
        ResourceKey.STACK.value: vocabulary.stack_digest(STACK),
        "any.other": "words",
    }
    return Surface(name="resource", document=names, kind="resource")


def _rows() -> Iterator[Surface]:
    """A file gives the rate or what it is made of."""
    assert set(ROW) == {*imported.REQUIRED, *imported.OPTIONAL}, "a column is not tried"
    parts = ("num_frames", "num_first_chunk_frames")
    rated = {name: cell for name, cell in ROW.items() if name not in parts}
    counted = {name: cell for name, cell in ROW.items() if name != "fps"}
    yield Surface(name="row with a rate", document=rated, kind="row", path=imports.PREFIX + _ROWS)
    yield Surface(name="row of counts", document=counted, kind="row", path=imports.PREFIX + _ROWS)


def _policy() -> Surface:
    document = yaml.safe_load(_POLICY.read_text())
    return Surface(name="policy", document=document, kind="policy", path="/v1/policies")


def _table(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "fleet": FLEET,
        "reason": "hostile",
        "columns": list(row),
        "lines": [2],
        "rows": [list(row.values())],
    }


def _example(schema: Mapping[str, Any], whole: Mapping[str, Any], *, name: str) -> Any:
    """A value that the schema allows, with the names that are there where it needs them."""
    if name in _THERE:
        return copy.deepcopy(_THERE[name])
    if "$ref" in schema:
        found: Any = whole
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return _example(found, whole, name="")
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], whole, name=name)
    if "enum" in schema or "const" in schema:
        return (schema.get("enum") or [schema.get("const")])[0]
    return _typed_example(schema, whole, name=name)


def _typed_example(schema: Mapping[str, Any], whole: Mapping[str, Any], *, name: str) -> Any:
    least = max(schema.get("minimum", 0), 1)
    made: dict[str, Callable[[], Any]] = {
        "object": lambda: _object_example(schema, whole),
        "array": lambda: [
            _example(schema["items"], whole, name="")
            for _ in range(max(1, schema.get("minItems", 1)))
        ],
        "string": lambda: next(w for w in _WORDS if re.search(schema.get("pattern", ""), w)),
        "integer": lambda: int(least),
        "number": lambda: float(min(least, schema.get("maximum", 1))),
        "boolean": lambda: False,
    }
    assert schema.get("type") in made, f"no example for {name}: {schema}"
    return made[schema["type"]]()


def _object_example(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    if "properties" in schema:
        inside = schema["properties"].items()
        return {key: _example(inner, whole, name=key) for key, inner in inside}
    found = schema.get("patternProperties") or {"": schema["additionalProperties"]}
    return {"a": _example(next(iter(found.values())), whole, name="")}


def _places(value: Any, kind: Kind, at: tuple[str | int, ...] = ()) -> Iterator[Any]:
    match value:
        case dict():
            is_map = at and at[-1] in _MAPS
            for key, inner in value.items():
                if is_map and kind == "text":
                    yield (*at, f"{_KEY}{key}")
                yield from _places(inner, kind, (*at, key))
        case list():
            for index, inner in enumerate(value):
                yield from _places(inner, kind, (*at, index))
        case bool():
            yield from [at] if kind == "truth" else []
        case str():
            yield from [at] if kind == "text" else []
        case int() | float():
            yield from [at] if kind == "number" else []
        case _:
            message = f"{value!r} is no JSON"
            raise AssertionError(message)


# Maps whose keys are a sender's own words.
_MAPS = ("flags", "stack", "capabilities", "flag_bytes")
