"""A simulated fleet with a canary to watch; what the scenarios of this folder have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.domain.canary import Canary, Phase
from controlplane.domain.fleet import Mode
from controlplane.services import canaries, flags, fleets, policies
from controlplane.services.change import Act
from controlplane.simulation.worker import Behaviour
from controlplane.simulation.world import World
from controlplane.store import canaries as canary_store
from controlplane.store import history
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Database

POLICIES = Path(__file__).parents[2] / "policies"
MIB = 2**20
BEHAVIOURS = {
    "nccl": Behaviour(),
    "fused_steady": Behaviour(fps_mean=24.95),
    "fused_all": Behaviour(kept_bytes_per_length=16 * MIB),
    "fused_small_tiles": Behaviour(fps_mean=22.7),
}
FLEET = "studio"
NAMES = ("worker-0", "worker-1", "worker-2", "worker-3")


@dataclass(slots=True)
class Fleet:
    """A world with one fleet that enforces, and ways to ask about its canary."""

    world: World
    database: Database

    def start(self, variant: str, *, policy: str = "demo") -> str:
        """Start a canary; returns its name."""
        with self.database.write() as conn:
            wanted = canaries.Wanted(
                fleet=FLEET, flag="fused_allreduce", variant=variant, policy=policy
            )
            change = canaries.start(conn, wanted, act=self.act(f"try {variant}"))
        name: str = change.subject["name"]
        return name

    def act(self, reason: str) -> Act:
        """Something a person does now."""
        return Act(
            actor="someone",
            reason=reason,
            now=self.world.timeline.now(),
            new_id=self.world.new_id,
        )

    def canary(self, name: str) -> Canary:
        """The canary as it stands."""
        with self.database.read() as conn:
            return canary_store.get(conn, name_or_id=name)

    def run_to(self, name: str, *phases: Phase, within_s: float = 300) -> Canary:
        """Let time pass until the canary is in one of `phases`."""
        self.world.run_until(lambda: self.canary(name).phase in phases, within_s=within_s)
        return self.canary(name)

    def variants(self) -> dict[str, str]:
        """What each worker is reported to run."""
        with self.database.read() as conn:
            return {
                worker.name: worker.effective_flags["fused_allreduce"]
                for worker in worker_store.in_fleet(conn, fleet=FLEET)
            }

    def events(self, name: str) -> list[str]:
        """The canary's transitions, oldest first."""
        canary = self.canary(name)
        with self.database.read() as conn:
            newest_first = history.transitions_of(conn, canary_id=canary.id, limit=500)
        return [transition.event for transition in reversed(newest_first)]


def adopted(  # noqa: PLR0913 - each scenario changes one or two
    database: Database,
    *,
    seed: int,
    crashes: Callable[[int], bool] = lambda _num_beats: False,
    behaviours: dict[str, Behaviour] | None = None,
    names: Sequence[str] = NAMES,
    documents: Sequence[str] = (),
    make_world: Callable[..., World] = World,
) -> Fleet:
    """A fleet of workers, four unless named, that has run for a while on the fallback."""
    world = make_world(database, seed=seed, behaviours=behaviours or BEHAVIOURS, crashes=crashes)
    fleet = Fleet(world=world, database=database)
    with database.write() as conn:
        flags.load(conn, (POLICIES / "flags.yaml").read_text())
        for name in ("demo", "as-in-august", "preflight", "coverage"):
            text = (POLICIES / f"{name}.yaml").read_text()
            policies.add(conn, text, act=fleet.act("shipped"))
        for document in documents:
            policies.add(conn, document, act=fleet.act("for this test"))
        fleets.adopt(conn, FLEET, act=fleet.act("adopt"))
        fleets.set_mode(conn, FLEET, Mode.ENFORCE, act=fleet.act("enforce"))
    world.add_workers(FLEET, names)
    world.start_controller()
    world.run(seconds=15)
    return fleet
