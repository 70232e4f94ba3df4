"""After migration 0009 a canary is about a flag or about a stack, and every old one is kept."""

import pytest
from sqlalchemy import text

from controlplane import assets
from controlplane.domain.canary import Phase
from controlplane.domain.policy import Subject
from controlplane.store import canaries as canary_store
from controlplane.store import policies as policy_store
from controlplane.store import tables
from controlplane.store.transaction import Database
from tests.clock import START
from tests.domain import build as domain
from tests.migrations import steps

NO_FLAG = "flag = NULL, variant = NULL, baseline = NULL"
CHILDREN = (tables.transitions, tables.decisions, tables.canary_requests)


@pytest.fixture
def before(empty: Database) -> Database:
    """A release before 0009 with two canaries and what hangs on them."""
    with empty.write() as conn:
        steps.migrate(conn, to="0008")
        steps.put_fleet(conn)
        for name in ("canary", "other"):
            steps.put_canary(conn, id=name)
            row = {"id": f"decision-{name}", "canary": name, "at": steps.moment(conn)}
            conn.execute(
                text(
                    "INSERT INTO decisions (id, canary_id, verdict, gates, inputs, digest, at)"
                    " VALUES (:id, :canary, 'passing', '[]', '{}', 'd', :at)"
                ),
                row,
            )
            conn.execute(
                text(
                    "INSERT INTO transitions (canary_id, event, phase_from, phase_to, step,"
                    " reason, actor, decision_id, at) VALUES (:canary, 'started', 'pending',"
                    " 'preflight', 0, '', 'ada', :id, :at)"
                ),
                row,
            )
            conn.execute(
                text(
                    "INSERT INTO canary_requests (id, canary_id, kind, actor, reason, created_at,"
                    " detail) VALUES (:id, :canary, 'pause', 'ada', '', :at, '')"
                ),
                row,
            )
    return empty


def test_every_canary_and_what_hangs_on_it_is_kept(before: Database) -> None:
    before.migrate(assets.migrations())
    with before.read() as conn:
        found = canary_store.get(conn, name_or_id="canary")
        (subjects,) = conn.execute(text("SELECT count(*) FROM canaries WHERE subject = 'flag'"))
        counts = [
            conn.execute(text(f"SELECT count(*) FROM {child.name}")).scalar_one()  # noqa: S608 - ours
            for child in CHILDREN
        ]
        policy = policy_store.get(conn, digest="canary")
    assert (found.flag, found.variant, found.baseline) == (
        "fused_allreduce",
        "fused_steady",
        "nccl",
    )
    assert (found.subject, found.phase) == (Subject.FLAG, Phase.PROGRESSING)
    assert found.created_at.replace(microsecond=0) == START.replace(microsecond=0)
    assert subjects == (2,)
    assert counts == [2, 2, 2]
    assert (policy.name, policy.flag) == ("test", "fused_allreduce")


@pytest.mark.parametrize("child", [child.name for child in CHILDREN])
def test_what_hangs_on_a_canary_still_names_one_that_is_there(before: Database, child: str) -> None:
    """The table is made anew on SQLite: its name must mean the new one to all others."""
    before.migrate(assets.migrations())
    stranger = text(f"UPDATE {child} SET canary_id = 'nobody'")  # noqa: S608 - ours
    with pytest.raises(Exception, match=r"(?i)foreign key"), before.write() as conn:
        conn.execute(stranger)


@pytest.mark.parametrize(
    "change",
    [
        "flag = NULL",
        "baseline = NULL",
        "old_stack = 'f'",
        "variants = '{}'",
        "subject = 'stack'",
        "subject = 'worker'",
        f"subject = 'stack', {NO_FLAG}",
        f"subject = 'stack', {NO_FLAG}, variants = '{{}}', old_stack = stack",
    ],
)
def test_a_canary_that_is_about_neither_or_both_is_refused(before: Database, change: str) -> None:
    before.migrate(assets.migrations())
    told = text(f"UPDATE canaries SET {change} WHERE id = 'canary'")  # noqa: S608 - ours
    refusal = r"ck_canaries_(one_subject|subject_known)"
    with pytest.raises(Exception, match=refusal), before.write() as conn:
        conn.execute(told)


def test_a_canary_of_a_stack_comes_back_as_it_was_put(before: Database) -> None:
    before.migrate(assets.migrations())
    stacked = domain.canary(
        id="c",
        name="stack-1",
        fleet="main",
        flag=None,
        variant=None,
        baseline=None,
        old_stack="1" * 16,
        variants={"fused_allreduce": "fused_steady"},
        policy_digest="canary",
        created_at=START,
        phase_since=START,
        step_since=START,
        lease_until=None,
    )
    with before.write() as conn:
        canary_store.insert(conn, stacked)
    with before.read() as conn:
        assert canary_store.get(conn, name_or_id="stack-1") == stacked
