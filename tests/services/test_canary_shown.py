"""What a person sees of a canary while it runs and when it is over."""

import pytest

from controlplane.domain.canary import EXPOSED, Phase
from controlplane.services import canaries
from controlplane.store import canaries as canary_store
from controlplane.store import flags as flag_store
from controlplane.store.transaction import Database
from tests import build
from tests.clock import FakeClock
from tests.domain import build as domain


@pytest.mark.parametrize("phase", list(Phase))
def test_gates_are_judged_now_while_the_canary_can_still_fail(
    database: Database, clock: FakeClock, phase: Phase
) -> None:
    """Before its first transition there is no decision to show, and people look most then."""
    with database.write() as conn:
        flag_store.put_catalogue(conn, domain.catalogue())
        build.put_fleet(conn)
        worker = build.put_worker(conn)
        canary = build.put_canary(conn, phase=phase)
        canary_store.expose(
            conn,
            canary_id=canary.id,
            worker_id=worker.id,
            incarnation=worker.incarnation,
            flag_bytes=0,
            now=clock.now(),
        )
    with database.read() as conn:
        shown = canaries.show(conn, canary.name, now=clock.now())
    if phase in (*EXPOSED, Phase.PREFLIGHT):
        assert shown["verdict"] == "unmeasured"  # nothing has been received
        assert shown["decided_at"] == clock.now()
    else:
        assert (shown["verdict"], shown["gates"]) == (None, [])
