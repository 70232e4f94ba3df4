"""What a scrape counts: the same from every replica, after a restart, and what really happened."""

import asyncio
from typing import Any

import pytest

from controlplane import app
from controlplane.api.signals import Signals
from tests.api import otlp_bodies, scraped
from tests.api.control_plane import (
    FLAG,
    FLEET,
    ControlPlane,
    bearer,
    control_plane,
    effective,
    reporter,
)
from tests.api.local_client import local_client
from tests.clock import CountingId

CPU = {"fleet": FLEET, "hardware": "cpu"}


def _ended(seq: int, *, fps: float = 24.5, outcome: str = "completed", **changes: Any) -> Any:
    return otlp_bodies.record(
        "session.ended",
        session=f"s-{seq}",
        seq=seq,
        num_frames=4 + round(fps * 10),
        streamed_s=10.0,
        outcome=outcome,
        **changes,
    )


def _send(plane: ControlPlane, *records: Any, worker: str = "w-1") -> None:
    body = otlp_bodies.request(*records, resource=reporter(worker))
    assert plane.logs(worker, body).status_code == 200


def _states(plane: ControlPlane) -> dict[str, float]:
    return _by_label(plane, "steadyframe_workers", "state")


def _paths(plane: ControlPlane) -> dict[str, float]:
    return _by_label(plane, "steadyframe_workers_on_path", "path")


def _by_label(plane: ControlPlane, name: str, label: str) -> dict[str, float]:
    """Samples that are not zero, by one of their labels; each scrape reads anew."""
    plane.clock.advance(seconds=2)
    found = scraped.families(plane)[name].samples
    return {one.labels[label]: one.value for one in found if one.value}


def test_a_scrape_needs_a_viewer_of_every_fleet(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    narrow = (plane.token("viewer", fleet=FLEET), plane.worker_token("w-1"))

    assert scraped.text(plane, token=plane.token("viewer"))
    for token in narrow:
        assert plane.client.get("/metrics", headers=bearer(token)).status_code == 403


def test_each_worker_is_in_one_state(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2", "w-3", "w-4")
    plane.done(f"/v1/fleets/{FLEET}/workers/w-1/cordon")
    plane.done(f"/v1/fleets/{FLEET}/workers/w-2/pins", flag=FLAG, variant="fused_steady")

    assert _states(plane) == {"cordoned": 1, "settling": 1, "serving": 2}

    plane.clock.advance(seconds=29)
    plane.desired("w-3", after=0)
    assert _states(plane) == {"cordoned": 1, "silent": 2, "serving": 1}


def test_a_tripped_worker_is_seen_with_its_reason(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    trip = {"incarnation": "life-of-w-1", "trip": "t-1", "reason": "nan"}

    plane.as_worker("w-1", "trips", **trip, flags={FLAG: "fused_steady"}, generation=1)

    assert _states(plane)["tripped"] == 1
    assert _by_label(plane, "steadyframe_breaker_trips_total", "reason") == {"nan": 1}


def test_each_worker_is_on_one_path(plane: ControlPlane) -> None:
    """By what its ranks report, whatever they were told."""
    plane.fleet("w-1", "w-2", "w-3")
    _start_canary(plane)
    _report(plane, "w-1", "fused_steady")
    _report(plane, "w-2", "fused_steady")  # not of the canary, nor promoted

    assert _paths(plane) == {"canary": 1, "other": 1, "fallback": 1}


def test_the_stop_of_the_line_and_the_mode_are_seen(plane: ControlPlane) -> None:
    plane.fleet()

    assert scraped.value(plane, "steadyframe_fleet_enforcing", fleet=FLEET) == 1
    assert scraped.value(plane, "steadyframe_fleet_stopped", fleet=FLEET) == 0

    plane.done(f"/v1/fleets/{FLEET}/stop-the-line")
    plane.clock.advance(seconds=2)
    assert scraped.value(plane, "steadyframe_fleet_stopped", fleet=FLEET) == 1


def test_sessions_are_counted_by_outcome_and_by_rate(plane: ControlPlane) -> None:
    """One at exactly 24.0 is slow; one at 23.5 is very slow and slow."""
    plane.fleet("w-1")
    _send(
        plane,
        otlp_bodies.record("session.started", session="s-0", seq=1),
        _ended(2, fps=24.5),
        _ended(3, fps=24.0),
        _ended(4, fps=23.5),
        _ended(5, outcome="failed", reason="nan"),
        _ended(6, fps=20.0, is_synthetic=True),
    )

    ended = {
        (one.labels["outcome"], one.labels["traffic"]): one.value
        for one in scraped.families(plane)["steadyframe_sessions_ended_total"].samples
        if one.value
    }
    assert ended == {
        ("completed", "live"): 3,
        ("failed", "live"): 1,
        ("completed", "synthetic"): 1,
    }
    for name, live, synthetic in (("rated", 3, 1), ("slow", 2, 1), ("very_slow", 1, 1)):
        metric = f"steadyframe_sessions_{name}_total"
        assert scraped.value(plane, metric, **CPU, traffic="live") == live
        assert scraped.value(plane, metric, **CPU, traffic="synthetic") == synthetic
    assert scraped.value(plane, "steadyframe_sessions_open", fleet=FLEET) == 1


def test_records_are_counted_with_those_that_are_missing(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    _send(plane, _ended(1), _ended(4))
    _send(plane, _ended(1), _ended(5, num_first_chunk_frames=9999))
    _send(plane, otlp_bodies.record("session.ended", session="?", seq=6))
    plane.clock.advance(seconds=9)

    assert scraped.value(plane, "steadyframe_records_ingested_total", **CPU) == 2
    assert scraped.value(plane, "steadyframe_records_missing", **CPU) == 2
    assert scraped.value(plane, "steadyframe_newest_record_age_seconds", fleet=FLEET) == 9
    received = _by_label(plane, "steadyframe_records_received_total", "result")
    assert received == {"new": 2, "repeated": 1, "refused": 1, "unreadable": 1}


def test_a_rollback_is_counted_with_its_time(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2", "w-3")
    name = _start_canary(plane)
    _report(plane, "w-1", "fused_steady")
    plane.done(f"/v1/canaries/{name}/requests", kind="abort")
    plane.tick()
    plane.clock.advance(seconds=7)
    _report(plane, "w-1", "nccl")
    plane.tick()
    plane.clock.advance(seconds=4)
    _report(plane, "w-1", "nccl", flag_bytes={FLAG: 0})
    plane.tick()

    assert plane.get(f"/v1/canaries/{name}")["canary"]["phase"] == "rolled_back"
    assert _by_label(plane, "steadyframe_canary_rollbacks_total", "event") == {"abort_requested": 1}
    assert _by_label(plane, "steadyframe_canaries", "phase") == {"rolled_back": 1}
    for what, took_s in (("containment", 7), ("verification", 11)):
        metric = f"steadyframe_canary_{what}_seconds"
        assert scraped.value(plane, f"{metric}_sum", fleet=FLEET) == took_s
        assert scraped.value(plane, f"{metric}_bucket", fleet=FLEET, le="5.0") == 0
        assert scraped.value(plane, f"{metric}_bucket", fleet=FLEET, le="10.0") == (took_s <= 10)
        assert scraped.value(plane, f"{metric}_bucket", fleet=FLEET, le="30.0") == 1
    assert _by_label(plane, "steadyframe_flips_total", "layer")["canary"] == 1


def test_decisions_and_the_leaders_lease_are_seen(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    _start_canary(plane)
    num_decisions = len(plane.get("/v1/canaries/fused-allreduce-1/decisions")["items"])

    counted = _by_label(plane, "steadyframe_decisions_total", "verdict")

    assert sum(counted.values()) == num_decisions
    # The lease is three ticks of five seconds, of which reading has let two seconds pass.
    assert scraped.value(plane, "steadyframe_leader_lease_seconds") == 13


def test_another_replica_and_a_restart_count_the_same(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    _start_canary(plane)
    _send(plane, _ended(1, fps=20.0))
    context = plane.parts.context
    other = app.assemble(
        context.settings.model_copy(update={"state_dir": plane.state_dir}),
        database=context.database,
        clock=plane.clock,
        new_id=context.new_id,
    )

    with local_client(other.app) as client:
        answer = client.get("/metrics", headers=plane.admin)
        assert _of_store(answer.text) == _of_store(scraped.text(plane))
    assert "steadyframe_sessions_slow_total" in str(_of_store(scraped.text(plane)))


def test_two_applications_in_one_process_share_no_counter(
    plane: ControlPlane, new_id: CountingId
) -> None:
    parts = plane.parts
    with control_plane(
        parts.context.database, plane.state_dir, clock=plane.clock, new_id=new_id
    ) as other:
        other.client.get("/livez")

        assert 'route="/livez"' in scraped.text(other)
        assert 'route="/livez"' not in scraped.text(plane)


def test_scrapes_within_two_seconds_read_the_store_once(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    first = scraped.value(plane, "steadyframe_workers", **CPU, state="cordoned")
    plane.done(f"/v1/fleets/{FLEET}/workers/w-1/cordon")
    second = scraped.value(plane, "steadyframe_workers", **CPU, state="cordoned")

    assert (first, second) == (0, 0)
    assert _states(plane) == {"cordoned": 1}


def test_a_clock_that_is_set_back_does_not_keep_old_counts(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    scraped.text(plane)
    plane.done(f"/v1/fleets/{FLEET}/workers/w-1/cordon")
    plane.clock.advance(hours=-1)

    assert scraped.value(plane, "steadyframe_workers", **CPU, state="cordoned") == 1


def test_an_answer_is_counted_by_template_and_class(sqlite_plane: ControlPlane) -> None:
    plane = sqlite_plane
    plane.client.get("/v1/fleets/nowhere", headers=plane.admin)
    plane.client.get("/v1/fleets/elsewhere", headers=plane.admin)
    plane.client.get("/v1/fleets/nowhere")
    plane.client.get("/nothing/here")
    plane.client.get("/livez", headers={"Host": "evil.example"})

    def counted(route: str, status: str) -> float:
        labels = {"method": "GET", "route": route, "status": status}
        return scraped.value(plane, "steadyframe_http_requests_total", **labels)

    assert counted("/v1/fleets/{fleet}", "4xx") == 3
    assert counted("_unmatched", "4xx") == 2


def test_a_fault_of_ours_is_counted_as_one(sqlite_plane: ControlPlane) -> None:
    def fail() -> None:
        message = "broken on purpose"
        raise RuntimeError(message)

    sqlite_plane.client.app.add_api_route("/broken", fail)

    assert sqlite_plane.client.get("/broken").status_code == 500
    labels = {"method": "GET", "route": "/broken", "status": "5xx"}
    assert scraped.value(sqlite_plane, "steadyframe_http_requests_total", **labels) == 1


@pytest.mark.parametrize("topics", [["worker:a", "worker:b", "canaries"]])
def test_held_calls_are_counted_by_kind(topics: list[str]) -> None:
    async def held() -> dict[str, int]:
        signals = Signals()
        with (
            signals.subscription(topics[0]),
            signals.subscription(topics[1]),
            signals.subscription(topics[2]),
        ):
            return signals.num_waiting_by_kind()

    assert asyncio.run(held()) == {"worker": 2, "canaries": 1}


def _start_canary(plane: ControlPlane) -> str:
    """A canary that w-1 is exposed to."""
    wanted = {"fleet": FLEET, "flag": FLAG, "variant": "fused_steady", "policy": "demo"}
    name: str = plane.done("/v1/canaries", **wanted)["name"]
    plane.tick()
    plane.tick()
    return name


def _report(
    plane: ControlPlane, worker: str, variant: str, *, flag_bytes: dict[str, int] | None = None
) -> None:
    """All ranks of the worker run `variant`, under the newest generation."""
    generation = plane.desired(worker, after=0).json()["generation"]
    body = effective(worker, generation, flags={FLAG: variant})
    body["ranks"][0]["flag_bytes"] = flag_bytes or {}
    assert plane.as_worker(worker, "effective", **body).status_code == 204


def _of_store(text: str) -> list[str]:
    """The lines that do not depend on the process."""
    ours = [line for line in text.splitlines() if line.startswith("steadyframe_")]
    process = ("http_", "records_received", "held_calls", "build_info", "judge_tick", "store_read")
    return [
        line for line in ours if not line.startswith(tuple(f"steadyframe_{p}" for p in process))
    ]
