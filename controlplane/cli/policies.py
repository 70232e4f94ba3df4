"""`steadyframe policy ...`: what a canary must show, as documents."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from controlplane.cli import acting, output
from controlplane.cli.acting import Change
from controlplane.cli.client import Json
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.session import Session, action, query

app = typer.Typer(help="See, check and add policies.")

# As the API: a YAML policy of a few hundred lines.
MAX_DOCUMENT_BYTES: Final = 64 * 1024
PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="A policy in YAML.")]


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
def show(session: Session, policy: Annotated[str, typer.Argument(metavar="POLICY")]) -> None:
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


@query(app, "lint")
def lint(session: Session, file: PolicyFile) -> None:
    """Check a policy without storing it; says which key is wrong and what is allowed."""
    answer = session.client.check("/v1/policies/lint", {"document": _text(file)})
    if session.as_json:
        output.write_json(answer)
        return
    output.say(f"{file}: this policy is sound")
    _write_description(answer)


@action(app, "add")
def add(session: Session, file: PolicyFile) -> None:
    """Store a policy; one of the same name is replaced for canaries that start later."""
    change = Change(
        title=f"add the policy in {file}", path="/v1/policies", body={"document": _text(file)}
    )
    acting.make_and_tell(session, change)


def _write_description(found: Mapping[str, Json]) -> None:
    for sentence in found.get("describes", ()):
        output.console().print(f"  - {sentence}", markup=False)


def _text(file: Path) -> str:
    try:
        content = file.read_bytes()
        if len(content) > MAX_DOCUMENT_BYTES:
            raise CliError(
                f"{file} has over {MAX_DOCUMENT_BYTES} bytes: that is no policy",
                exit_code=Exit.USAGE,
            )
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {file}: {error}", exit_code=Exit.USAGE) from None
