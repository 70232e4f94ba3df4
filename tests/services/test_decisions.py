"""A decision on record is judged again to equality, and what was changed in it since is found."""

import copy
import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from math import inf, nan
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from controlplane.contract.vocabulary import ARM_CANARY, ARM_CONTROL, Outcome, Reason
from controlplane.domain import digest, judge
from controlplane.domain.blocks import Block
from controlplane.domain.canary import Canary, Phase
from controlplane.domain.containment import Exposure
from controlplane.domain.errors import NotFoundError
from controlplane.domain.evidence import (
    Evidence,
    ProbeEvidence,
    QualityEvidence,
    SegmentEvidence,
    SessionEvidence,
    TripEvidence,
)
from controlplane.domain.observation import Observation, Plan
from controlplane.domain.policy import Policy
from controlplane.domain.verdict import Judgement
from controlplane.services import codec, decisions, inputs
from controlplane.services.decisions import Result
from controlplane.store import history
from controlplane.store import policies as policy_store
from controlplane.store.tables import decisions as decision_table
from controlplane.store.tables import evidence_blocks
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START
from tests.domain import build as domain
from tests.domain.build import FUSED, NOW, seconds
from tests.domain.test_compared_gates import GATES, STEP, block

PREFLIGHT = {
    "lengths": {"from": 8, "to": 512, "number": 4},
    "retained_at_most": "1MiB",
    "rollback_within": "1s",
    "within": "60s",
}
COVERAGE = {
    "gate": "coverage",
    "metric": "first_forward_lengths",
    "from": 1,
    "to": 512,
    "buckets": 8,
    "at_least": 2,
}
_numbers = count(1)
WORKERS = ("worker-1", "worker-2", "worker-3")
NUMBERS = st.one_of(
    st.floats(min_value=0, max_value=60),
    st.sampled_from([24.0, 23.999999999999996, 0.1 + 0.2, -0.0, 5e-324, nan, inf, -inf]),
)
TIMES = st.integers(0, 3600_000_000).map(lambda us: NOW - timedelta(microseconds=us))


def policy() -> Policy:
    """Every gate that judges by itself, and preflight."""
    floor = {"gate": "floor", "metric": "session_fps", "at_least": 24.0, "sustained": "10s"}
    others = [
        one for one in domain.document()["gates"] if one["gate"] not in ("freshness", "floor")
    ]
    return domain.policy(
        gates=[*GATES, floor, *others, COVERAGE],
        steps=[{**STEP, "margin": "3%"}],
        preflight=PREFLIGHT,
    )


@st.composite
def sessions(draw: st.DrawFn, number: int) -> SessionEvidence:
    segment = st.builds(
        SegmentEvidence,
        variant=st.sampled_from([FUSED, "nccl"]),
        fps=NUMBERS,
        streamed_s=NUMBERS,
    )
    return SessionEvidence(
        id=f"session-{number}",
        worker=draw(st.sampled_from(WORKERS)),
        incarnation="life",
        arm=draw(st.sampled_from([ARM_CANARY, ARM_CONTROL])),
        started_at=draw(TIMES),
        updated_at=draw(TIMES),
        outcome=draw(st.none() | st.sampled_from(Outcome)),
        reason=draw(st.none() | st.sampled_from(Reason)),
        fps=draw(st.none() | NUMBERS),
        streamed_s=draw(NUMBERS),
        first_forward_length=draw(st.integers(0, 600)),
        is_synthetic=draw(st.booleans()),
        is_non_compliant=draw(st.booleans()),
        segments=tuple(draw(st.lists(segment, max_size=2))),
        is_drawn=draw(st.booleans()),
        longest_stall_ms=draw(NUMBERS),
        parts_ms={"diffusion": 20.0},
    )


@st.composite
def evidence(draw: st.DrawFn) -> Evidence:
    """What came in of three workers, whatever it was: NaN, nothing at all, text of any kind."""
    num_sessions = draw(st.integers(0, 6))
    memory = st.builds(
        domain.memory,
        st.sampled_from(WORKERS),
        received_at=TIMES,
        lengths=st.dictionaries(st.integers(1, 512), st.integers(0, 2**40), max_size=4),
        limit_bytes=st.none() | st.integers(1, 2**40),
    )
    trip = st.builds(
        TripEvidence,
        id=st.just("trip-1"),
        worker=st.sampled_from(WORKERS),
        reason=st.sampled_from(Reason),
        at=TIMES,
        is_on_variant=st.booleans(),
        detail=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    )
    return Evidence(
        sessions=tuple(draw(sessions(number)) for number in range(num_sessions)),
        memories=tuple(draw(st.lists(memory, max_size=2))),
        trips=tuple(draw(st.lists(trip, max_size=1))),
        newest_record_at=draw(st.dictionaries(st.sampled_from(WORKERS), TIMES)),
        probes=(probe(),) if draw(st.booleans()) else (),
        qualities=(quality(draw(NUMBERS)),),
    )


def probe() -> ProbeEvidence:
    return ProbeEvidence(
        id="probe-1",
        worker="worker-1",
        incarnation="life",
        received_at=NOW,
        lengths={8: 0, 512: 3 << 20},
        flag_bytes_before=0,
        rollback_ms=41.7,
        flag_bytes_left=0,
        fault=None,
        detail="",
    )


def quality(value: float) -> QualityEvidence:
    return QualityEvidence(
        id="quality-1", measure="psnr", value=value, num_samples=3, received_at=NOW
    )


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Block, ...]:
    slow = st.tuples(st.integers(0, 6), st.integers(0, 3))
    made = draw(st.lists(slow, max_size=4))
    return tuple(block(index, bad) for index, bad in enumerate(made))


def observation(evidence: Evidence, known: tuple[Block, ...], **changes: Any) -> Observation:
    asked = policy()
    return Observation(
        canary=domain.canary(policy_digest=asked.digest, fleet=build.FLEET, **changes),
        policy=asked,
        catalogue=domain.catalogue(),
        fleet=domain.fleet(),
        workers=(),
        exposures=(
            Exposure(
                worker_id="id-worker-1",
                worker="worker-1",
                incarnation="life",
                exposed_at=NOW - timedelta(hours=1),
                flag_bytes_before=0,
            ),
        ),
        evidence=evidence,
        requests=(),
        is_next=True,
        tick=seconds(1),
        blocks=known,
        qualified_slow_rate=0.007,
    )


def recorded(conn: Connection, seen: Observation, *, now: Any = NOW) -> tuple[str, Judgement]:
    """A stored decision on what was `seen`, as the reconciler stores it."""
    number = next(_numbers)
    names: dict[str, Any] = {"id": f"canary-{number}", "name": f"fused-allreduce-{number}"}
    canary: Canary = build.put_canary(
        conn, **names, policy_digest=seen.policy.digest, phase=seen.canary.phase
    )
    for one in seen.blocks:
        history.append_block(conn, canary_id=canary.id, block=one)
    seen = Observation(
        **{
            **{name: getattr(seen, name) for name in Observation.__dataclass_fields__},
            "canary": domain.canary(**names, policy_digest=seen.policy.digest, phase=canary.phase),
        }
    )
    asked = seen.policy.preflight
    judgement = (
        judge.judge_preflight(asked, seen.case)
        if asked and canary.phase is Phase.PREFLIGHT
        else judge.judge(seen.case, now=now)
    )
    decision_id = f"decision-{number}"
    planned = Plan(canary=seen.canary, judgement=judgement)
    considered = inputs.of(seen, planned, decision=decision_id, now=now)
    history.append_decision(
        conn,
        id=decision_id,
        canary_id=canary.id,
        verdict=judgement.verdict,
        gates=inputs.gates(judgement),
        inputs=inputs.stored(considered),
        digest=digest.digest(considered),
        now=now,
    )
    return decision_id, judgement


def prepared(database: Database) -> Database:
    with database.write() as conn:
        build.put_fleet(conn)
        policy_store.put(conn, policy(), now=START)
    return database


def _holds(database: Database, seen: Observation) -> None:
    with database.write() as conn:
        decision_id, judgement = recorded(conn, seen)
    with database.read() as conn:
        found = decisions.verify(conn, decision_id)
        kept = decisions.get(conn, decision_id)
        known = history.blocks_of(conn, canary_id=kept.canary_id)
    assert (found.result, found.differences) == (Result.EQUAL, ()), found.said
    again = inputs.recalled(kept.inputs, known).judged()
    # By their representation: NaN equals nothing, and 1 equals 1.0.
    assert repr(again) == repr(judgement).replace("\\x00", "\ufffd")


@pytest.fixture
def sqlite(sqlite_database: Database) -> Database:
    return prepared(sqlite_database)


GENERATED = settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@GENERATED
@given(evidence(), blocks(), st.sampled_from([Phase.PROGRESSING, Phase.HELD, Phase.PREFLIGHT]))
def test_whatever_came_in_the_decision_on_it_is_judged_again_to_equality(
    sqlite: Database, came: Evidence, known: tuple[Block, ...], phase: Phase
) -> None:
    _holds(sqlite, observation(came, known, phase=phase))


@settings(GENERATED, max_examples=5)
@given(evidence(), blocks())
def test_the_same_on_postgresql(
    postgresql_url: str, came: Evidence, known: tuple[Block, ...]
) -> None:
    """Times, floats and JSON go through another database's own types."""
    database = Database.open(postgresql_url)
    try:
        with database.write() as conn:
            is_new = policy_store.put(conn, policy(), now=START)
            if is_new:
                build.put_fleet(conn)
        _holds(database, observation(came, known))
    finally:
        database.close()


def rich() -> Observation:
    """A rollback on one slow session, with a bit of everything on record."""
    came = domain.evidence(
        sessions=(
            domain.session("slow", fps=22.5, segments=(domain.segment(fps=22.5),)),
            domain.session("fine", arm=ARM_CONTROL, worker="worker-2", is_drawn=True),
        ),
        trips=(domain.trip(),),
        probes=(probe(),),
        qualities=(quality(0.5),),
    )
    return observation(came, (block(0, (1, 0)), block(1, (0, 0))))


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in items:
        if isinstance(one, dict | list) and one:
            yield from _leaves(one, (*path, key))
        else:
            yield (*path, key)


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value + 1e-9
        case str():
            return value + "x"
        case _:
            return 1


def _changed(value: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = _other(at[path[-1]])
    return changed


@pytest.mark.parametrize("column", ["inputs", "gates"])
def test_any_single_change_of_a_stored_value_is_found(sqlite: Database, column: str) -> None:
    with sqlite.write() as conn:
        decision_id, _ = recorded(conn, rich())
    with sqlite.read() as conn:
        kept = getattr(history.decision(conn, decision_id), column)
    paths = list(_leaves(kept))
    assert len(paths) > 60
    for path in paths:
        text = json.dumps(_changed(kept, path))
        with sqlite.write() as conn:
            conn.execute(update(decision_table).values({column: text}))
            found = decisions.verify(conn, decision_id)
        assert found.result is Result.DIFFERS, path
        assert found.differences, path


@pytest.mark.parametrize(
    ("column", "value"),
    [("digest", "0" * 64), ("verdict", "passing"), ("at", NOW + timedelta(microseconds=1))],
)
def test_a_changed_column_is_named(sqlite: Database, column: str, value: Any) -> None:
    with sqlite.write() as conn:
        decision_id, _ = recorded(conn, rich())
        conn.execute(update(decision_table).values({column: value}))
        found = decisions.verify(conn, decision_id)
    assert [one.where for one in found.differences] == [column]
    assert column in found.said


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("tables", {"slow": [[0, 10, 0, 40]]}),
        ("arms", {}),
        ("sessions", ["somebody"]),
        ("units", ["life"]),
        ("closed_at", NOW),
        ("kind", "failures"),
    ],
)
def test_a_changed_block_of_evidence_is_found(sqlite: Database, column: str, value: Any) -> None:
    """Blocks stand beside the decision; it knows how many there were, and their digest."""
    with sqlite.write() as conn:
        decision_id, _ = recorded(conn, rich())
        first = evidence_blocks.c.position == 0
        conn.execute(update(evidence_blocks).where(first).values({column: value}))
        found = decisions.verify(conn, decision_id)
    assert "blocks_digest" in [one.where for one in found.differences]


def test_a_block_that_was_taken_away_is_found_and_one_that_came_later_is_none_of_it(
    sqlite: Database,
) -> None:
    with sqlite.write() as conn:
        decision_id, _ = recorded(conn, rich())
        canary_id = history.canary_of_decision(conn, decision_id)
        history.append_block(conn, canary_id=canary_id, block=block(2, (5, 0)))
        assert decisions.verify(conn, decision_id).result is Result.EQUAL
        conn.execute(evidence_blocks.delete().where(evidence_blocks.c.position == 1))
        conn.execute(evidence_blocks.delete().where(evidence_blocks.c.position == 2))
        found = decisions.verify(conn, decision_id)
    assert {one.where for one in found.differences} >= {"blocks", "blocks_digest"}


def test_inputs_that_were_changed_with_their_digest_are_found_by_the_gates(
    sqlite: Database,
) -> None:
    """Who can write the digest can make it fit; what is judged of it does not."""
    with sqlite.write() as conn:
        decision_id, _ = recorded(conn, rich())
        kept = decisions.get(conn, decision_id).inputs
        table = kept["case"]["evidence"]["sessions"]
        slow = table["rows"][0]
        slow[table["columns"].index("segments")]["rows"][0][1] = 24.5
        values = {"inputs": json.dumps(kept), "digest": digest.digest(kept)}
        conn.execute(update(decision_table).values(values))
        found = decisions.verify(conn, decision_id)
    assert "gates.floor.verdict" in [one.where for one in found.differences]


def test_a_decision_of_the_former_form_is_read_and_not_called_equal(sqlite: Database) -> None:
    with sqlite.write() as conn:
        decision_id, _ = recorded(conn, rich())
        former = {"canary": "canary-1", "sessions": [], "policy": "d" * 64}
        values = {"inputs": json.dumps(former), "digest": digest.digest(former)}
        conn.execute(update(decision_table).values(values))
        found = decisions.verify(conn, decision_id)
        conn.execute(update(decision_table).values(digest="0" * 64))
        damaged = decisions.verify(conn, decision_id)
    assert found.result is Result.NOT_RECOMPUTABLE
    assert "cannot be recomputed" in found.said
    assert damaged.result is Result.DIFFERS


def test_a_large_record_is_compressed_and_judged_again(sqlite: Database) -> None:
    many = tuple(
        domain.session(f"{n:08x}-0000-7000-8000-{n * 7919:012x}", fps=24.0 + n / 7e3)
        for n in range(2000)
    )
    with sqlite.write() as conn:
        decision_id, _ = recorded(conn, observation(domain.evidence(sessions=many), ()))
        kept = history.decision(conn, decision_id).inputs
        found = decisions.verify(conn, decision_id)
        plain = decisions.get(conn, decision_id).inputs
        body = kept["body"]
        for damaged in (body[:-5], body[:40] + "~" + body[41:], "", body + "00000"):
            text = json.dumps({**kept, "body": damaged})
            conn.execute(update(decision_table).values(inputs=text))
            assert decisions.verify(conn, decision_id).result is Result.DIFFERS
    assert found.result is Result.EQUAL
    assert len(plain["case"]["evidence"]["sessions"]["rows"]) == 2000
    assert len(json.dumps(kept)) < inputs.LARGE < len(json.dumps(plain))


def test_a_decision_that_is_not_there_is_not_found(sqlite: Database) -> None:
    with sqlite.read() as conn, pytest.raises(NotFoundError):
        decisions.verify(conn, "nothing")


@pytest.mark.parametrize("number", [nan, inf, -inf, -0.0, 5e-324, 0.1 + 0.2, 1, 2**60])
def test_numbers_come_back_bit_by_bit_through_json(number: float) -> None:
    text = json.dumps(codec.encoded(number, float), allow_nan=False)
    assert repr(codec.decoded(json.loads(text), float)) == repr(number)


@pytest.mark.parametrize(
    ("written", "where"),
    [({}, "id"), ({"nothing": 1}, "nothing"), ([], ""), ({"value": "1"}, "value")],
)
def test_what_is_of_another_form_is_refused_by_its_place(written: Any, where: str) -> None:
    whole = codec.encoded(quality(1.0), QualityEvidence)
    damaged = {**whole, **written} if isinstance(written, dict) and written else written
    with pytest.raises(codec.UnreadableError) as refused:
        codec.decoded(damaged, QualityEvidence)
    assert where in str(refused.value)
