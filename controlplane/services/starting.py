"""Whether a canary may begin, found out before anybody waits for it, and what it will do."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from controlplane.domain import canary as canary_domain
from controlplane.domain import flag as flags
from controlplane.domain import fleet as fleets
from controlplane.domain import ledger, policy_document
from controlplane.domain.canary import Canary
from controlplane.domain.desired import Qualification
from controlplane.domain.document import duration_text
from controlplane.domain.errors import ConflictError, InvalidValueError, one_of
from controlplane.domain.flag import Flag, Variant
from controlplane.domain.fleet import Fleet, Mode, Worker
from controlplane.domain.ledger import Record, Standing
from controlplane.domain.policy import Policy, Traffic
from controlplane.services import policies
from controlplane.store import canaries as canary_store
from controlplane.store import flags as flag_store
from controlplane.store import fleets as fleet_store
from controlplane.store import policies as policy_store
from controlplane.store import qualifications as qualification_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection

# One worker to expose and one to compare with.
LEAST_WORKERS = 2
_MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A canary that may begin."""

    fleet: Fleet
    flag: Flag | None  # None, as the next two: a stack is to be proven
    variant: Variant | None
    baseline: str | None
    hardware: str
    stack: str
    eligible: tuple[str, ...]  # names
    ahead: tuple[str, ...]  # live canaries of the same fleet and hardware, which come first
    attempt: int  # 1 + how often the variant was compared there and not promoted
    barred_by: Record | None  # the record that disqualifies it there: only an admin may try again
    old_stack: str | None = None  # that a new stack is compared with
    variants: Mapping[str, str] = field(default_factory=dict)  # that both stacks are to run


def checked(
    conn: Connection, *, fleet: str, flag: str, variant: str, hardware: str | None, now: datetime
) -> Start:
    """What would begin.

    Raises:
        NotFoundError: no such fleet or flag.
        InvalidValueError: a variant or hardware that is not there; says which are.
        ConflictError: the fleet is not in a state to run it; says what to do.
    """
    its_fleet = fleet_store.get(conn, fleet)
    its_flag = flags.require(flag_store.catalogue(conn), flag)
    its_variant = its_flag.variant(variant)
    check_state(its_fleet)
    workers = worker_store.in_fleet(conn, fleet=fleet)
    its_hardware = hardware_of(workers, hardware, fleet=fleet)
    eligible = [
        worker
        for worker in workers
        if worker.hardware == its_hardware
        and fleets.is_eligible(worker, variants={flag: variant}, now=now)
    ]
    stack = _stack(eligible, workers, hardware=its_hardware, what=f"{flag}={variant}")
    baseline = baseline_of(conn, its_fleet, its_flag, hardware=its_hardware, stack=stack)
    _check_new(baseline, variant=variant, fleet=fleet)
    records = qualification_store.of_subject(
        conn, Qualification(flag=flag, variant=variant, hardware=its_hardware, stack=stack)
    )
    live = [
        one for one in canary_store.live(conn) if (one.fleet, one.hardware) == (fleet, its_hardware)
    ]
    _check_not_live(live, flag=flag, variant=variant)
    return Start(
        fleet=its_fleet,
        flag=its_flag,
        variant=its_variant,
        baseline=baseline,
        hardware=its_hardware,
        stack=stack,
        eligible=tuple(worker.name for worker in eligible if worker.stack == stack),
        ahead=tuple(one.name for one in live),
        attempt=max(
            ledger.attempt(records),
            1
            + canary_store.num_compared(
                conn, flag=flag, variant=variant, hardware=its_hardware, stack=stack
            ),
        ),
        barred_by=disqualifying(records, fleet=fleet),
    )


def policy_for(conn: Connection, name: str, *, flag: Flag | None) -> Policy:
    """The newest policy of that name, if it is for `flag`, or for a stack if that is None.

    Raises:
        NotFoundError: no policy of that name.
        InvalidValueError: it is for another flag; says which are for this one.
    """
    policy = policies.latest(conn, name)
    wanted = flag.name if flag else None
    if policy.flag != wanted:
        fitting = [one.name for one in policy_store.list_latest(conn) if one.flag == wanted]
        none = f"none for {wanted or 'a stack'}: no such policy has been added"
        raise InvalidValueError("policy", name, allowed=one_of(fitting) if fitting else none)
    return policy


def effects(found: Start, policy: Policy, name: str) -> tuple[str, ...]:
    """What beginning it does, in words."""
    turn = (
        f"{name} waits for {', '.join(found.ahead)}; it is cancelled if it has not begun within"
        f" {duration_text(policy.limits.start_by)}"
        if found.ahead
        else f"{name} begins at the next tick"
    )
    return (
        _compared(found, name),
        turn,
        *_unattended(policy),
        *_again(found),
        *_ending(found),
        *policy_document.describe(policy),
    )


def _compared(found: Start, name: str) -> str:
    if found.flag is None or found.variant is None:
        runs = ", ".join(f"{flag}={variant}" for flag, variant in sorted(found.variants.items()))
        return (
            f"{name} compares stack {found.stack} with {found.old_stack} on {found.hardware}, both"
            f" with {runs}: workers of the new stack may be exposed ({_named(found.eligible)}),"
            " never more than there are controls on the old one"
        )
    return (
        f"{name} compares {found.flag.name}={found.variant.name} with {found.baseline} on"
        f" {found.hardware}, stack {found.stack}: {len(found.eligible)} workers may take part,"
        " at most half are exposed"
    )


def _ending(found: Start) -> tuple[str, ...]:
    """What becomes of it in the end, where that is not what becomes of most."""
    if found.variant is None:
        return (
            (
                "no worker of the old stack is told anything; one of the new that is out of service"
                " is exposed only once somebody uncordons it"
            ),
            "if it passes, all of that counts as qualified there; nothing else is promoted",
        )
    if found.variant.is_canary_only:
        return (f"{found.variant.name} exists to be caught: it is never promoted",)
    return ()


def _named(names: Sequence[str]) -> str:
    few = ", ".join(names[:_MOST_NAMED])
    return few if len(names) <= _MOST_NAMED else f"{few} and {len(names) - _MOST_NAMED} more"


def _unattended(policy: Policy) -> tuple[str, ...]:
    """That a step waits for sessions which nobody's viewers bring, and how to bring them."""
    numbers = [
        f"{number} ({step.name})"
        for number, step in enumerate(policy.steps, start=1)
        if step.traffic is Traffic.SYNTHETIC
    ]
    if not numbers:
        return ()
    noun = "step" if len(numbers) == 1 else "steps"
    sentence = (
        f"{noun} {', '.join(numbers)} of policy {policy.name}: judged by synthetic sessions alone,"
        f" which nothing brings by itself; it waits for them and is held after"
        f" {duration_text(policy.limits.hold_after)} without. Bring them to each exposed worker, at"
        " the address that `steadyframe worker show` has: `python -m worker.viewer --url ADDRESS"
        " --sessions NUMBER --lengths 8,40,128`"
    )
    return (sentence,)


def _again(found: Start) -> tuple[str, ...]:
    if found.attempt == 1:
        return ()
    what = found.variant.name if found.variant else "one of those variants"
    failed = f"; disqualified there by {found.barred_by.canary}" if found.barred_by else ""
    return (f"it is attempt {found.attempt} of {what} on that hardware and stack{failed}",)


def disqualifying(records: Sequence[Record], *, fleet: str) -> Record | None:
    """The record that keeps all but admins from trying it again, if one does."""
    record = ledger.current(records, fleet=fleet)
    return record if record and record.standing is Standing.DISQUALIFIED else None


def check_state(fleet: Fleet) -> None:
    """Refuse a fleet that flips nothing. Raises: ConflictError: says what to do."""
    if fleet.mode is not Mode.ENFORCE:
        raise ConflictError(
            f"fleet {fleet.name} only observes, so nothing can be flipped: set its mode to enforce"
        )
    if fleet.stopped_reason is not None:
        raise ConflictError(
            f"the line of fleet {fleet.name} is stopped ({fleet.stopped_reason}): lift it first"
        )


def hardware_of(workers: Sequence[Worker], asked: str | None, *, fleet: str) -> str:
    """The hardware that is meant. Raises: ConflictError, InvalidValueError: says which there is."""
    there = sorted({worker.hardware for worker in workers})
    if not there:
        raise ConflictError(f"no worker has registered in fleet {fleet}: start some first")
    if asked is None and len(there) == 1:
        return there[0]
    if asked not in there:
        raise InvalidValueError("hardware", asked, allowed=one_of(there))
    return asked


def _stack(
    eligible: Sequence[Worker], workers: Sequence[Worker], *, hardware: str, what: str
) -> str:
    """The stack with most eligible workers: only workers of one stack can be compared."""
    counted = Counter(worker.stack for worker in eligible)
    stack, num_eligible = min(counted.items(), key=lambda one: (-one[1], one[0]), default=("", 0))
    if num_eligible < LEAST_WORKERS:
        num_there = sum(worker.hardware == hardware for worker in workers)
        raise ConflictError(
            f"{num_eligible} of {num_there} workers on {hardware} may take part in a canary of"
            f" {what}: without {LEAST_WORKERS} of one stack that know it, are reachable,"
            " run what they are told and are not pinned, tripped or cordoned, there is no control"
            " to compare with"
        )
    return stack


def baseline_of(conn: Connection, fleet: Fleet, flag: Flag, *, hardware: str, stack: str) -> str:
    """What runs there now: what is promoted, if it is qualified there, else the fallback."""
    promoted = fleet.promoted.get(flag.name)
    if promoted is None:
        return flag.fallback_on(hardware)
    subject = Qualification(flag=flag.name, variant=promoted, hardware=hardware, stack=stack)
    standing = qualification_store.standings(conn, fleet=fleet.name).get(subject)
    # Neither what was never proven there nor what failed there is a measure for anything.
    return promoted if standing is Standing.QUALIFIED else flag.fallback_on(hardware)


def _check_new(baseline: str, *, variant: str, fleet: str) -> None:
    if variant == baseline:
        raise ConflictError(f"{variant} is what {fleet} runs already")


def _check_not_live(live: Sequence[Canary], *, flag: str, variant: str) -> None:
    for one in live:
        if (one.flag, one.variant) == (flag, variant):
            assert one.phase not in canary_domain.TERMINAL, "the store lists live ones"
            raise ConflictError(f"{one.name} tests {flag}={variant} there already: {one.phase}")
