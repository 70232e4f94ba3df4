"""A change made by another process, which signals nothing here, still reaches the held calls."""

import asyncio
from dataclasses import replace

from controlplane.api import poller, signals
from controlplane.services import overrides
from controlplane.services.change import Act
from controlplane.services.overrides import Wanted
from controlplane.store.transaction import Database
from tests.api.control_plane import FLAG, FLEET, ControlPlane
from tests.clock import CountingId


def test_only_those_who_are_told_something_else_are_woken(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    context = plane.parts.context
    ids = [plane.get(f"/v1/fleets/{FLEET}/workers/{name}")["id"] for name in ("w-1", "w-2")]

    async def watch() -> list[bool]:
        known = await poller.look(context, {})
        with (
            context.signals.subscription(f"worker:{ids[0]}") as one,
            context.signals.subscription(f"worker:{ids[1]}") as two,
        ):
            _pin_elsewhere(plane)
            await poller.look(context, known)
            return [
                await signals.wait(one, timeout_s=30),
                await signals.wait(two, timeout_s=0),
            ]

    assert asyncio.run(watch()) == [True, False]


def test_a_database_that_is_away_does_not_end_the_looking(
    sqlite_plane: ControlPlane, tmp_path: object
) -> None:
    """Else one restart of PostgreSQL would leave every held call deaf for good."""
    empty = Database.open(f"sqlite:///{tmp_path}/empty.db")
    settings = sqlite_plane.parts.context.settings.model_copy(update={"poll_s": 0})
    context = replace(sqlite_plane.parts.context, database=empty, settings=settings)

    async def watch() -> bool:
        with context.signals.subscription("worker:1"):
            looking = asyncio.create_task(poller.poll(context))
            for _ in range(50):
                await asyncio.sleep(0)
            is_over = looking.done()
            looking.cancel()
            await asyncio.wait([looking])
            return is_over

    assert not asyncio.run(watch())
    empty.close()


def _pin_elsewhere(plane: ControlPlane) -> None:
    act = Act(actor="other", reason="a test", now=plane.clock.now(), new_id=CountingId())
    wanted = Wanted(flag=FLAG, variant="fused_steady", lasts_s=60)
    with plane.parts.context.database.write() as conn:
        overrides.pin(conn, FLEET, "w-1", wanted=wanted, act=act)
