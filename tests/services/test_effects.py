"""What a change does to workers is said worker by worker, and counted where it is many."""

from controlplane.services import effects
from controlplane.store import flags as flag_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Database
from tests import build
from tests.clock import FakeClock
from tests.domain import build as domain


def test_many_workers_are_counted_after_the_first_named(
    sqlite_database: Database, clock: FakeClock
) -> None:
    """Two hundred lines hide the one sentence that a person must read."""
    num_workers = effects.MAX_NAMED + 3
    with sqlite_database.write() as conn:
        flag_store.put_catalogue(conn, domain.catalogue())
        build.put_fleet(conn)
        for number in range(num_workers):
            worker_store.register(
                conn,
                registration=build.registration(
                    worker=f"w-{number:02}", incarnation=f"life-{number}"
                ),
                worker_id=f"id-{number}",
                now=clock.now(),
            )

        woken, told = effects.on_workers(conn, fleet=build.FLEET, now=clock.now())

    assert len(woken) == num_workers
    assert len(told) == effects.MAX_NAMED + 1
    assert told[0] == f"w-00: {build.FLAG} unset -> {build.PLAIN}"
    assert told[-1] == "and 3 workers more"


def test_no_effect_is_said_too(sqlite_database: Database, clock: FakeClock) -> None:
    with sqlite_database.write() as conn:
        build.put_fleet(conn)

        woken, told = effects.on_workers(conn, fleet=build.FLEET, now=clock.now())

    assert (woken, told) == ((), ("no worker is told to run anything else",))
