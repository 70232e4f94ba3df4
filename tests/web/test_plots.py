"""What charts say to whom looks closer: values in, series and escaped words out."""

import json
import math
from dataclasses import asdict, replace
from datetime import timedelta

from controlplane.contract.vocabulary import Outcome
from controlplane.domain.canary import Event, Phase
from controlplane.store.history import Transition
from controlplane.store.session_views import SessionView
from controlplane.web.present import plots
from tests.clock import START

SESSION = SessionView(
    id="s-1",
    worker="w-1",
    arm="canary",
    flags={"fused_allreduce": "fused_all"},
    first_forward_length=16,
    started_at=START,
    updated_at=START,
    outcome=Outcome.COMPLETED,
    reason=None,
    fps=25.0,
    streamed_s=5.0,
)
WEEK = {"num_sessions": 2000, "num_rated": 1600, "num_slow": 400, "num_very_slow": 16}


def moved(event: Event, *, seconds: int) -> Transition:
    return Transition(
        sequence=seconds,
        canary_id="c",
        event=event,
        phase_from=Phase.PROGRESSING,
        phase_to=Phase.PROGRESSING,
        step=0,
        reason="",
        actor="someone",
        decision_id=None,
        at=START + timedelta(seconds=seconds),
    )


def test_each_arm_is_a_series_in_the_order_of_time() -> None:
    later = replace(SESSION, id="s-2", started_at=START + timedelta(seconds=9), fps=23.0)
    beside = replace(SESSION, id="s-3", arm=None)

    plot = plots.sessions([later, SESSION, beside], ())

    assert plot is not None
    control, canary = plot.series
    assert [(control.role, len(control.points)), canary.role] == [("control", 1), "canary"]
    assert [point.y for point in canary.points] == [25.0, 23.0]
    assert [point.is_slow for point in canary.points] == [False, True]
    assert canary.points[1].x == "2026-10-08 12:00:09.000000"
    assert canary.points[1].says.startswith("23.00 fps, canary, slow<br>w-1, ")
    assert plot.floor == 24.0


def test_sessions_without_a_rate_are_no_points() -> None:
    """A rate that is missing or no number must not be drawn as one; JSON has no NaN either."""
    for fps in (None, math.nan, math.inf):
        assert plots.sessions([replace(SESSION, fps=fps)], ()) is None
    plot = plots.sessions([SESSION, replace(SESSION, fps=math.nan)], ())
    assert plot is not None
    assert "NaN" not in json.dumps(asdict(plot), allow_nan=False)


def test_steps_are_marked_where_they_began() -> None:
    happened = [moved(Event.STEP_PASSED, seconds=5), moved(Event.PREFLIGHT_PASSED, seconds=1)]
    quiet = moved(Event.VERIFICATION_SEEN, seconds=8)

    plot = plots.sessions([SESSION], [quiet, *happened])

    assert plot is not None
    assert [(mark.x[-9:], mark.says) for mark in plot.marks] == [
        ("01.000000", "first step"),
        ("05.000000", "next step"),
    ]


def test_words_of_others_are_escaped_for_plotly() -> None:
    """Plotly reads links and line breaks in words, so a worker's name could be one."""
    plot = plots.sessions([replace(SESSION, worker='<a href="//evil">w & co</a>')], ())

    assert plot is not None
    says = plot.series[1].points[0].says
    assert "<a" not in says
    assert '&lt;a href="//evil"&gt;w &amp; co&lt;/a&gt;' in says


def test_weeks_count_what_their_rates_are_of() -> None:
    plot = plots.weeks({"2026-W40": {**WEEK, "num_failed": 10}})

    slow, very, failed = (series.points[0] for series in plot.series)
    assert (slow.y, very.y, failed.y) == (0.25, 0.01, 0.005)
    assert slow.says == "2026-W40: 25.0 % slow<br>400 of 1,600 rated sessions"
    assert very.says == "2026-W40: 1.0 % very slow<br>16 of 1,600 rated sessions"
    assert failed.says == "2026-W40: 0.5 % failed<br>10 of 2,000 sessions that started"


def test_a_week_without_rated_sessions_has_failures_only() -> None:
    plot = plots.weeks({"2026-W40": {**WEEK, "num_rated": 0, "num_failed": 2000}})

    assert [len(series.points) for series in plot.series] == [0, 0, 1]
