"""Canaries under the version check, their exposures, requests and history."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from controlplane.domain.blocks import ArmCounts, Block, Kind
from controlplane.domain.canary import Canary, Event, Phase
from controlplane.domain.eprocess import Table
from controlplane.domain.errors import ConflictError, NotFoundError, StaleVersionError
from controlplane.domain.observation import Answer, RequestKind
from controlplane.domain.verdict import Verdict
from controlplane.store import canaries as canary_store
from controlplane.store import history
from controlplane.store import requests as request_store
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START, FakeClock

_CANARY = "canary-1"


def test_a_canary_is_read_as_it_was_written(database: Database) -> None:
    with database.write() as conn:
        canary = _put(conn, bake=timedelta(minutes=3, microseconds=7), baked_until=START)
        assert canary_store.get(conn, name_or_id=canary.id) == canary
        assert canary_store.get(conn, name_or_id=canary.name) == canary
        with pytest.raises(NotFoundError, match=canary.name):
            canary_store.get(conn, name_or_id="other-1")
        with pytest.raises(ConflictError):
            build.put_canary(conn, id="canary-2")


def test_only_live_canaries_are_live_and_the_oldest_comes_first(database: Database) -> None:
    with database.write() as conn:
        _put(conn, id="b", name="b-1", created_at=START - timedelta(hours=1))
        build.put_canary(conn, id="a", name="a-1")
        build.put_canary(conn, id="c", name="c-1", phase=Phase.PROMOTED)
        assert [one.id for one in canary_store.live(conn)] == ["b", "a"]
        assert [one.id for one in canary_store.promoted(conn, fleet=build.FLEET)] == ["c"]
        assert canary_store.promoted(conn, fleet="other") == ()


def test_pages_go_from_the_newest_to_the_oldest_without_a_gap(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        for number in range(5):
            build.put_canary(conn, id=f"canary-{number}", name=f"fused-{number}")
        seen: list[str] = []
        while page := canary_store.list_page(
            conn, fleet=build.FLEET, after=seen[-1] if seen else None, limit=2
        ):
            seen += [one.id for one in page]
    assert seen == [f"canary-{number}" for number in (4, 3, 2, 1, 0)]


def test_numbers_of_a_flag_count_its_canaries(database: Database) -> None:
    with database.write() as conn:
        assert canary_store.next_name(conn, subject=build.FLAG) == "fused-allreduce-1"
        _put(conn)
        assert canary_store.next_name(conn, subject=build.FLAG) == "fused-allreduce-2"
        assert canary_store.next_name(conn, subject="decoder") == "decoder-1"


def test_a_stale_transition_is_turned_away(database: Database) -> None:
    """Two controllers for a moment: only one of their decisions may stand."""
    with database.write() as conn:
        canary = _put(conn, version=3)
        moved = replace(canary, phase=Phase.HELD, version=4)
        canary_store.save(conn, moved, expected_version=3)
        with pytest.raises(StaleVersionError):
            canary_store.save(conn, moved, expected_version=3)
        with pytest.raises(StaleVersionError):
            canary_store.save_bake(conn, canary)
        assert canary_store.get(conn, name_or_id=canary.id) == moved


def test_bake_and_lease_are_no_transition(database: Database) -> None:
    with database.write() as conn:
        canary = _put(conn)
        baked = replace(canary, bake=timedelta(seconds=9), lease_until=START)
        # What else differs is another's business and stays as it is.
        canary_store.save_bake(conn, replace(baked, phase=Phase.HELD))
        assert canary_store.get(conn, name_or_id=canary.id) == baked


def test_marks_of_an_exposure_are_set_once(database: Database, clock: FakeClock) -> None:
    with database.write() as conn:
        _put(conn)
        worker = build.put_worker(conn)
        who = {"worker_id": worker.id, "incarnation": worker.incarnation}
        canary_store.expose(conn, canary_id=_CANARY, flag_bytes=7, now=clock.now(), **who)
        later = clock.advance(minutes=1)
        canary_store.expose(conn, canary_id=_CANARY, flag_bytes=9, now=later, **who)
        canary_store.mark_contained(conn, canary_id=_CANARY, now=later, **who)
        canary_store.mark_contained(conn, canary_id=_CANARY, now=clock.advance(hours=1), **who)
        (exposure,) = canary_store.exposed(conn, canary_id=_CANARY)
        assert (exposure.worker, exposure.exposed_at) == (worker.name, START)
        assert exposure.flag_bytes_before == 7
        assert exposure.contained_at == later
        done = replace(exposure, verified_at=clock.now(), quarantined_at=clock.now())
        canary_store.save_marks(conn, canary_id=_CANARY, exposure=done)
        assert canary_store.exposed(conn, canary_id=_CANARY) == (done,)


def test_a_request_is_answered_once(database: Database, clock: FakeClock) -> None:
    with database.write() as conn:
        _put(conn)
        asked: dict[str, Any] = {
            "canary_id": _CANARY,
            "actor": "ada",
            "reason": "a hunch",
            "now": clock.now(),
        }
        request_store.insert(conn, id="r2", kind=RequestKind.ABORT, **asked)
        request_store.insert(conn, id="r1", kind=RequestKind.PAUSE, **asked)
        assert [one.id for one in request_store.pending(conn, canary_id=_CANARY)] == ["r1", "r2"]
        request_store.answer(conn, id="r1", answer=Answer.DONE, detail="held", now=clock.now())
        assert [one.id for one in request_store.pending(conn, canary_id=_CANARY)] == ["r2"]
        with pytest.raises(ConflictError):
            request_store.answer(conn, id="r1", answer=Answer.REFUSED, detail="", now=clock.now())
        answered = request_store.of_canary(conn, canary_id=_CANARY)[0]
    assert (answered.answer, answered.detail, answered.answered_at) == (Answer.DONE, "held", START)


def test_decisions_keep_their_inputs_as_they_were_hashed(database: Database) -> None:
    """Numbers must come back digit for digit, or a decision could not be checked afterwards."""
    inputs = {"limit": 1e22, "value": 24.0, "names": ["b", "a"]}
    with database.write() as conn:
        _put(conn)
        history.append_decision(
            conn,
            id="d1",
            canary_id=_CANARY,
            verdict=Verdict.FAILING,
            gates=[{"gate": "floor"}],
            inputs=inputs,
            digest="f" * 64,
            now=START,
        )
        _move(conn, decision_id="d1")
        (decision,) = history.decisions_of(conn, canary_id=_CANARY)
        (transition,) = history.transitions_of(conn, canary_id=_CANARY)
    assert repr(decision.inputs) == repr(dict(sorted(inputs.items())))
    assert (transition.event, transition.decision_id) == (Event.PAUSED, "d1")


def test_history_is_read_in_pages_newest_first(database: Database) -> None:
    with database.write() as conn:
        _put(conn)
        for _ in range(5):
            _move(conn)
        first = history.transitions_of(conn, canary_id=_CANARY, limit=3)
        rest = history.transitions_of(conn, canary_id=_CANARY, after=first[-1].sequence)
    sequences = [one.sequence for one in (*first, *rest)]
    assert sequences == sorted(sequences, reverse=True)
    assert len(sequences) == 5


def test_blocks_are_kept_in_the_order_they_were_written(database: Database) -> None:
    block = Block(
        index=4,
        opened_at=START,
        closed_at=START + timedelta(minutes=1),
        arms={"canary": ArmCounts(num_started=2, num_slow=1)},
        tables={"slow": (Table(1, 2, 0, 8), Table(0, 0, 1, 1)), "shift.0.1": ()},
        sessions=("s1", "s2"),
    )
    earlier = replace(block, index=2)
    failures = replace(block, kind=Kind.FAILURES, units=("incarnation-1",))
    with database.write() as conn:
        _put(conn)
        for one in (block, earlier, failures):
            history.append_block(conn, canary_id=_CANARY, block=one)
        assert history.blocks_of(conn, canary_id=_CANARY) == (block, earlier, failures)


def test_a_block_is_written_once(database: Database) -> None:
    """Two controllers that both believe to lead must not count one window twice."""
    block = Block(
        index=4, opened_at=START, closed_at=START + timedelta(minutes=1), arms={}, sessions=("s1",)
    )
    with database.write() as conn:
        _put(conn)
        history.append_block(conn, canary_id=_CANARY, block=block)
    with pytest.raises(IntegrityError), database.write() as conn:
        history.append_block(conn, canary_id=_CANARY, block=block)


def test_flips_are_counted_by_layer_since_a_time(database: Database, clock: FakeClock) -> None:
    """The ramp of a promotion is bounded by this count."""
    with database.write() as conn:
        build.put_fleet(conn)
        worker = build.put_worker(conn)
        for layer in ("promoted", "fallback", "promoted"):
            history.append_flip(
                conn,
                worker_id=worker.id,
                generation=1,
                flags_from={},
                flags_to={build.FLAG: build.FUSED},
                layer=layer,
                reason="",
                now=clock.advance(minutes=1),
            )
        count = {"fleet": build.FLEET, "layer": "promoted"}
        assert history.num_flips(conn, since=START, **count) == 2
        assert history.num_flips(conn, since=clock.now(), **count) == 1
        assert [one.layer for one in history.flips_of(conn, worker_id=worker.id, limit=2)] == [
            "promoted",
            "fallback",
        ]


def _put(conn: Connection, **changes: object) -> Canary:
    build.put_fleet(conn)
    return build.put_canary(conn, **changes)


def _move(conn: Connection, *, decision_id: str | None = None) -> None:
    history.append_transition(
        conn,
        canary_id=_CANARY,
        event=Event.PAUSED,
        phase_from=Phase.PROGRESSING,
        phase_to=Phase.HELD,
        step=0,
        reason="asked to",
        actor="ada",
        decision_id=decision_id,
        now=START,
    )
