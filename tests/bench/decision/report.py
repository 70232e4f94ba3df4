"""The measured figures as the tables and the picture of docs/benchmarks.md."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from tests.bench.decision import horizon
from tests.bench.decision.chart import Point
from tests.bench.decision.score import HOLDS, OURS
from tests.bench.decision.streams import HEADLINE, QUALIFYING

# Of a rate of false rollbacks: the point, and the upper end of its 95 % interval.
MOST_FALSE, MOST_FALSE_BOUND = 0.01, 0.015
_FULL: Final = 0.995  # from here on a share that was rolled back is not worth a remark
# What a step is worth is told against the one before it.
STEPS: Final = (
    "as studied",
    "failures as written",
    "failures at once",
    "blocks of 1 + 4",
    "memory gate",
)

Result = Mapping[str, Any]


def points(result: Result) -> list[Point]:
    """What the chart shows: every rule that decides, the hold threshold aside."""
    return [
        Point(
            name=rule,
            false_percent=100 * worst_false(result, rule),
            harmed=headline(result, rule),
            qualifies=qualifies(result, rule),
        )
        for rule in _rules(result)
        if rule != HOLDS
    ]


def headline(result: Result, rule: str) -> float:
    """Mean of the harmed sessions over the headline scenarios."""
    return fmean(_row(result, name, rule)["harmed"] for name in HEADLINE)


def worst_false(result: Result, rule: str) -> float:
    """The highest share of healthy canaries rolled back in any qualifying world."""
    return max(_share(_row(result, name, rule)) for name in QUALIFYING)


def qualifies(result: Result, rule: str) -> bool:
    """Whether false rollbacks are rare enough in every qualifying world."""
    return all(_is_rare(_row(result, name, rule)) for name in QUALIFYING)


def problems(result: Result) -> Iterator[str]:
    """What is not as it must be."""
    if not qualifies(result, OURS):
        bound = max(_row(result, name, OURS)["rolled_back_most"] for name in QUALIFYING)
        yield (
            f"{OURS}: {worst_false(result, OURS):.2%} false rollbacks, up to {bound:.2%} by so few"
            f" streams as these; {MOST_FALSE:.1%} and {MOST_FALSE_BOUND:.1%} are allowed"
        )
    for name, scenario in result["scenarios"].items():
        for check in ("folded_at_once", "from_records"):
            if num := scenario["checks"][f"{check}_different"]:
                yield f"{name}: {num} streams are decided differently ({check})"
    for world, (nums, num_streams) in result["horizon"].items():
        if nums[-1] > MOST_FALSE * num_streams:
            yield f"{world}: {nums[-1]} of {num_streams} rolled back within 8,000 sessions"


def lines(result: Result) -> Iterator[str]:
    """The tables, in Markdown."""
    yield from _of_rules(result)
    yield from _in_time(result)
    yield from _of_steps(result)
    yield from _of_horizons(result)
    yield from _of_promotion(result)
    yield _of_checks(result)


def _of_rules(result: Result) -> Iterator[str]:
    yield from _head("rule", "harmed", "worst false %", "qualifies", *HEADLINE)
    for rule in _rules(result):
        cells = (_harmed(_row(result, name, rule)) for name in HEADLINE)
        yield _line(
            rule,
            f"{headline(result, rule):.2f}",
            f"{100 * worst_false(result, rule):.2f}",
            "yes" if qualifies(result, rule) else "no",
            *cells,
        )
    yield ""


def _in_time(result: Result) -> Iterator[str]:
    yield from _head("rule: minutes; harmed; in flight when it acts, harmed of them", *HEADLINE)
    for rule in _rules(result):
        yield _line(rule, *(_timed(_row(result, name, rule)) for name in HEADLINE))
    yield ""


def _of_steps(result: Result) -> Iterator[str]:
    yield from _head("step, each with those before it", "harmed", "worst false %", *HEADLINE)
    for step in (*STEPS, "blocks of 1 + 4, by sessions"):
        rows, false = (
            [result["scenarios"][name]["steps"][step] for name in names]
            for names in (HEADLINE, QUALIFYING)
        )
        yield _line(
            step,
            f"{fmean(row['harmed'] for row in rows):.2f}",
            f"{100 * max(_share(row) for row in false):.2f}",
            *(f"{_harmed(row)}; {row['median_minutes']:.0f} min" for row in rows),
        )
    yield ""


def _of_horizons(result: Result) -> Iterator[str]:
    yield from _head("false rollbacks %, by sessions", *(f"{n:,}" for n in horizon.HORIZONS))
    for world, (nums, num_streams) in result["horizon"].items():
        yield _line(world, *(f"{100 * num / num_streams:.2f}" for num in nums))
    yield ""


def _of_promotion(result: Result) -> Iterator[str]:
    yield from _head("margin", "median sessions", "80 %", "within 400", "false promotions")
    for one in result["promotion"]:
        yield _line(
            f"{100 * one['margin']:.0f} points",
            f"{one['median_sessions']:.0f}",
            f"{one['p80_sessions']:.0f}",
            f"{one['within_400']:.0%}",
            f"{one['false_rate']:.2%} (95 % bound {one['false_rate_most']:.2%})",
        )
    yield ""


def _of_checks(result: Result) -> str:
    checks = [scenario["checks"] for scenario in result["scenarios"].values()]
    num = {key: sum(check[key] for check in checks) for key in checks[0]}
    return (
        f"{num['folded_at_once']:,} streams folded both one block after another by the domain and"
        f" all at once: {num['folded_at_once_different']} stop elsewhere."
        f" {num['from_records']:,} streams from session records:"
        f" {num['from_records_different']} stop elsewhere."
    )


def _rules(result: Result) -> Sequence[str]:
    return list(result["scenarios"][HEADLINE[0]]["rules"])


def _row(result: Result, name: str, rule: str) -> Mapping[str, Any]:
    row: Mapping[str, Any] = result["scenarios"][name]["rules"][rule]
    return row


def _share(row: Mapping[str, Any]) -> float:
    share: float = row["num_rolled_back"] / row["num_streams"]
    return share


def _is_rare(row: Mapping[str, Any]) -> bool:
    return _share(row) <= MOST_FALSE and row["rolled_back_most"] <= MOST_FALSE_BOUND


def _harmed(row: Mapping[str, Any]) -> str:
    found = _share(row)
    seen = "" if found >= _FULL else f" ({found:.0%} found)"
    return f"{row['harmed']:.1f}{seen}"


def _timed(row: Mapping[str, Any]) -> str:
    if row["median_minutes"] is None:
        return "never"
    return (
        f"{row['median_minutes']:.0f}; {row['harmed_in_time']:.1f};"
        f" {row['running']:.1f}, {row['running_harmed']:.1f}"
    )


def _head(*cells: str) -> Iterator[str]:
    yield _line(*cells)
    yield _line(*("---" for _ in cells))


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
