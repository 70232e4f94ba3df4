"""What `policy lint` says a policy would do: at a fleet's traffic, or at one that is stated."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from controlplane import assets
from controlplane.cli import output
from controlplane.cli.client import Client, Json
from controlplane.cli.exits import CliError, Exit
from controlplane.domain import advice
from controlplane.domain import flag as flags
from controlplane.domain.advice import Answer, Weight
from controlplane.domain.policy import Policy
from controlplane.domain.rehearsal import Traffic
from controlplane.services.documents import load_yaml

# The same policy is told the same twice.
_SEED: Final = 20261130
_DAYS: Final = 7
_MARKS: Final = {Weight.TOLD: "", Weight.WARNING: "warning: ", Weight.NEVER: "never: "}


def answers(policy: Policy, served: Traffic | None) -> tuple[Answer, ...]:
    """What there is to know of `policy`, by the catalogue that comes with Steadyframe."""
    catalogue = flags.parse_catalogue(load_yaml((assets.policies() / "flags.yaml").read_text()))
    draw = random.Random(_SEED).random  # noqa: S311 - a rehearsal, not a secret
    flag = flags.require(catalogue, policy.flag) if policy.flag is not None else None
    return advice.answers(policy, flag=flag, served=served, draw=draw)


def traffic_of(client: Client, fleet: str) -> Traffic:
    """What `fleet` served in the newest week with sessions.

    Raises:
        CliError: it has no worker, or no session that was rated.
    """
    workers = list(client.items(f"/v1/fleets/{fleet}/workers"))
    totals = client.get("/v1/reports/weekly", fleet=fleet).get("totals", [])
    rated = [week for week in totals if week["num_rated"]]
    if not workers or not rated:
        raise CliError(
            f"{fleet} has {len(workers)} workers and {len(rated)} weeks with sessions",
            exit_code=Exit.REFUSED,
            next_step="state the traffic: --workers, --sessions-per-day, --slow-rate",
        )
    week = max(rated, key=lambda one: str(one["starts_on"]))
    return Traffic(
        num_workers=len(workers),
        sessions_per_day=week["num_sessions"] / _DAYS,
        slow_rate=week["num_slow"] / week["num_rated"],
        failure_rate=week["num_failed"] / week["num_sessions"],
    )


def as_json(found: Sequence[Answer], served: Traffic | None) -> Mapping[str, Json]:
    """The answers for a script."""
    return {
        "answers": [asdict(answer) for answer in found],
        "traffic": asdict(served) if served else None,
    }


def write(found: Sequence[Answer], served: Traffic | None) -> None:
    """The answers for a reader, what can never happen first."""
    at = "at any traffic; state yours with --fleet, or --workers and --sessions-per-day"
    if served is not None:
        at = (
            f"at {served.num_workers} workers and {served.sessions_per_day:.0f} sessions a day,"
            f" {served.slow_rate:.2%} slow, {served.failure_rate:.2%} failed"
        )
    output.say_wrapped(f"what it would do, {at}:", rest="  ")
    for weight in reversed(Weight):
        for answer in found:
            if answer.weight is weight:
                output.write_item(f"{_MARKS[weight]}{answer.text}")
