"""An explanation is read from the database: of what is judged now, or of what was decided."""

import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from controlplane.api import views
from controlplane.domain import digest, explanation, judge
from controlplane.domain.blocks import Block
from controlplane.domain.canary import EXPOSED, Event, Phase
from controlplane.domain.evidence import Evidence
from controlplane.domain.explanation import Decided, Subject
from controlplane.domain.verdict import Verdict
from controlplane.services import explanations, inputs
from controlplane.store import canaries as canary_store
from controlplane.store import flags as flag_store
from controlplane.store import history
from controlplane.store.tables import decisions as decision_table
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START, FakeClock
from tests.domain import build as domain
from tests.services.test_decisions import (
    GENERATED,
    blocks,
    evidence,
    observation,
    prepared,
    recorded,
    rich,
)


@pytest.mark.parametrize("phase", list(Phase))
def test_in_every_phase_it_is_explained_from_what_is_there(
    database: Database, clock: FakeClock, phase: Phase
) -> None:
    """Nothing has been decided yet, and nothing received: what people look at first."""
    with database.write() as conn:
        flag_store.put_catalogue(conn, domain.catalogue())
        build.put_fleet(conn)
        build.put_worker(conn)
        canary = build.put_canary(conn, phase=phase)
    with database.read() as conn:
        found = explanations.explain(conn, canary.name, now=clock.now())
    assert found.answer.startswith(canary.name)
    assert found.needs
    assert json.dumps(views.plain(found), allow_nan=False)
    assert (found.judged_at == clock.now()) is (phase in EXPOSED)


def rolled_back(conn: Connection) -> str:
    """The name of a canary that was rolled back on `rich` evidence: a slow session and a trip."""
    flag_store.put_catalogue(conn, domain.catalogue())
    decision_id, _ = recorded(conn, rich())
    canary = canary_store.get(conn, name_or_id=history.canary_of_decision(conn, decision_id))
    steps = [
        (Event.GATE_FAILED, Phase.PROGRESSING, Phase.ROLLING_BACK, "floor: too slow"),
        (Event.CONTAINMENT_SEEN, Phase.ROLLING_BACK, Phase.CONTAINED, "contained: 1"),
        (Event.VERIFICATION_SEEN, Phase.CONTAINED, Phase.ROLLED_BACK, "verified"),
    ]
    for number, (event, before, after, reason) in enumerate(steps):
        history.append_transition(
            conn,
            canary_id=canary.id,
            event=event,
            phase_from=before,
            phase_to=after,
            step=0,
            reason=reason,
            actor="steadyframe",
            decision_id=decision_id,
            now=START + timedelta(seconds=number),
        )
    over = replace(canary, phase=Phase.ROLLED_BACK, version=canary.version + 1)
    canary_store.save(conn, over, expected_version=canary.version)
    return canary.name


def test_what_is_over_is_explained_by_the_decision_and_not_by_what_came_since(
    sqlite_database: Database,
) -> None:
    with prepared(sqlite_database).write() as conn:
        name = rolled_back(conn)
        found = explanations.explain(conn, name, now=START + timedelta(days=9))
    assert found.decided is not None
    assert "gate failed, by steadyframe: floor: too slow" in found.decided
    assert found.judged_at == domain.NOW
    assert found.verdict is Verdict.FAILING
    assert found.evidence is not None
    assert found.evidence.num_blocks == 2
    # The session was slow and its worker tripped: neither alone decided.
    assert "no single session or trip decided it" in found.what_if[-1]


def test_a_record_of_the_former_form_shows_its_gates_and_no_what_if(
    sqlite_database: Database,
) -> None:
    with prepared(sqlite_database).write() as conn:
        name = rolled_back(conn)
        former = {"canary": "canary-1", "sessions": []}
        values = {"inputs": json.dumps(former), "digest": digest.digest(former)}
        conn.execute(update(decision_table).values(values))
        found = explanations.explain(conn, name, now=START)
    assert found.gates
    assert found.evidence is None
    assert "not on record in full" in found.what_if[0]


def test_a_damaged_record_explains_nothing(sqlite_database: Database) -> None:
    """What it says was not what was decided on; `decision verify` names the damage."""
    with prepared(sqlite_database).write() as conn:
        name = rolled_back(conn)
        conn.execute(update(decision_table).values(inputs=json.dumps({"form": inputs.FORM})))
        found = explanations.explain(conn, name, now=START)
    assert (found.gates, found.evidence, found.what_if) == ((), None, ())
    assert found.answer


@GENERATED
@given(evidence(), blocks(), st.sampled_from(Phase), st.sampled_from(Event))
def test_whatever_came_in_every_phase_is_explained_and_who_is_named_decided(
    came: Evidence, known: tuple[Block, ...], phase: Phase, event: Event
) -> None:
    """NaN and nothing at all included; a name is tried by judging without it."""
    seen = observation(came, known)
    judgement = judge.judge(seen.case, now=domain.NOW)
    subject = Subject(
        canary=domain.canary(phase=phase),
        policy=seen.policy,
        exposures=seen.exposures,
        decided=Decided(event=event, at=domain.NOW, actor="ada", reason="as it is"),
        ahead=(),
        judgement=judgement,
        judged_at=domain.NOW,
        case=seen.case,
    )
    found = explanation.explain(subject)
    assert json.dumps(views.plain(found), allow_nan=False)
    assert len(found.gates) == len(judgement.results)
    for sentence in found.what_if:
        if match := re.search(r"without session (\S+) on", sentence):
            kept = tuple(one for one in came.sessions if one.id != match[1])
            case = replace(seen.case, evidence=replace(came, sessions=kept))
            assert judgement.verdict is Verdict.FAILING
            assert judge.judge(case, now=domain.NOW).verdict is not Verdict.FAILING
