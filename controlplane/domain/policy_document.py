"""Reads a policy from its document, and writes the canonical document that is signed off.

Every word is known or refused: a policy that is half understood would let a canary pass a question
that nobody asked. What the values mean is in `policy.py`; `policies/README.md` explains every key.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Final

from controlplane.domain import absolute_forms, digest, gate_document
from controlplane.domain.document import Table, duration_text, share_text, size_text, table
from controlplane.domain.errors import InvalidValueError, one_of
from controlplane.domain.flag import Applies, Flag
from controlplane.domain.form import LEAST, MOST, MOST_COUNT, MOST_SIZE
from controlplane.domain.policy import (
    HardStop,
    Limits,
    Policy,
    Preflight,
    Step,
    Subject,
    Traffic,
    Workers,
)

FORM_VERSION: Final = 1
POLICY_KEYS: Final = frozenset(
    {
        *("policy", "name", "summary", "subject", "flag", "preflight", "steps", "gates"),
        *("hard_stops", "limits"),
    }
)
PREFLIGHT_KEYS: Final = frozenset({"lengths", "retained_at_most", "rollback_within", "within"})
LENGTHS_KEYS: Final = frozenset({"from", "to", "number"})
STEP_KEYS: Final = frozenset(
    {"name", "workers", "traffic", "arm_share", "bake", "least_sessions", "margin"}
)
LIMIT_KEYS: Final = frozenset(Limits.__dataclass_fields__)

_MAX_STEPS: Final = 20
_MOST_LENGTHS: Final = 64
# At least half of a stratum stays unexposed as control; the ramp to all is promotion, not a step.
_MOST_WORKERS_SHARE: Final = Fraction(1, 2)
_MOST_MARGIN: Final = Fraction(1, 2)  # a difference of two rates


def parse(document: object, *, catalogue: Sequence[Flag]) -> Policy:
    """The policy that a loaded document states, with every default filled in.

    Raises:
        InvalidValueError: a key, word, unit, type or range is not allowed; named by its full path.
    """
    root = table(document, path="", allowed=POLICY_KEYS)
    root.whole("policy", least=FORM_VERSION, most=FORM_VERSION)
    flag = _flag(root, catalogue)
    gates = gate_document.read(root)
    policy = Policy(
        name=root.name("name"),
        summary=root.text("summary"),
        flag=flag.name if flag else None,
        steps=_steps(root, flag=flag, has_margins=gates.non_inferiority is not None),
        gates=gates,
        hard_stops=_hard_stops(root),
        limits=_limits(root),
        preflight=_preflight(root, flag=flag),
        document="",
        digest="",
    )
    canonical = _canonical_document(policy)
    return replace(policy, document=digest.canonical(canonical), digest=digest.digest(canonical))


def describe(policy: Policy) -> list[str]:
    """What `policy` asks, in words, a line for each question; what it does not ask is said too."""
    mild = set(HardStop) - policy.hard_stops
    limits = policy.limits
    bounds = (
        f"held after {duration_text(limits.hold_after)} without a measurement, or "
        f"{duration_text(limits.decide_within)} in one step without passing; lease "
        f"{duration_text(limits.lease)}; quarantine after {duration_text(limits.contain_within)}"
    )
    return [
        f"policy {policy.name} ({policy.digest[:12]}) for {_subject(policy)}: {policy.summary}",
        *(_step_text(step, number=number) for number, step in enumerate(policy.steps, start=1)),
        *(f"gate {gate}: {words}" for gate, words in gate_document.words(policy.gates).items()),
        f"preflight: {_preflight_text(policy.preflight)}",
        f"rolls back at the first: {one_of(policy.hard_stops)}",
        *([f"does not roll back at the first: {one_of(mild)}"] if mild else []),
        bounds,
    ]


def _subject(policy: Policy) -> str:
    if policy.flag is not None:
        return f"flag {policy.flag}"
    return "a new stack, compared with the old one under the same variants"


def _preflight_text(preflight: Preflight | None) -> str:
    if preflight is None:
        return "not asked"
    return (
        f"one worker without viewers runs {preflight.num_lengths} first-forward lengths from "
        f"{preflight.least_length} to {preflight.most_length}: at most "
        f"{size_text(preflight.retained_at_most)} kept for each, back on the fallback within "
        f"{duration_text(preflight.rollback_within)}; held without a result within "
        f"{duration_text(preflight.within)}"
    )


def _step_text(step: Step, *, number: int) -> str:
    workers = step.workers
    exposed = str(workers.number) if workers.share is None else share_text(workers.share)
    return (
        f"step {number}, {step.name}: {exposed} of the workers, {share_text(step.arm_share)} of"
        f" their {step.traffic} sessions; {duration_text(step.bake)} under fresh evidence and at"
        f" least {step.least_sessions} ended sessions"
        + (f"; margin {share_text(step.margin)}" if step.margin is not None else "")
    )


def _canonical_document(policy: Policy) -> dict[str, object]:
    """Everything the policy states, defaults included, each value in its one spelling."""
    limits = policy.limits
    return {
        "policy": FORM_VERSION,
        "name": policy.name,
        "summary": policy.summary,
        # Only where it is not what every policy was for before: the digests of those stay.
        **({"subject": Subject.STACK.value} if policy.flag is None else {"flag": policy.flag}),
        **({"preflight": _preflight_document(policy.preflight)} if policy.preflight else {}),
        "steps": [_step_document(step) for step in policy.steps],
        "gates": gate_document.written(policy.gates),
        "hard_stops": sorted(policy.hard_stops),
        "limits": {
            name: duration_text(value) if isinstance(value, timedelta) else value
            for name in LIMIT_KEYS
            for value in [getattr(limits, name)]
        },
    }


def _preflight_document(preflight: Preflight) -> dict[str, object]:
    return {
        "lengths": {
            "from": preflight.least_length,
            "to": preflight.most_length,
            "number": preflight.num_lengths,
        },
        "retained_at_most": size_text(preflight.retained_at_most),
        "rollback_within": duration_text(preflight.rollback_within),
        "within": duration_text(preflight.within),
    }


def _step_document(step: Step) -> dict[str, object]:
    workers = step.workers
    return {
        "name": step.name,
        "workers": workers.number if workers.share is None else share_text(workers.share),
        "traffic": step.traffic,
        "arm_share": share_text(step.arm_share),
        "bake": duration_text(step.bake),
        "least_sessions": step.least_sessions,
        **({} if step.margin is None else {"margin": share_text(step.margin)}),
    }


def _flag(root: Table, catalogue: Sequence[Flag]) -> Flag | None:
    """The flag that the policy is for; None: it is for a stack."""
    if root.word("subject", list(Subject), default=Subject.FLAG) == Subject.STACK:
        if "flag" in root:
            sentence = "no flag: with subject stack every flag runs the same in both"
            raise root.refusal("flag", allowed=sentence)
        return None
    name = root.word("flag", [flag.name for flag in catalogue])
    return next(flag for flag in catalogue if flag.name == name)


def _steps(root: Table, *, flag: Flag | None, has_margins: bool) -> tuple[Step, ...]:
    steps: list[Step] = []
    for path, item in root.items("steps", most=_MAX_STEPS):
        fields = table(item, path=path, allowed=STEP_KEYS)
        step = replace(_step(fields), margin=_margin(fields, steps, is_asked=has_margins))
        if step.name in [earlier.name for earlier in steps]:
            raise fields.refusal("name", allowed="a name that no earlier step has")
        if step.arm_share != 1 and (flag is None or flag.applies is Applies.RESTART):
            why = f"{flag.name} changes at a restart" if flag else "a worker runs on one stack"
            sentence = f"100%: {why}, so a whole worker is one arm"
            raise fields.refusal("arm_share", allowed=sentence)
        steps.append(step)
    if has_margins and steps[-1].margin is None:
        # The last step is what promotes.
        sentence = f"a percentage of at most {share_text(_MOST_MARGIN)}, with non_inferiority"
        raise InvalidValueError(f"steps[{len(steps) - 1}].margin", None, allowed=sentence)
    return tuple(steps)


def _step(fields: Table) -> Step:
    return Step(
        name=fields.name("name"),
        workers=_workers(fields),
        bake=fields.duration("bake", least=LEAST, most=MOST),
        least_sessions=fields.whole("least_sessions", least=1, most=MOST_COUNT),
        traffic=Traffic(fields.word("traffic", list(Traffic), default=Traffic.LIVE)),
        arm_share=float(fields.share("arm_share", most=Fraction(1), default=Fraction(1))),
    )


def _margin(fields: Table, earlier: Sequence[Step], *, is_asked: bool) -> float | None:
    """The step's margin: a later step rules out at least what an earlier one did."""
    if not is_asked:
        if "margin" in fields:
            raise fields.refusal("margin", allowed="a margin where non_inferiority is asked")
        return None
    if "margin" not in fields:
        return None
    margin = float(fields.share("margin", most=_MOST_MARGIN))
    before = next((step.margin for step in reversed(earlier) if step.margin is not None), margin)
    if margin > before:
        allowed = f"at most {share_text(before)}, the margin of a step before"
        raise fields.refusal("margin", allowed=allowed)
    return margin


def _workers(fields: Table) -> Workers:
    value = fields.fields.get("workers")
    if isinstance(value, str):
        return Workers(share=fields.share("workers", most=_MOST_WORKERS_SHARE))
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_COUNT:
        return Workers(number=value)
    most = share_text(_MOST_WORKERS_SHARE)
    sentence = f"a number from 1 to {MOST_COUNT}, or a percentage of at most {most} such as 25%"
    raise fields.refusal("workers", allowed=sentence)


def _preflight(root: Table, *, flag: Flag | None) -> Preflight | None:
    if "preflight" not in root:
        return None
    if flag is None:
        raise root.refusal("preflight", allowed="no preflight: a stack canary has none")
    fields = root.table("preflight", allowed=PREFLIGHT_KEYS)
    lengths = fields.table("lengths", allowed=LENGTHS_KEYS)
    least, most = absolute_forms.domain(lengths)
    preflight = Preflight(
        least_length=least,
        most_length=most,
        num_lengths=lengths.whole("number", least=2, most=min(_MOST_LENGTHS, most - least + 1)),
        retained_at_most=fields.size("retained_at_most", most=MOST_SIZE),
        rollback_within=fields.duration("rollback_within", least=LEAST, most=MOST),
        within=fields.duration("within", least=LEAST, most=MOST),
    )
    if preflight.within <= preflight.rollback_within:
        bound = duration_text(preflight.rollback_within)
        raise fields.refusal("within", allowed=f"a duration above rollback_within, {bound}")
    return preflight


def _hard_stops(root: Table) -> frozenset[HardStop]:
    if "hard_stops" not in root:
        return frozenset(HardStop)
    stops: set[HardStop] = set()
    for path, item in root.items("hard_stops", most=len(HardStop)):
        if not isinstance(item, str) or item not in list(HardStop) or item in stops:
            raise InvalidValueError(path, item, allowed=f"each of {one_of(HardStop)} once")
        stops.add(HardStop(item))
    return frozenset(stops)


def _limits(root: Table) -> Limits:
    if "limits" not in root:
        return Limits()
    fields = root.table("limits", allowed=LIMIT_KEYS)
    defaults = Limits()

    def duration(name: str, default: timedelta) -> timedelta:
        return fields.duration(name, least=LEAST, most=MOST, default=default)

    return Limits(
        start_by=duration("start_by", defaults.start_by),
        hold_after=duration("hold_after", defaults.hold_after),
        decide_within=duration("decide_within", defaults.decide_within),
        lease=duration("lease", defaults.lease),
        outcome_horizon=duration("outcome_horizon", defaults.outcome_horizon),
        block=duration("block", defaults.block),
        contain_within=duration("contain_within", defaults.contain_within),
        max_flips_per_minute=fields.whole(
            "max_flips_per_minute",
            least=1,
            most=MOST_COUNT,
            default=defaults.max_flips_per_minute,
        ),
    )
