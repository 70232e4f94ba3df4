"""Every wrong key of a policy at once, without a control plane.

What is allowed is the parser's to say, and it stops at the first refusal. So the refused value is
exchanged for one that is not refused, and the parser asked again; no rule is written twice.
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane import assets
from controlplane.domain import flag as flags
from controlplane.domain import policy_document
from controlplane.domain.errors import InvalidValueError
from controlplane.domain.flag import Flag
from controlplane.domain.policy import Policy
from controlplane.services.documents import load_yaml

# A bound: nobody reads more, and a hostile document may have any number.
MAX_PROBLEMS: Final = 100
_FRESHNESS: Final = {"gate": "freshness", "metric": "record_age", "at_most": "15s"}
# Something of every kind that a policy has; one of them fits most keys.
_USUAL: Final[Sequence[object]] = (
    *(1, 2, 24.0, "100%", "25%", "1s", "1m", "1h", "30d", "1MiB", "a sentence"),
    {},
    [_FRESHNESS],
    [{"name": "placeholder", "workers": 1, "bake": "1m", "least_sessions": 1}],
)
_PART: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What there is to say of a document."""

    problems: Sequence[InvalidValueError]
    policy: Policy | None  # None: there are problems
    is_complete: bool  # False: something that is wrong keeps the rest from being looked at
    is_catalogue: bool = False  # the other document of that folder: no key of it is a policy's


def lint(text: str) -> Findings:
    """Every wrong key of the policy in `text`, by the catalogue that comes with Steadyframe."""
    try:
        document = load_yaml(text)
    except InvalidValueError as error:
        return Findings(problems=(error,), policy=None, is_complete=False)
    if isinstance(document, Mapping) and "flags" in document and "policy" not in document:
        return Findings(problems=(), policy=None, is_complete=False, is_catalogue=True)
    catalogue = flags.parse_catalogue(load_yaml((assets.policies() / "flags.yaml").read_text()))
    problems: list[InvalidValueError] = []
    for _ in range(MAX_PROBLEMS):
        try:
            policy = policy_document.parse(document, catalogue=catalogue)
        except InvalidValueError as error:
            if not _is_of_a_replaced_gate(error, problems):
                problems.append(error)
            mended = _mended(document, error, catalogue)
            if mended is None:
                return Findings(problems=problems, policy=None, is_complete=False)
            document = mended
        else:
            return Findings(
                problems=problems, policy=None if problems else policy, is_complete=True
            )
    return Findings(problems=problems, policy=None, is_complete=False)


def _mended(document: object, error: InvalidValueError, catalogue: Sequence[Flag]) -> object | None:
    """`document` with something in place of what was refused; None where nothing was found."""
    parts = _parts(error.key)
    if not isinstance(document, Mapping) or not parts:
        return None
    for attempt in _attempts(document, parts, error):
        try:
            policy_document.parse(attempt, catalogue=catalogue)
        except InvalidValueError as next_error:
            # What the author wrote is the next to tell; what was put in here is of no use.
            is_of_the_whole = error.key.startswith(next_error.key)
            if next_error.key == error.key or not (
                is_of_the_whole or _is_in_both(document, attempt, next_error)
            ):
                continue
        return attempt
    return None


def _is_of_a_replaced_gate(error: InvalidValueError, problems: Sequence[InvalidValueError]) -> bool:
    """Whether it is of a gate that nobody knows: what such a gate must have, nobody can say."""
    gate = error.key.rpartition(".")[0] + ".gate"
    return any(problem.key == gate for problem in problems)


def _is_in_both(document: object, attempt: object, error: InvalidValueError) -> bool:
    """Whether the refused key stands, or is missing, in both alike."""
    *above, last = _parts(error.key)
    before, after = _at(document, above), _at(attempt, above)
    if type(before) is not type(after):
        return False
    return repr(_at(before, [last])) == repr(_at(after, [last]))


def _at(document: object, parts: Sequence[str | int]) -> object:
    """What stands at `parts`, or None."""
    found: Any = document
    for part in parts:
        try:
            found = found[part]
        except (KeyError, IndexError, TypeError):
            return None
    return found


def _attempts(
    document: Mapping[str, Any], parts: Sequence[str | int], error: InvalidValueError
) -> Iterator[object]:
    yield _with(document, parts, remove=True)
    beside = _at(document, parts[:-1])
    # A word that an earlier or later item has would only be refused there.
    words = sorted(re.findall(r"[a-z_0-9]+", error.allowed), key=lambda word: _is_in(word, beside))
    for value in (*words, *_usual(error, present=_at(document, parts))):
        yield _with(document, parts, value=value)


def _is_in(word: str, beside: object) -> bool:
    return isinstance(beside, list) and word in beside


def _usual(error: InvalidValueError, *, present: object) -> Iterator[object]:
    if isinstance(present, list):
        yield [*present, _FRESHNESS]
    for number in re.findall(r"\d{1,9}", error.allowed)[:4]:
        yield int(number)
    yield f"placeholder-{error.key.replace('[', '-').replace(']', '')}"
    yield from _USUAL


def _with(
    document: Mapping[str, Any],
    parts: Sequence[str | int],
    *,
    value: object = None,
    remove: bool = False,
) -> object:
    """A copy of `document` that has `value` at `parts`, or nothing."""
    changed: Any = copy.deepcopy(document)
    parent, last = _at(changed, parts[:-1]), parts[-1]
    if isinstance(parent, dict) and isinstance(last, str):
        if remove:
            parent.pop(last, None)
        else:
            parent[last] = value
    elif isinstance(parent, list) and isinstance(last, int) and last < len(parent) and not remove:
        # An item that is taken away would give those behind it another number.
        parent[last] = value
    return changed


def _parts(key: str) -> list[str | int]:
    """`gates[2].at_most` as steps into the document."""
    return [int(number) if number else name for name, number in _PART.findall(key)]
