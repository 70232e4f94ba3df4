"""What Prometheus scrapes."""

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from controlplane.api import auth, metrics
from controlplane.api.context import Here
from controlplane.api.metrics import Metrics
from controlplane.api.problems import ForbiddenError

router = APIRouter(tags=["metrics"])


@router.get("/metrics", response_class=Response)
def scrape(
    here: Here, principal: auth.Viewer, measured: Annotated[Metrics, Depends(metrics.metrics_of)]
) -> Response:
    """Every metric of this process and of the store, in Prometheus' text format."""
    if principal.fleet is not None:
        raise ForbiddenError("metrics are of every fleet; the token is for one")
    return Response(measured.exposition(here), media_type=metrics.CONTENT_TYPE)
