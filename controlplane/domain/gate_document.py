"""Reads the gates of a policy from their document, writes them back, and says them in words.

What a gate means is in `policy.py`; `policies/README.md` explains every key.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from controlplane.domain import absolute_forms, compared_forms
from controlplane.domain.document import Table, table
from controlplane.domain.errors import InvalidValueError
from controlplane.domain.form import Form
from controlplane.domain.policy import Gates

_BY_NAME: Final = {**absolute_forms.FORMS, **compared_forms.FORMS}
# In the order that results are listed and documents spelled.
FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
        name: _BY_NAME[name]
        for name in (
            *("floor", "failures", "stall"),
            *("regression", "non_inferiority", "slow_rate", "part_time", "sample_ratio"),
            *("memory", "coverage", "quality", "freshness"),
        )
    }
)


def read(root: Table) -> Gates:
    """The gates that `root` lists. Raises: InvalidValueError."""
    asked: dict[str, Any] = {}
    any_key = frozenset({"gate", "metric"}).union(*(form.keys for form in FORMS.values()))
    for path, item in root.items("gates", most=len(FORMS)):
        fields_ = table(item, path=path, allowed=any_key)
        gate = fields_.word("gate", FORMS)
        form = FORMS[gate]
        table(item, path=path, allowed=form.keys | {"gate", "metric"})
        fields_.word("metric", [form.metric])
        if gate in asked:
            raise fields_.refusal("gate", allowed="each gate once")
        asked[gate] = form.read(fields_)
    if "freshness" not in asked:
        sentence = "a list with the gate freshness: missing telemetry never counts as a pass"
        raise InvalidValueError("gates", sorted(asked), allowed=sentence)
    return Gates(**asked)


def written(gates: Gates) -> list[dict[str, object]]:
    """The gates as their canonical document lists them."""
    return [
        {"gate": name, "metric": form.metric, **form.bounds(asked)}
        for name, form in FORMS.items()
        if (asked := getattr(gates, name)) is not None
    ]


def words(gates: Gates) -> dict[str, str]:
    """What each gate asks; those not asked say so."""
    return {
        name: form.words(asked) if (asked := getattr(gates, name)) is not None else "not asked"
        for name, form in FORMS.items()
    }
