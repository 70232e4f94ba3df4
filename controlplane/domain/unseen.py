"""How much of what production sends a canary has never met: nothing that passed speaks for it.

In August 2026 workers died of first-forward lengths that no benchmark had, while every session that
was tested passed. A label here is whatever inputs are told apart by: a first-forward length, a bin
of lengths, a style of image. Inputs under one label are taken to behave alike; a fault that depends
on the exact length needs every length as its own label (`bin_of` with a width of 1).
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Final, TypeVar

from controlplane.domain import rates

# Of one label nothing can be learnt: a narrow population and a narrow selection look the same.
LEAST_LABELS: Final = 2

# Sessions of production after which the bound is sharpest: early, for what is asked for is near 0.
_NUM_EXPECTED: Final = 50

Label = TypeVar("Label", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of a population of inputs, as far as a sample tells."""

    estimate: float | None  # None: there is nothing to estimate it from
    bound: float  # the share is at most this with the confidence that was asked for
    num: int  # sessions that speak
    num_labels: int  # different ones among them


def bin_of(length: int, *, width: int) -> int:
    """The label of a length: the least length of its bin."""
    assert width > 0, f"bins of width {width}"
    return length - length % width


def unseen(counts: Mapping[Label, int], *, alpha: float) -> Share:
    """The share of the sessions yet to come whose label is in none of `counts`.

    Good and Turing's estimate is the share of labels met once. The bound adds what the estimate may
    lie below its mean, sqrt(2 ln(2 / alpha) / n) by McDiarmid's inequality (one session moves it by
    at most 2 / n), and what the unseen share may lie above its own, which is no larger: sqrt(ln(2 /
    alpha) / n). It needs no order, but is wide: 17 % after 720 sessions at best, alpha being 5 %.

    Args:
        counts: sessions by label. They must be drawn as those yet to come are: of a soak with
            lengths that somebody chose, this says how it chose and nothing about production.
        alpha: the bound is below the share with this probability at most, in (0, 1); at one look,
            after a number of sessions fixed beforehand.

    Returns: with fewer than two labels a bound of 1, which is a rule and no inference: there Good
        and Turing would say 0.

    Sources: Good (1953), Biometrika 40:237; McAllester, Schapire (2000), COLT, "On the convergence
    rate of Good-Turing estimators", sharpened by McAllester, Ortiz (2003), JMLR 4:895: the share
    exceeds its mean by e with a probability of at most exp(-n e^2).
    """
    _check_counts(counts)
    assert 0 < alpha < 1, f"alpha {alpha} is outside (0, 1)"
    num = sum(counts.values())
    bound = 1.0
    if num:
        spread = log(2 / alpha) / num
        bound = _estimate(counts) + sqrt(2 * spread) + sqrt(spread)
    return _share(counts, bound=bound)


def unseen_by_halves(labels: Sequence[Label], *, alpha: float) -> Share:
    """The same share, from labels in the order that they came: its bound is far lower.

    What the first half did not meet is a fixed share once that half is known, and each session of
    the second half falls into it with that probability: Clopper and Pearson's bound is exact. All
    sessions together have met at least as much as the first half. 0.83 % after 720 at best.

    Args:
        labels: of sessions drawn as those yet to come are; their order must not depend on them.
        alpha: likewise.

    Returns: with fewer than two labels a bound of 1, as `unseen`.
    """
    counts: dict[Label, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    half = len(labels) // 2
    met = set(labels[:half])
    rest = labels[half:]
    num_new = sum(label not in met for label in rest)
    return _share(counts, bound=rates.upper_bound(num_new, len(rest), alpha=alpha))


def unmet(production: Mapping[Label, int], met: Collection[Label], *, alpha: float) -> Share:
    """The share of production's sessions whose label the canary never met.

    However the canary's sessions were chosen: they only say which labels were met. Labels that
    production's sample did not show either are part of the share, and of the bound. One may look
    after every session, while both sides grow: the bound holds at any, and a canary that
    meets more only ever leaves fewer sessions unmet. (Clopper and Pearson's, looked at so for 1,000
    sessions, falls below a share of 5 % in 23 % of cases instead of 5 %.)

    Args:
        production: sessions by label, of control or of production before; not chosen for their
            labels, and none of them among those that `met` is made of (a session shared by both is
            met by construction, and would make the bound too low).
        met: labels that the canary met.
        alpha: the bound is ever below the share with this probability at most, in (0, 1).

    Returns: without sessions of production no estimate and a bound of 1.
    """
    _check_counts(production)
    num = sum(production.values())
    num_unmet = sum(count for label, count in production.items() if label not in met)
    return Share(
        estimate=num_unmet / num if num else None,
        bound=rates.upper_bound_at_any_look(
            num_unmet, num, alpha=alpha, num_expected=_NUM_EXPECTED
        ),
        num=num,
        num_labels=_num_labels(production),
    )


def _share(counts: Mapping[Label, int], *, bound: float) -> Share:
    num_labels = _num_labels(counts)
    return Share(
        estimate=_estimate(counts) if num_labels >= LEAST_LABELS else None,
        bound=min(bound, 1.0) if num_labels >= LEAST_LABELS else 1.0,
        num=sum(counts.values()),
        num_labels=num_labels,
    )


def _estimate(counts: Mapping[Label, int]) -> float:
    return sum(count == 1 for count in counts.values()) / sum(counts.values())


def _num_labels(counts: Mapping[Label, int]) -> int:
    return sum(count > 0 for count in counts.values())


def _check_counts(counts: Mapping[Label, int]) -> None:
    assert all(count >= 0 for count in counts.values()), "a label was met less than never"
