"""Whole runs and backfills under a real Airflow: killed in every step, and beside each other. For make soak.

A run takes two minutes and more on two cores: three Spark applications, one after the other. Each test has a name of
its own to be run by: ``.venv/bin/python -m pytest -m soak -k NAME tests/dags``.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise

import pytest

from tests.conftest import MakeStream, Produce
from tests.dags.days import MONDAY, PARTITIONS, SATURDAY, SUNDAY, TUESDAY, ZONE, Days
from tests.dags.kills import Killer, each_step_twice
from tests.dags.runs import (
    BACKFILL,
    ENDED,
    PATIENCE_S,
    chunk_states,
    clear,
    instances,
    kill_task,
    read_until,
    run_states,
    running_airflow,
    task_log,
    tries_at_least,
    tries_of,
    wait_for_dags,
    wait_for_kill,
)
from tests.faults import FaultProxy
from tests.waiting import wait_until
from tidemark.installation import PROJECT
from tidemark.maintenance.run import MAINTAIN
from tidemark.orchestration.steps import LEASED, STEPS
from tidemark.reconcile.results import ROLLBACK
from tidemark.run import Run, run_name
from tidemark.settings import Settings
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.airflow_api import AirflowApi
from tidemark.stack.local import LocalStack

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]
ROLLBACK_DAG, MAINTENANCE = "tidemark_rollback", "tidemark_maintenance"
Span = tuple[datetime, datetime]


@pytest.fixture(scope="module")
def unarchived(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    """A stream that never ran: every record has to be refilled from Kafka."""
    return Days.make(settings, make_stream, produce, (SATURDAY, SUNDAY))


@pytest.fixture(scope="module")
def by_form(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    days = Days.make(settings, make_stream, produce, (SATURDAY, SUNDAY, MONDAY, TUESDAY), wrong=SATURDAY)
    days.archive()
    return days


@pytest.fixture(scope="module")
def struck(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    days = Days.make(settings, make_stream, produce, (SATURDAY, SUNDAY))
    days.archive()
    return days


@pytest.fixture(scope="module")
def native(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    days = Days.make(settings, make_stream, produce, (SATURDAY, SUNDAY, MONDAY), wrong=SATURDAY)
    days.archive()
    return days


@pytest.fixture(scope="module")
def two_days(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    days = Days.make(settings, make_stream, produce, (SATURDAY, SUNDAY))
    days.archive()
    return days


@pytest.fixture(scope="module")
def airflow(
    stack: LocalStack, proxy: FaultProxy, unarchived: Days, by_form: Days, struck: Days, native: Days, two_days: Days
) -> Iterator[LocalAirflow]:
    own = {"TIDEMARK_S3_ENDPOINT": proxy.url}
    with running_airflow(stack, own) as running:
        streams = [days.stream.name for days in (unarchived, by_form, struck, native, two_days)]
        wait_for_dags(running.api, [*(f"reconcile_{name}" for name in streams), BACKFILL, ROLLBACK_DAG, MAINTENANCE])
        yield running


@pytest.mark.conformance(17)
def test_a_run_killed_twice_in_each_of_its_steps_publishes_and_seals_its_days_once(
    airflow: LocalAirflow, proxy: FaultProxy, unarchived: Days
) -> None:
    api, days, dag = airflow.api, unarchived, f"reconcile_{unarchived.stream.name}"
    kills = each_step_twice(days.stream, SUNDAY)
    killer = Killer(proxy, airflow.components["airflow-scheduler"], kills)
    run = api.trigger(dag, {"from_day": str(SATURDAY), "to_day": str(SUNDAY)})

    read_until(lambda: api.run_state(dag, run) in ENDED, days)

    tasks = tries_of(api, dag, run)
    assert killer.done == list(kills), tasks
    states = {step.name: ("success", 3) for step in STEPS}
    states |= dict.fromkeys(("approve", "delivery"), ("skipped", 1))  # nothing to ask, and no speed layer
    states |= {"rebuild": ("success", 5), "audit": ("success", 1)}  # the rebuild's application does both
    assert tries_at_least(tasks, states) == states
    assert api.run_state(dag, run) == "success"
    name = run_name(run)
    assert days.seals() == [(str(SATURDAY), 1, name), (str(SUNDAY), 1, name)]
    for table in (days.stream.table, days.stream.quarantine_table):
        assert days.publishers(table) == [name]
    days.require_proven((SATURDAY, SUNDAY))


@pytest.mark.conformance(51)
def test_a_backfill_beside_a_daily_run_continues_after_a_failed_chunk_and_repeats_it(
    airflow: LocalAirflow, by_form: Days
) -> None:
    api, days, dag = airflow.api, by_form, f"reconcile_{by_form.stream.name}"
    backfill = _trigger_backfill(api, by_form, SATURDAY, MONDAY)
    daily = _trigger_daily(api, dag, TUESDAY)
    runs = {day: f"{day}__{backfill}__1" for day in (SATURDAY, SUNDAY, MONDAY)}
    read_until(lambda: api.run_state(BACKFILL, backfill) in ENDED and run_states(api, dag)[daily] in ENDED, days)

    good = {SUNDAY: runs[SUNDAY], MONDAY: runs[MONDAY], TUESDAY: daily}
    assert run_states(api, dag) == {runs[SATURDAY]: "failed", **dict.fromkeys(good.values(), "success")}
    chunks = {"2024-03-30": "failed", "2024-03-31": "success", "2024-04-01": "success"}
    assert chunk_states(api, backfill) == chunks
    reason = f"2024-03-30: run {runs[SATURDAY]} of {dag} failed: audit: "
    assert reason in task_log(airflow, BACKFILL, backfill, "chunk", map_index=0)
    # One at a time, though the DAG would let two: each began when the one before had ended.
    spans = [_span(api, dag, runs[day]) for day in (SATURDAY, SUNDAY, MONDAY)]
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), spans
    assert days.seals() == [(str(day), 1, run_name(run)) for day, run in good.items()]
    days.require_proven(tuple(good))

    days.let_pass()
    clear(api, backfill, map_index=0)
    read_until(lambda: api.run_state(BACKFILL, backfill) in ENDED, days)

    repeated = f"{SATURDAY}__{backfill}__2"
    assert run_states(api, dag) == {
        runs[SATURDAY]: "failed",
        **dict.fromkeys((*good.values(), repeated), "success"),
    }
    assert chunk_states(api, backfill) == dict.fromkeys(chunks, "success")
    assert days.seals() == [(str(day), 1, run_name(run)) for day, run in [(SATURDAY, repeated), *good.items()]]
    days.require_proven((SATURDAY, *good))


@pytest.mark.conformance(51)
def test_a_backfill_whose_own_task_is_killed_twice_starts_each_chunk_once(airflow: LocalAirflow, struck: Days) -> None:
    api, days, dag = airflow.api, struck, f"reconcile_{struck.stream.name}"
    backfill = _trigger_backfill(api, struck, SATURDAY, SUNDAY)

    def strike() -> bool:
        return kill_task(airflow, BACKFILL, backfill, "chunk")

    wait_until(strike, "the first attempt is struck", PATIENCE_S)
    wait_until(strike, "the next one is struck", PATIENCE_S)

    read_until(lambda: api.run_state(BACKFILL, backfill) in ENDED, days)

    assert set(chunk_states(api, backfill).values()) == {"success"}
    runs = run_states(api, dag)
    assert sorted(runs) == [f"{day}__{backfill}__1" for day in (SATURDAY, SUNDAY)]
    assert set(runs.values()) == {"success"}
    assert days.seals() == [(run.partition("__")[0], 1, run_name(run)) for run in sorted(runs)]
    days.require_proven((SATURDAY, SUNDAY))


@pytest.mark.conformance(18, 51)
def test_airflows_own_backfill_beside_a_daily_run_leaves_each_day_whole_or_as_it_was(
    airflow: LocalAirflow, native: Days
) -> None:
    api, days, dag = airflow.api, native, f"reconcile_{native.stream.name}"
    # In this order: on SQLite, Airflow's backfill command fails where a run under way writes at the same moment.
    _backfill(airflow, dag, SATURDAY, MONDAY)
    backfilled = list(run_states(api, dag))
    assert len(backfilled) == 3
    by_hand = api.trigger(dag, {"from_day": str(SUNDAY), "to_day": str(SUNDAY), "force": True})

    read_until(lambda: set(run_states(api, dag).values()) <= ENDED, days)

    assert sorted(run_states(api, dag).values()) == ["failed", "success", "success", "success"]
    assert run_states(api, dag)[by_hand] == "success"
    spans = [_span(api, dag, run) for run in backfilled]
    # Airflow starts several of them at once; each waits for the stream's lease before its first step.
    assert _most_at_once([*spans, _span(api, dag, by_hand)]) == 1
    # Both want the Sunday; where the forced run came first, the other one finds nothing new.
    sealed = days.seals()
    both = [(str(SUNDAY), 1), (str(SUNDAY), 2), (str(MONDAY), 1)]
    assert [item[:2] for item in sealed] in (both, [both[0], both[2]])
    assert [run for day, _, run in sealed if day == str(SUNDAY)][-1] == run_name(by_hand)
    days.require_proven((SUNDAY, MONDAY))


@pytest.mark.conformance(17)
def test_a_killed_rebuild_and_a_backfill_beside_it_seal_each_day_once_and_whole(
    airflow: LocalAirflow, settings: Settings, two_days: Days
) -> None:
    """Then another version of a day while the stream is maintained, and a rollback to the first version."""
    api, name = airflow.api, two_days.stream.name
    dag = f"reconcile_{name}"
    backfill = _trigger_backfill(api, two_days, SATURDAY, SATURDAY)
    run = api.trigger(dag, {"from_day": str(SUNDAY), "to_day": str(SUNDAY)})
    wait_for_kill(airflow, dag, run, "rebuild")

    read_until(lambda: {api.run_state(BACKFILL, backfill), api.run_state(dag, run)} <= ENDED, two_days)

    tasks = tries_of(api, dag, run)
    expected = {"rebuild": ("success", 2), "seal": ("success", 1)}
    assert tries_at_least(tasks, expected) == expected
    of_saturday = f"{SATURDAY}__{backfill}__1"
    assert run_states(api, dag) == {run: "success", of_saturday: "success"}
    assert two_days.seals() == [(str(SATURDAY), 1, run_name(of_saturday)), (str(SUNDAY), 1, run_name(run))]
    assert sorted(two_days.publishers(two_days.stream.table)) == sorted([run_name(of_saturday), run_name(run)])
    two_days.require_proven((SATURDAY, SUNDAY))

    repeated = api.trigger(dag, {"from_day": str(SUNDAY), "to_day": str(SUNDAY), "force": True})
    maintenance = api.trigger(MAINTENANCE, {"stream": name})
    read_until(lambda: {api.run_state(dag, repeated), api.run_state(MAINTENANCE, maintenance)} <= ENDED, two_days)
    back = api.trigger(ROLLBACK_DAG, {"stream": name, "day": str(SUNDAY), "version": 1})
    read_until(lambda: api.run_state(ROLLBACK_DAG, back) in ENDED, two_days)

    states = [(item["task_id"], item["rendered_map_index"]) for item in instances(api, MAINTENANCE, maintenance)]
    assert sorted(states) == [("maintain", name), ("streams", None)]
    assert {api.run_state(MAINTENANCE, maintenance), api.run_state(ROLLBACK_DAG, back)} == {"success"}
    events = api._authorised("GET", "/api/v2/assets/events?source_dag_id=tidemark_rollback")["asset_events"]
    days = {"days": {str(SUNDAY): 3}, "quality": {str(SUNDAY): "unchecked"}, "rolled_back_to": 1}
    extra, uri = {"stream": name, "run": back, **days}, f"tidemark://streams/{name}"
    announced = sorted((event["uri"], event["partition_key"], event["extra"]) for event in events)
    assert announced == [(f"{uri}/day", str(SUNDAY), extra), (f"{uri}/sealed", None, extra)]
    maintained = Run.open(name, run_name(maintenance), settings).require(MAINTAIN)
    assert (maintained["ledger"]["manifests"], maintained["tables"].keys()) == (
        len(PARTITIONS),
        {two_days.stream.table, two_days.stream.quarantine_table},
    )
    rolled_back = Run.open(name, run_name(back), settings).require(ROLLBACK)
    assert (rolled_back.sealed.day, rolled_back.sealed.version) == (SUNDAY, 3)
    assert (rolled_back.rolled_back_to, rolled_back.already) == (1, False)
    of_sunday = (run_name(run), run_name(repeated), f"rollback-{SUNDAY}-3-to-1")
    assert two_days.seals()[1:] == [(str(SUNDAY), version, own) for version, own in enumerate(of_sunday, 1)]
    two_days.require_proven((SATURDAY, SUNDAY))


def _trigger_backfill(api: AirflowApi, days: Days, first: date, last: date) -> str:
    """A backfill with a run per day."""
    form = {"stream": days.stream.name, "from_day": str(first), "to_day": str(last), "days_per_run": 1}
    return api.trigger(BACKFILL, form)


def _trigger_daily(api: AirflowApi, dag: str, day: date) -> str:
    """The run that the schedule makes of a day: half past midnight after it, for the 24 hours before."""
    start = datetime(day.year, day.month, day.day, 0, 30, tzinfo=ZONE)
    asked = {
        "dag_run_id": f"scheduled_for_{day}",
        "logical_date": start.isoformat(),
        "data_interval_start": start.isoformat(),
        "data_interval_end": (start + timedelta(days=1)).isoformat(),
    }
    return str(api._authorised("POST", f"/api/v2/dags/{dag}/dagRuns", json=asked)["dag_run_id"])


def _backfill(airflow: LocalAirflow, dag: str, first: date, last: date) -> None:
    """The command of the operators' page."""
    start, end = (datetime(day.year, day.month, day.day, tzinfo=ZONE) for day in (first, last))
    command = ["airflow", "backfill", "create", "--dag-id", dag, "--max-active-runs", "2"]
    span = ["--from-date", start.isoformat(), "--to-date", (end + timedelta(hours=23, minutes=59)).isoformat()]
    done = subprocess.run(
        [sys.executable, "-m", *command, *span],
        env={**os.environ, **airflow.env},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _span(api: AirflowApi, dag: str, run: str) -> Span:
    """When the first step began that needs the stream's lease, and when the last one ended."""
    steps = [item for item in instances(api, dag, run) if item["task_id"] in LEASED and item["state"] in ENDED]
    starts, ends = ([datetime.fromisoformat(item[key]) for item in steps] for key in ("start_date", "end_date"))
    return min(starts), max(ends)


def _most_at_once(spans: Sequence[Span]) -> int:
    return max(sum(start <= moment < end for start, end in spans) for moment, _ in spans)
