"""`steadyframe qualification ...`: what is on record about variants, attested and revoked."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from controlplane.cli import acting, names, output
from controlplane.cli.acting import Change
from controlplane.cli.client import Json
from controlplane.cli.fleets import FleetName
from controlplane.cli.session import Session, action, query
from controlplane.cli.workers import FlagName, VariantName

app = typer.Typer(help="See which variants are proven on which hardware and stack, or say so.")

EVERY_FLEET: Final = "every fleet"
Number = Annotated[
    int, typer.Argument(metavar="NUMBER", min=1, help="Of the record, as `list` shows it.")
]


@query(app, "list")
def list_qualifications(
    session: Session,
    fleet: Annotated[
        str | None,
        typer.Argument(
            metavar="[FLEET]",
            help="Only what counts for the workers of this fleet.",
            callback=names.named("FLEET"),
            show_default=False,
        ),
    ] = None,
) -> None:
    """Records that count now: what is qualified, what is disqualified, and why."""
    records = list(session.client.items("/v1/qualifications", fleet=fleet))
    if session.as_json:
        output.write_json(records)
        return
    flags = {record["flag"] for record in records}
    # One flag is named once, above all of its variants: otherwise the rows are too wide.
    is_one = len(flags) == 1
    output.write_table(
        (
            *("no", "standing"),
            f"variant of {output.cell(*flags)}" if is_one else "flag variant",
            *("hardware", "stack", "by"),
        ),
        [
            (
                record["number"],
                record["standing"],
                record["variant"] if is_one else f"{record['flag']} {record['variant']}",
                record["hardware"],
                output.short(record["stack"]),
                _by(record),
            )
            for record in records
        ],
        empty="nothing is on record yet: it is when a canary has passed or failed",
    )


@query(app, "show")
def show(session: Session, number: Number) -> None:
    """One record with what it rests on, and the history of that variant, hardware and stack."""
    found = session.client.get(f"/v1/qualifications/{number}")
    if session.as_json:
        output.write_json(found)
        return
    basis = found.get("basis") or {}
    output.write_fields(
        f"qualification {found['number']}",
        {
            "standing": _standing(found),
            "variant": f"{found['flag']}={found['variant']}",
            "hardware": found["hardware"],
            "stack": found["stack"],
            "holds in": found.get("fleet") or EVERY_FLEET,
            "came by": f"{found['origin']} {found.get('canary') or ''}".strip(),
            "decision": found.get("decision"),
            "evidence": found.get("evidence_digest"),
            "slow": _counted(basis.get("num_slow"), basis.get("num_rated")),
            "failed": _counted(basis.get("num_failed"), basis.get("num_sessions")),
            "said by": found["actor"],
            "because": found["reason"],
            "at": output.time_of(found["created_at"]),
            **_revocation(found),
        },
    )
    output.write_line("\nhistory", style="bold")
    for record in found.get("history", []):
        said = f"{record['number']} {_standing(record)} by {_by(record)}"
        output.write_item(f"{said}, {output.time_of(record['created_at'])}: {record['reason']}")


@action(app, "attest")
def attest(
    session: Session,
    fleet: FleetName,
    flag: FlagName,
    variant: VariantName,
    *,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            help="Only on this.",
            callback=names.named("--hardware"),
            show_default=False,
        ),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack", help="Only on this.", callback=names.named("--stack"), show_default=False
        ),
    ] = None,
) -> None:
    """Say, without a canary, that a fleet does well with the VARIANT that it runs."""
    body: dict[str, Json] = {"flag": flag, "variant": variant}
    if hardware:
        body["hardware"] = hardware
    if stack:
        body["stack"] = stack
    title = f"attest {flag}={variant} for fleet {fleet}"
    acting.make_and_tell(
        session, Change(title=title, path=f"/v1/fleets/{fleet}/attestations", body=body)
    )


@action(app, "revoke")
def revoke(session: Session, number: Number) -> None:
    """Take a qualification back: where it is promoted, workers go to their fallback."""
    acting.make_and_tell(
        session,
        Change(title=f"revoke qualification {number}", path=f"/v1/qualifications/{number}/revoke"),
    )


def _by(record: Mapping[str, Json]) -> str:
    return str(record.get("canary") or f"{record['actor']}, for {record.get('fleet')}")


def _standing(record: Mapping[str, Json]) -> str:
    if record.get("revoked_at"):
        return f"{record['standing']}, revoked"
    standing = str(record["standing"])
    return standing if record.get("is_current") else f"{standing}, superseded"


def _revocation(record: Mapping[str, Json]) -> Mapping[str, object]:
    if not record.get("revoked_at"):
        return {}
    by = record.get("revoked_by") or "somebody"
    at = output.time_of(record["revoked_at"])
    return {"revoked": f"{at} by {by}: {record.get('revoked_reason')}"}


def _counted(num_bad: Json, num: Json) -> str:
    """A rate with what it is of; nothing counted is no rate."""
    if not isinstance(num, int) or not isinstance(num_bad, int) or num == 0:
        return output.MISSING
    return f"{num_bad} of {num} ({num_bad / num:.2%})"
