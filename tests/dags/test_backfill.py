"""What a backfill does next, whatever became of its runs."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.conftest import MakeStream
from tidemark.core.errors import ConfigError, IncompleteError
from tidemark.orchestration.backfill import (
    DayRun,
    all_ended,
    backfill_days,
    day_run_id,
    day_run_ids,
    day_runs,
    progress,
    to_start,
)
from tidemark.orchestration.tasks import reason
from tidemark.reconcile.results import FINALIZE_PLAN
from tidemark.run import Run, run_name
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(51)

MON, TUE, WED = date(2013, 1, 14), date(2013, 1, 15), date(2013, 1, 16)
DAYS = (MON, TUE, WED)


def runs(attempts: int, /, **states: str | None) -> tuple[DayRun, ...]:
    """How the days stand where the last task of run ``<day>_<attempt>`` has this state."""
    names = {"mon": MON, "tue": TUE, "wed": WED}
    tasks = {}
    for name, state in states.items():
        day, attempt = name.split("_")
        sealed = "success" if state in {None, "running", "success"} else "failed"
        tasks[day_run_id("manual", names[day], int(attempt))] = {"seal": sealed, "complete": state}
    return day_runs("manual", DAYS, attempts, tasks, lambda *_: False)


def test_days_are_started_in_their_order_as_many_at_once_as_the_form_says() -> None:
    assert to_start(runs(1), 1, 2) == (MON, TUE)
    assert to_start(runs(1, mon_1=None), 1, 2) == (TUE,)
    assert to_start(runs(1, mon_1=None, tue_1="running"), 1, 2) == ()
    assert to_start(runs(1, mon_1=None, tue_1=None), 1, 1) == ()


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "skipped", "removed"])
def test_a_day_that_failed_holds_up_no_other_and_is_not_started_again(state: str) -> None:
    stand = runs(1, mon_1=state, tue_1="success")
    assert to_start(stand, 1, 1) == (WED,)
    assert not all_ended(stand, 1)
    ended = runs(1, mon_1=state, tue_1="success", wed_1="success")
    assert to_start(ended, 1, 2) == ()
    assert all_ended(ended, 1)


def test_a_sealed_day_is_done_although_its_run_failed_for_holding_another_one_back() -> None:
    run = day_run_id("manual", MON, 1)
    tasks = {run: {"seal": "success", "complete": "failed"}}
    (monday, *_) = day_runs("manual", DAYS, 1, tasks, lambda held_by, day: (held_by, day) == (run, TUE))
    assert (monday.state, to_start((monday,), 2, 1)) == ("success", ())


def test_a_day_that_its_run_held_back_failed_although_the_run_has_sealed_others() -> None:
    run = day_run_id("manual", MON, 1)
    tasks = {run: {"seal": "success", "complete": "failed"}}
    (monday, *_) = day_runs("manual", DAYS, 1, tasks, lambda held_by, day: (held_by, day) == (run, MON))
    assert (monday.state, to_start((monday,), 2, 1)) == ("failed", (MON,))


def test_the_next_attempt_starts_the_days_that_failed_and_takes_over_those_that_run() -> None:
    stand = runs(2, mon_1="failed", tue_1="success", wed_1="running")
    assert to_start(stand, 2, 2) == (MON,)
    assert not all_ended(stand, 2)
    again = runs(2, mon_1="failed", mon_2="success", tue_1="success", wed_1="success")
    assert (to_start(again, 2, 2), all_ended(again, 2)) == ((), True)
    assert again[0].run == "2013-01-14__manual__2"


def test_a_day_that_fails_in_the_next_attempt_too_stays_failed() -> None:
    stand = runs(2, mon_1="failed", mon_2="upstream_failed", tue_1="success", wed_1="success")
    assert (to_start(stand, 2, 2), all_ended(stand, 2)) == ((), True)
    assert (stand[0].state, stand[0].attempt) == ("failed", 2)


def test_every_run_that_may_be_there_is_asked_for() -> None:
    assert day_run_ids("manual", (MON, TUE), 2) == [
        "2013-01-14__manual__1",
        "2013-01-14__manual__2",
        "2013-01-15__manual__1",
        "2013-01-15__manual__2",
    ]


def test_the_log_names_the_days_that_failed_and_those_that_run() -> None:
    told = progress(runs(1, mon_1="failed", tue_1=None))
    assert told == "0 success, 1 failed (2013-01-14), 1 running (2013-01-15), 1 waiting"


def test_a_backfill_takes_days_that_are_over_in_the_streams_zone() -> None:
    zone = ZoneInfo("America/New_York")
    over = datetime(2013, 1, 17, 5, tzinfo=UTC)  # midnight in New York
    assert backfill_days("2013-01-14", "2013-01-16", now=over, zone=zone) == DAYS
    with pytest.raises(ConfigError, match=r"is not over: expected a to_day before 2013-01-16, found 2013-01-16"):
        backfill_days("2013-01-14", "2013-01-16", now=datetime(2013, 1, 17, 4, 59, tzinfo=UTC), zone=zone)


def test_a_backfill_takes_a_thousand_days() -> None:
    now = datetime(2020, 1, 1, tzinfo=UTC)
    assert len(backfill_days("2013-01-01", "2015-09-27", now=now, zone=UTC)) == 1000
    with pytest.raises(ConfigError, match="at most 1000 days, found 1001 days, 2013-01-01 to 2015-09-28"):
        backfill_days("2013-01-01", "2015-09-28", now=now, zone=UTC)


def test_a_day_whose_plan_could_not_be_settled_tells_why(settings: Settings, make_stream: MakeStream) -> None:
    stream, run = make_stream(), day_run_id("manual", MON, 1)
    with (
        pytest.raises(IncompleteError),
        Run.open(stream.name, run_name(run), settings).step(FINALIZE_PLAN),
    ):
        raise IncompleteError("offsets are lost")
    assert reason(stream.name, run) == "finalize_plan: offsets are lost"
