"""Loads the text of a policy or a catalogue as plain values; says nothing about their meaning.

A document is signed off by what a reader sees in it. So what could be read in two ways is refused:
repeated keys, anchors and aliases, tags; and `012`, `1:30` and `on` are words, not numbers or true.
"""

import re
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from controlplane.domain.errors import InvalidValueError

MAX_BYTES: Final = 256 * 1024
# A policy is four levels deep. The bound keeps a hostile document from exhausting the stack.
MAX_DEPTH: Final = 16

_BOOL: Final = "tag:yaml.org,2002:bool"
_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_NULL: Final = "tag:yaml.org,2002:null"


def load_yaml(text: str) -> object:
    """Mappings, lists, strings, numbers, booleans and nulls as `text` states them.

    JSON is read too. Integers have at most 18 digits; what looks like a date is a string.

    Raises:
        InvalidValueError: it is too large or too deep, is not YAML, or could be read in two ways;
            the key is the number of the line.
    """
    num_bytes = len(text.encode(errors="replace"))
    if num_bytes > MAX_BYTES:
        raise InvalidValueError("document", f"{num_bytes} bytes", allowed=f"{MAX_BYTES} bytes")
    try:
        # `_Loader` is a SafeLoader, and only its parser is used: nodes are made values below.
        node = yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _refusal(line, "a character", allowed="printable characters") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _refusal(mark.line + 1 if mark else 1, error.problem, allowed="YAML") from error
    except (ValueError, OverflowError) as error:
        # An escape such as "\U00110000" names no character; the scanner does not say where.
        raise InvalidValueError("document", str(error), allowed="YAML") from error
    return None if node is None else _value(node)


class _Loader(yaml.SafeLoader):
    """Composes nodes, and refuses events that a plain document has no need of."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - inherited
    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        # Typed Any here: the stubs leave this method untyped, and its events partly so.
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _refusal(line, f"the anchor {event.anchor}", allowed="each value written out")
        if event.tag is not None:
            raise _refusal(line, f"the tag {event.tag}", allowed="values without a tag")
        if self.depth >= MAX_DEPTH:
            raise _refusal(line, f"level {self.depth + 1}", allowed=f"at most {MAX_DEPTH} levels")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


# The core schema of YAML 1.2, without octal, hexadecimal, infinity and NaN.
for _tag, _pattern, _first in (
    (_NULL, r"~|null|", ["~", "n", ""]),
    (_BOOL, r"true|false", list("tf")),
    (_INT, r"-?(0|[1-9][0-9]{0,17})", list("-0123456789")),
    (_FLOAT, r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", list("-0123456789")),
):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)


def _value(node: Node) -> object:
    match node:
        case MappingNode():
            return _mapping(node)
        case SequenceNode():
            return [_value(item) for item in node.value]
        case _:
            assert isinstance(node, ScalarNode), f"a node of kind {type(node).__name__}"
            return _scalar(node)


def _mapping(node: MappingNode) -> dict[object, object]:
    values: dict[object, object] = {}
    for key_node, value_node in node.value:
        key = _value(key_node) if isinstance(key_node, ScalarNode) else None
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise _refusal(line, f"the key {key_node.value}", allowed="words as keys")
        if key in values:
            raise _refusal(line, f"a second {key}", allowed="each key once")
        values[key] = _value(value_node)
    return values


def _scalar(node: ScalarNode) -> object:
    text = str(node.value)
    if node.tag == _NULL:
        return None
    if node.tag == _BOOL:
        return text == "true"
    if node.tag == _INT:
        return int(text)
    return float(text) if node.tag == _FLOAT else text


def _refusal(line: int, what: str | None, *, allowed: str) -> InvalidValueError:
    return InvalidValueError(f"line {line}", what, allowed=allowed)
