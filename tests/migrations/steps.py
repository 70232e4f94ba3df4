"""Goes up to one migration, and puts in what it finds there."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from controlplane import assets
from tests.clock import START


def migrate(conn: Connection, *, to: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(assets.migrations()))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    conn.execute(text("SELECT 1"))  # sends BEGIN
    command.upgrade(config, to)


def put_fleet(conn: Connection) -> None:
    conn.execute(
        text(
            "INSERT INTO fleets (id, name, mode, promoted, version)"
            " VALUES ('fleet', 'main', 'enforce', '{}', 1)"
        )
    )


def put_canary(conn: Connection, *, id: str = "canary") -> None:  # noqa: A002 - the column's name
    """A canary of fleet `fleet` that is progressing, as it stood until migration 0005."""
    row = {
        "id": id,
        "name": f"{id}-1",
        "fleet_id": "fleet",
        "flag": "fused_allreduce",
        "variant": "fused_steady",
        "baseline": "nccl",
        "hardware": "cpu",
        "stack": "a1b2c3d4e5f60718",
        "policy_digest": id,
        "salt": "salt",
        "phase": "progressing",
        "step": 0,
        "created_at": moment(conn),
        "phase_since": moment(conn),
        "step_since": moment(conn),
        "bake": 0,
        "num_lease_lapses": 0,
        "reason": "",
        "version": 1,
    }
    conn.execute(
        text(
            "INSERT INTO policies (digest, name, flag, summary, document, created_at)"
            " VALUES (:digest, 'test', 'fused_allreduce', '', '{}', :at)"
        ),
        {"digest": id, "at": moment(conn)},
    )
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    conn.execute(text(f"INSERT INTO canaries ({names}) VALUES ({values})"), row)  # noqa: S608 - ours


def moment(conn: Connection) -> object:
    """What a driver takes for a time where no column type helps."""
    return int(START.timestamp()) * 1_000_000 if conn.dialect.name == "sqlite" else START
