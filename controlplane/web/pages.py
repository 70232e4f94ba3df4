"""The pages: read in one transaction, put into words, rendered. Nothing here changes anything."""

from datetime import date

from fastapi import APIRouter, Request, Response

from controlplane.api import auth
from controlplane.api.context import Context, Here
from controlplane.api.schemas import CanaryPath, Cursor, NamePath, NameQuery
from controlplane.services import canaries, fleets, pages, weekly
from controlplane.services.tokens import Principal
from controlplane.web import guard, preview, rendering
from controlplane.web.present import canary as canary_view
from controlplane.web.present import fleet as fleet_view
from controlplane.web.present import weekly as weekly_view
from controlplane.web.present import worker as worker_view

router = APIRouter(tags=["pages"], include_in_schema=False, route_class=guard.PageRoute)
NUM_SHOWN = 50
NUM_DECISIONS = 20
NO_CONTENT = 204


@router.get("/")
def show_fleets(request: Request, here: Here, viewer: guard.Viewer) -> Response:
    """Every fleet that the session may see."""
    with here.database.read() as conn:
        found = [one for one in fleets.list_all(conn) if viewer.fleet in (None, one.name)]
    now = here.clock.now()
    cards = [fleet_view.card(one, now=now) for one in found]
    return rendering.page(request, "fleets.html", viewer=viewer, cards=cards)


@router.get("/fleets/{fleet}")
def show_fleet(fleet: NamePath, request: Request, here: Here, viewer: guard.Viewer) -> Response:
    """One fleet, a tile a worker."""
    now = here.clock.now()
    with here.database.read() as conn:
        view = fleet_view.view(pages.fleet(conn, fleet), now=now)
    return rendering.page(request, "fleet.html", viewer=viewer, view=view)


@router.get("/fleets/{fleet}/workers/{worker}")
def show_worker(
    fleet: NamePath, worker: NamePath, request: Request, here: Here, viewer: guard.Viewer
) -> Response:
    """One worker."""
    now = here.clock.now()
    with here.database.read() as conn:
        view = worker_view.view(pages.worker(conn, fleet, worker, now=now), now=now)
    return rendering.page(request, "worker.html", viewer=viewer, view=view)


@router.get("/fleets/{fleet}/workers/{worker}/preview.jpg")
async def show_frame(
    fleet: NamePath, worker: NamePath, request: Request, here: Here, _: guard.Viewer
) -> Response:
    """The newest frame of the worker's session, fetched from the worker."""
    address = await preview.address_of(here, fleet, worker)
    try:
        frame = await preview.fetch(address, networks=here.settings.preview_networks)
    except preview.NoFrameError:
        if not guard.is_for_image(request):
            raise
        # Not a fault of the page that asks: it says that there is none.
        return Response(status_code=NO_CONTENT, headers=rendering.HEADERS)
    return Response(frame, media_type=preview.JPEG, headers=rendering.HEADERS)


@router.get("/canaries")
def show_canaries(
    request: Request,
    here: Here,
    viewer: guard.Viewer,
    fleet: NameQuery = None,
    cursor: Cursor = None,
) -> Response:
    """Canaries, newest first."""
    auth.check_fleet(viewer, fleet)
    now = here.clock.now()
    with here.database.read() as conn:
        found = canaries.list_page(
            conn, fleet=fleet or viewer.fleet, after=cursor, limit=NUM_SHOWN + 1
        )
        is_sample = any(one.is_sample for one in fleets.list_all(conn) if one.name == fleet)
    rows = [canary_view.row(one, now=now) for one in found[:NUM_SHOWN]]
    further = str(found[NUM_SHOWN - 1]["id"]) if len(found) > NUM_SHOWN else None
    return rendering.page(
        request,
        "canaries.html",
        viewer=viewer,
        rows=rows,
        fleet=fleet,
        is_sample=is_sample,
        further=further,
    )


@router.get("/canaries/{name}")
def show_canary(name: CanaryPath, request: Request, here: Here, viewer: guard.Viewer) -> Response:
    """One canary: safe or not, and why."""
    _check_fleet_of(here, viewer, name)
    now = here.clock.now()
    with here.database.read() as conn:
        view = canary_view.view(pages.canary(conn, name, now=now), now=now)
    return rendering.page(request, "canary.html", viewer=viewer, view=view)


@router.get("/canaries/{name}/decisions")
def show_decisions(
    name: CanaryPath,
    request: Request,
    here: Here,
    viewer: guard.Viewer,
    cursor: Cursor = None,
) -> Response:
    """Judgements of a canary that were recorded, newest first."""
    _check_fleet_of(here, viewer, name)
    with here.database.read() as conn:
        found = canaries.decisions(conn, name, after=cursor, limit=NUM_DECISIONS + 1)
    shown = [canary_view.decision(one) for one in found[:NUM_DECISIONS]]
    further = shown[-1].id if len(found) > NUM_DECISIONS else None
    return rendering.page(
        request, "decisions.html", viewer=viewer, name=name, decisions=shown, further=further
    )


@router.get("/reports/weekly")
def show_weekly(
    request: Request,
    here: Here,
    viewer: guard.Viewer,
    fleet: NameQuery = None,
    anchor: date | None = None,
) -> Response:
    """Slow and failed sessions by ISO week, or by weeks that begin on the weekday of `anchor`."""
    auth.check_fleet(viewer, fleet)
    asked = weekly.Asked(fleet=fleet or viewer.fleet, anchor=anchor)
    with here.database.read() as conn:
        report = weekly.weekly(conn, asked, now=here.clock.now())
    sections = weekly_view.view(report.rows)
    return rendering.page(
        request, "weekly.html", viewer=viewer, sections=sections, fleet=fleet, anchor=anchor
    )


def _check_fleet_of(here: Context, viewer: Principal, name: str) -> None:
    if viewer.fleet is None:
        return
    with here.database.read() as conn:
        auth.check_fleet(viewer, canaries.fleet_of(conn, name))
