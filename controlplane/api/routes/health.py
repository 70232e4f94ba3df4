"""Whether the process lives, and whether it does its work; open to everybody, and says little."""

from datetime import timedelta

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controlplane.api.context import Context, Here
from controlplane.services import health

router = APIRouter(tags=["health"])
NOT_READY = 503


@router.get("/livez")
def livez() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive"}


@router.get("/readyz")
def readyz(here: Here) -> JSONResponse:
    """The database answers in the schema we know, and canaries are judged."""
    checks = {"database": _answers(here), "judge": _is_judging(here)}
    is_ready = all(checks.values())
    content = {"status": "ready" if is_ready else "not ready", "checks": checks}
    return JSONResponse(content, status_code=200 if is_ready else NOT_READY)


def _answers(here: Context) -> bool:
    try:
        with here.database.read() as conn:
            return health.is_current(conn, newest=here.schema)
    except Exception:  # noqa: BLE001 - whatever is wrong with the database, the answer is no
        return False


def _is_judging(here: Context) -> bool:
    if not here.settings.is_reconciling:
        return True
    last = here.last_tick_at() or here.started_at
    return here.clock.now() - last <= timedelta(seconds=here.settings.judge_stale_s)
