"""`steadyframe policy ...`: what a canary must show, as documents."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from controlplane.cli import acting, advising, linting, names, output
from controlplane.cli.acting import Change
from controlplane.cli.client import Json
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.linting import Findings
from controlplane.cli.session import AsJson, Session, action, interruptible, opened, query
from controlplane.domain import policy_document
from controlplane.domain.rehearsal import Traffic

app = typer.Typer(help="See, check and add policies.")

# As the API: a YAML policy of a few hundred lines.
MAX_DOCUMENT_BYTES: Final = 64 * 1024
PolicyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A policy in YAML.", callback=names.path("FILE"))
]

OfFleet = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        help="Rehearse at this fleet's traffic.",
        callback=names.named("--fleet"),
        show_default=False,
    ),
]
NumWorkers = Annotated[
    int | None,
    typer.Option("--workers", min=2, max=100_000, help="Of one hardware.", show_default=False),
]
SessionsPerDay = Annotated[
    float | None,
    typer.Option(
        "--sessions-per-day", min=1, max=1e8, help="On those workers.", show_default=False
    ),
]
SlowRate = Annotated[
    float, typer.Option("--slow-rate", min=0, max=50, help="Percent of rated sessions.")
]
FailureRate = Annotated[
    float, typer.Option("--failure-rate", min=0, max=50, help="Percent of sessions started.")
]
PolicyName = Annotated[str, typer.Argument(metavar="POLICY", callback=names.named("POLICY"))]


@query(app, "list")
def list_policies(session: Session) -> None:
    """Every policy by name."""
    policies = list(session.client.items("/v1/policies"))
    if session.as_json:
        output.write_json(policies)
        return
    output.write_table(
        ("policy", "for", "summary"),
        [(each["name"], _subject(each), each.get("summary")) for each in policies],
        empty="no policy yet: `steadyframe policy add FILE --reason ...`",
    )


@query(app, "show")
def show(session: Session, policy: PolicyName) -> None:
    """One policy: what it asks, in words; the document itself with --json."""
    found = session.client.get(f"/v1/policies/{policy}")
    if session.as_json:
        output.write_json(found)
        return
    output.write_fields(
        f"policy {found['name']}",
        {"for": _subject(found), "summary": found["summary"], "digest": found["digest"]},
    )
    _write_description(found)


@app.command("lint")
def lint(  # noqa: PLR0913 - one option each
    file: PolicyFile,
    *,
    fleet: OfFleet = None,
    workers: NumWorkers = None,
    sessions_per_day: SessionsPerDay = None,
    slow_rate: SlowRate = 0.7,
    failure_rate: FailureRate = 0.2,
    as_json: AsJson = False,
    context: typer.Context,
) -> None:
    """Check a policy without storing it: every key that is wrong, and what it would do.

    Without a server, but for --fleet, which takes the traffic of that fleet's newest week.
    """
    with interruptible():
        findings = linting.lint(_text(file))
        if findings.policy is None:
            raise _unsound(file, findings)
        served = _stated(workers, sessions_per_day, slow_rate, failure_rate)
        if fleet is not None:
            with opened(context) as session:
                served = advising.traffic_of(session.client, fleet)
        found = advising.answers(findings.policy, served)
    described = policy_document.describe(findings.policy)
    if as_json or context.find_root().params.get("as_json"):
        document = json.loads(findings.policy.document)
        told = {"policy": document, "describes": described}
        output.write_json({**told, **advising.as_json(found, served)})
        return
    output.say(f"{file}: this policy is sound")
    _write_description({"describes": described})
    advising.write(found, served)


@action(app, "add")
def add(session: Session, file: PolicyFile) -> None:
    """Store a policy; one of the same name is replaced for canaries that start later."""
    change = Change(
        title=f"add the policy in {file}", path="/v1/policies", body={"document": _text(file)}
    )
    acting.make_and_tell(session, change)


def _stated(
    workers: int | None, per_day: float | None, slow_percent: float, failure_percent: float
) -> Traffic | None:
    if workers is None and per_day is None:
        return None
    if workers is None or per_day is None:
        raise CliError(
            "--workers and --sessions-per-day go together",
            exit_code=Exit.USAGE,
            next_step="state both, or --fleet",
        )
    return Traffic(
        num_workers=workers,
        sessions_per_day=per_day,
        slow_rate=slow_percent / 100,
        failure_rate=failure_percent / 100,
    )


def _subject(policy: Mapping[str, Json]) -> str:
    """What its canaries are about."""
    return str(policy.get("flag") or "a stack")


def _write_description(found: Mapping[str, Json]) -> None:
    for sentence in found.get("describes", ()):
        output.write_item(sentence)


def _unsound(file: Path, findings: Findings) -> CliError:
    if findings.is_catalogue:
        return CliError(
            f"{file}: this is the catalogue of flags, not a policy",
            exit_code=Exit.REFUSED,
            next_step="name a policy; policies/README.md explains both",
        )
    number = len(findings.problems)
    what = "key is" if number == 1 else "keys are"
    more = "" if findings.is_complete else "; once these are mended there may be more"
    return CliError(
        f"{file} is no sound policy: {number} {what} wrong{more}",
        exit_code=Exit.REFUSED,
        next_step="policies/README.md explains every key",
        detail="\n".join(f"  - {problem}" for problem in findings.problems),
        facts={
            "is_complete": findings.is_complete,
            "problems": [names.facts_of(problem) for problem in findings.problems],
        },
    )


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_DOCUMENT_BYTES + 1)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(
            f"cannot read {file}: {error}",
            exit_code=Exit.USAGE,
            next_step="name a file in UTF-8 that you may read",
        ) from None
    if len(content) > MAX_DOCUMENT_BYTES:
        raise CliError(
            f"{file} has over {MAX_DOCUMENT_BYTES} bytes: that is no policy",
            exit_code=Exit.USAGE,
            next_step="name a policy: the shipped ones have less than 4 KiB",
        )
    return text
