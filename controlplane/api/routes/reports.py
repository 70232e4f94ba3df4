"""How fleets did, week by week."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from controlplane.api import auth, views
from controlplane.api.context import Here
from controlplane.api.schemas import DayQuery, NameQuery
from controlplane.domain import weeks
from controlplane.services import weekly
from controlplane.services.weekly import Asked, Report

router = APIRouter(prefix="/v1/reports", tags=["reports"])


def _weekly(
    here: Here,
    principal: auth.Viewer,
    fleet: NameQuery = None,
    anchor: DayQuery = None,
    since: Annotated[DayQuery, Query(alias="from")] = None,
    until: Annotated[DayQuery, Query(alias="to")] = None,
) -> Report:
    auth.check_fleet(principal, fleet)
    asked = Asked(
        fleet=fleet or principal.fleet,
        anchor=weeks.day_of(anchor, key="anchor") if anchor else None,
        since=weeks.day_of(since, key="from") if since else None,
        until=weeks.day_of(until, key="to") if until else None,
    )
    with here.database.read() as conn:
        return weekly.weekly(conn, asked, now=here.clock.now())


Weekly = Annotated[Report, Depends(_weekly)]


@router.get("/weekly")
def weekly_report(report: Weekly) -> Any:
    """Slow, very slow and failed sessions by week, fleet, stratum and variants; never added.

    Weeks are ISO weeks, or weeks of seven days counted from `anchor`; those that `from` and `to`
    are in are shown whole. `totals` has one line a week and fleet, without synthetic sessions.
    """
    return {
        **views.whole(report.rows),
        "totals": views.plain(report.totals),
        "anchor": views.plain(report.anchor),
        "from": views.plain(report.since),
        "to": views.plain(report.until),
    }


@router.get("/weekly.csv", response_class=Response)
def weekly_csv(report: Weekly) -> Response:
    """The same rows as a table, RFC 4180 in UTF-8, no cell of which is a formula."""
    name = f"weekly-{report.since}-{report.until}.csv"
    return Response(
        weekly.as_csv(report),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
