"""How `steadyframe canary explain` shows what the control plane explains; it adds nothing."""

from collections.abc import Mapping, Sequence
from typing import Final

from controlplane.cli import output
from controlplane.cli.client import Json

_IN_BYTES: Final = frozenset({"memory"})


def write(found: Mapping[str, Json]) -> None:
    """The answer first, then gates, evidence, what is missing and what would change it."""
    output.write_line(found["answer"], style="bold")
    if found["decided"]:
        output.write_item(f"decided: {found['decided']}")
    if found["judged_at"]:
        output.write_item(f"judged {output.time_of(found['judged_at'])}: {found['verdict']}")
    _write_gates(found["gates"])
    if found["evidence"]:
        _write_evidence(found["evidence"])
    _write_sentences("what it needs", found["needs"])
    _write_sentences("what would change it", found["what_if"])


def _write_gates(gates: Sequence[Mapping[str, Json]]) -> None:
    output.write_line("\ngates", style="bold")
    output.write_table(
        ("gate", "verdict", "value", "limit", "margin", "samples"),
        [
            (
                gate["gate"],
                gate["verdict"],
                *(_number(gate[part], of=gate["gate"]) for part in ("value", "limit", "margin")),
                gate["num_samples"],
            )
            for gate in gates
        ],
        empty="  none judged yet",
    )
    for gate in gates:
        output.write_item(f"{gate['gate']}: {gate['reason']}")


def _write_evidence(evidence: Mapping[str, Json]) -> None:
    output.write_line("\nevidence against the controls", style="bold")
    if evidence["value"] is not None:
        parts = ", ".join(
            f"{name} {value:.3g}" for name, value in sorted(evidence["by_indicator"].items())
        )
        output.write_item(
            f"e-value of harm {evidence['value']:.3g}, at most {evidence['highest']:.3g} so far,"
            f" over {evidence['num_blocks']} blocks; most of it from {evidence['attributed']}"
            f" (each: {parts})"
        )
        output.write_item(
            f"p-value, valid however often one looks: {evidence['p_value']:.3g}"
            " = min(1, 1 / highest)"
        )
    for rate in evidence["rates"]:
        share = "no rate" if rate["rate"] is None else f"{rate['rate']:.2%}"
        output.write_item(
            f"{rate['of']}, {rate['arm']}: {rate['num_bad']} of {rate['num']}, {share};"
            f" between {rate['low']:.2%} and {rate['high']:.2%} at every look, 95 %"
        )


def _write_sentences(title: str, sentences: Sequence[str]) -> None:
    if sentences:
        output.write_line(f"\n{title}", style="bold")
    for sentence in sentences:
        output.write_item(sentence)


def _number(value: Json, *, of: str) -> str:
    """A number of gate `of`, to what is worth reading: bytes in MiB, as its reason has them."""
    if not isinstance(value, int | float):
        return output.MISSING
    if of in _IN_BYTES:
        return output.size(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 - digits
