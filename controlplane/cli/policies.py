"""`steadyframe policy ...`: what a canary must show, as documents."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from controlplane.cli import acting, linting, names, output
from controlplane.cli.acting import Change
from controlplane.cli.client import Json
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.linting import Findings
from controlplane.cli.session import AsJson, Session, action, interruptible, query
from controlplane.domain import policy_document

app = typer.Typer(help="See, check and add policies.")

# As the API: a YAML policy of a few hundred lines.
MAX_DOCUMENT_BYTES: Final = 64 * 1024
PolicyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A policy in YAML.", callback=names.path("FILE"))
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
        ("policy", "flag", "summary"),
        [(each["name"], each.get("flag"), each.get("summary")) for each in policies],
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
        {"flag": found["flag"], "summary": found["summary"], "digest": found["digest"]},
    )
    _write_description(found)


@app.command("lint")
def lint(file: PolicyFile, *, as_json: AsJson = False, context: typer.Context) -> None:
    """Check a policy without storing it, and without a server: every key that is wrong."""
    with interruptible():
        findings = linting.lint(_text(file))
    if findings.policy is None:
        raise _unsound(file, findings)
    described = policy_document.describe(findings.policy)
    if as_json or context.find_root().params.get("as_json"):
        document = json.loads(findings.policy.document)
        output.write_json({"policy": document, "describes": described})
        return
    output.say(f"{file}: this policy is sound")
    _write_description({"describes": described})


@action(app, "add")
def add(session: Session, file: PolicyFile) -> None:
    """Store a policy; one of the same name is replaced for canaries that start later."""
    change = Change(
        title=f"add the policy in {file}", path="/v1/policies", body={"document": _text(file)}
    )
    acting.make_and_tell(session, change)


def _write_description(found: Mapping[str, Json]) -> None:
    for sentence in found.get("describes", ()):
        output.write_item(sentence)


def _unsound(file: Path, findings: Findings) -> CliError:
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
