"""Whole runs and backfills under a real Airflow: killed in every step, and beside each other. For make soak.

A run takes two minutes and more on two cores: three Spark applications, one after the other. Each test has a name of
its own to be run by: ``.venv/bin/python -m pytest -m soak -k NAME tests/dags``.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise

import pytest

from tests.conftest import MakeStream, Produce
from tests.dags.days import MONDAY, PARTITIONS, SATURDAY, SUNDAY, TUESDAY, ZONE, Days
from tests.dags.kills import Killer, each_step_twice
from tests.dags.runs import (
    ENDED,
    PATIENCE_S,
    instances,
    kill_task,
    read_until,
    run_states,
    wait_for_dags,
    wait_for_kill,
)
from tests.faults import FaultProxy
from tests.waiting import wait_until
from tidemark.maintenance.run import MAINTAIN
from tidemark.orchestration.steps import STEPS
from tidemark.reconcile.results import ROLLBACK
from tidemark.run import Run, run_name
from tidemark.settings import Settings
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.airflow_api import AirflowApi
from tidemark.stack.local import PROJECT, LocalStack

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]
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
def proxy(stack: LocalStack) -> Iterator[FaultProxy]:
    """In front of the S3 server, for everything that Airflow runs."""
    with FaultProxy(str(stack.settings.s3_endpoint)) as running:
        yield running


@pytest.fixture(scope="module")
def airflow(
    stack: LocalStack, proxy: FaultProxy, unarchived: Days, by_form: Days, struck: Days, native: Days, two_days: Days
) -> Iterator[LocalAirflow]:
    running = LocalAirflow(stack, schedules=False, extra_env={"TIDEMARK_S3_ENDPOINT": proxy.url})
    try:
        running.start()
        for days in (unarchived, by_form, struck, native, two_days):
            kinds = ("reconcile", "backfill", "rollback", "maintain")
            wait_for_dags(running.api, [f"{kind}_{days.stream.name}" for kind in kinds])
        yield running
    finally:
        running.stop()


@pytest.mark.conformance(17)
def test_a_run_killed_twice_in_each_of_its_steps_publishes_and_seals_its_days_once(
    airflow: LocalAirflow, proxy: FaultProxy, unarchived: Days
) -> None:
    api, days, dag = airflow.api, unarchived, f"reconcile_{unarchived.stream.name}"
    kills = each_step_twice(days.stream, SUNDAY)
    killer = Killer(proxy, airflow.components["airflow-scheduler"].pid, kills)
    run = api.trigger(dag, {"from_day": str(SATURDAY), "to_day": str(SUNDAY)})

    read_until(lambda: api.run_state(dag, run) in ENDED, days)

    tasks = {item.task: (item.state, item.tries) for item in api.task_states(dag, run)}
    assert killer.done == list(kills), tasks
    assert {step.name: tasks[step.name] for step in STEPS} == {step.name: ("success", 3) for step in STEPS}
    assert api.run_state(dag, run) == "success"
    name = run_name(run)
    assert days.seals() == [(str(SATURDAY), 1, name), (str(SUNDAY), 1, name)]
    for table in (days.stream.table, days.stream.quarantine_table):
        assert days.publishers(table) == [name]
    days.require_proven((SATURDAY, SUNDAY))


@pytest.mark.conformance(51)
def test_a_backfill_by_form_beside_the_daily_run_goes_on_behind_a_day_that_fails_and_runs_only_that_one_again(
    airflow: LocalAirflow, by_form: Days
) -> None:
    api, days, name = airflow.api, by_form, by_form.stream.name
    dag, backfill_dag = f"reconcile_{name}", f"backfill_{name}"
    asked = {"from_day": str(SATURDAY), "to_day": str(MONDAY), "at_once": 1}
    backfill = api.trigger(backfill_dag, asked)
    daily = _trigger_daily(api, dag, TUESDAY)
    runs = {day: f"{day}__{backfill}__1" for day in (SATURDAY, SUNDAY, MONDAY)}

    def strike() -> bool:
        return run_states(api, dag).get(runs[SATURDAY]) == "failed" and kill_task(
            airflow, backfill_dag, backfill, "reconcile"
        )

    wait_until(strike, "its own task is struck behind the day that failed", PATIENCE_S)
    read_until(lambda: api.run_state(backfill_dag, backfill) in ENDED and run_states(api, dag)[daily] in ENDED, days)

    good = {SUNDAY: runs[SUNDAY], MONDAY: runs[MONDAY], TUESDAY: daily}
    assert run_states(api, dag) == {runs[SATURDAY]: "failed", **dict.fromkeys(good.values(), "success")}
    assert _day_states(api, backfill_dag, backfill) == {
        "2024-03-30": "failed",
        "2024-03-31": "success",
        "2024-04-01": "success",
    }
    told = _log(airflow, backfill_dag, backfill, "day")
    assert f"2024-03-30 failed, see run {runs[SATURDAY]} of {dag}: audit: " in told
    # One at a time, though the DAG would let two: each began when the one before had ended.
    spans = [_span(api, dag, runs[day]) for day in (SATURDAY, SUNDAY, MONDAY)]
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), spans
    assert days.seals() == [(str(day), 1, run_name(run)) for day, run in good.items()]
    days.require_proven(tuple(good))

    days.let_pass()
    cleared = {"dag_run_id": backfill, "task_ids": ["reconcile"], "include_downstream": True, "only_failed": False}
    api._authorised("POST", f"/api/v2/dags/{backfill_dag}/clearTaskInstances", json={**cleared, "dry_run": False})
    read_until(lambda: api.run_state(backfill_dag, backfill) in ENDED, days)

    again = f"{SATURDAY}__{backfill}__3"  # its task has had two tries before it was cleared
    assert run_states(api, dag) == {
        runs[SATURDAY]: "failed",
        **dict.fromkeys((*good.values(), again), "success"),
    }
    assert set(_day_states(api, backfill_dag, backfill).values()) == {"success"}
    assert days.seals() == [(str(day), 1, run_name(run)) for day, run in [(SATURDAY, again), *good.items()]]
    days.require_proven((SATURDAY, *good))


@pytest.mark.conformance(51)
def test_a_backfill_by_form_whose_own_task_is_killed_twice_starts_each_day_once(
    airflow: LocalAirflow, struck: Days
) -> None:
    api, days, name = airflow.api, struck, struck.stream.name
    dag, backfill_dag = f"reconcile_{name}", f"backfill_{name}"
    backfill = api.trigger(backfill_dag, {"from_day": str(SATURDAY), "to_day": str(SUNDAY), "at_once": 1})

    def strike() -> bool:
        return kill_task(airflow, backfill_dag, backfill, "reconcile")

    wait_until(strike, "the first attempt is struck", PATIENCE_S)
    wait_until(lambda: "running" in run_states(api, dag).values() and strike(), "the next one is struck", PATIENCE_S)

    read_until(lambda: api.run_state(backfill_dag, backfill) in ENDED, days)

    tasks = {item.task: (item.state, item.tries) for item in api.task_states(backfill_dag, backfill)}
    assert tasks["reconcile"] == ("success", 3)
    runs = run_states(api, dag)
    assert sorted(run.partition("__")[0] for run in runs) == [str(SATURDAY), str(SUNDAY)]
    assert set(runs.values()) == {"success"}
    assert days.seals() == [(run.partition("__")[0], 1, run_name(run)) for run in sorted(runs)]
    days.require_proven((SATURDAY, SUNDAY))


@pytest.mark.conformance(18, 51)
def test_airflows_own_backfill_beside_a_run_of_one_of_its_days_leaves_each_day_whole_and_one_that_fails_alone(
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
    assert _most_at_once(spans) <= 2
    (sunday,) = (run for run in backfilled if run.startswith(f"backfill__{SUNDAY}"))  # it begins as the day is over
    assert _most_at_once([_span(api, dag, sunday), _span(api, dag, by_hand)]) == 2
    # Both want the Sunday; where the forced run came first, the other one finds nothing new.
    sealed = days.seals()
    both = [(str(SUNDAY), 1), (str(SUNDAY), 2), (str(MONDAY), 1)]
    assert [item[:2] for item in sealed] in (both, [both[0], both[2]])
    assert [run for day, _, run in sealed if day == str(SUNDAY)][-1] == run_name(by_hand)
    days.require_proven((SUNDAY, MONDAY))


@pytest.mark.conformance(17)
def test_a_run_whose_rebuild_is_killed_and_a_backfill_beside_it_publish_and_seal_each_day_once_and_whole(
    airflow: LocalAirflow, settings: Settings, two_days: Days
) -> None:
    """Behind them another version of a day while the stream is maintained, and a rollback to the first one, by form."""
    api, name = airflow.api, two_days.stream.name
    kinds = ("reconcile", "backfill", "rollback", "maintain")
    dag, backfill_dag, rollback_dag, maintain_dag = (f"{kind}_{name}" for kind in kinds)
    backfill = api.trigger(backfill_dag, {"from_day": str(SATURDAY), "to_day": str(SATURDAY)})
    run = api.trigger(dag, {"from_day": str(SUNDAY), "to_day": str(SUNDAY)})
    wait_for_kill(airflow, dag, run, "rebuild")

    read_until(lambda: {api.run_state(backfill_dag, backfill), api.run_state(dag, run)} <= ENDED, two_days)

    tasks = {item.task: (item.state, item.tries) for item in api.task_states(dag, run)}
    assert (tasks["rebuild"], tasks["seal"]) == (("success", 2), ("success", 1))
    of_saturday = f"{SATURDAY}__{backfill}__1"
    assert run_states(api, dag) == {run: "success", of_saturday: "success"}
    assert two_days.seals() == [(str(SATURDAY), 1, run_name(of_saturday)), (str(SUNDAY), 1, run_name(run))]
    assert sorted(two_days.publishers(two_days.stream.table)) == sorted([run_name(of_saturday), run_name(run)])
    two_days.require_proven((SATURDAY, SUNDAY))

    again = api.trigger(dag, {"from_day": str(SUNDAY), "to_day": str(SUNDAY), "force": True})
    upkeep = api.trigger(maintain_dag, {})
    read_until(lambda: {api.run_state(dag, again), api.run_state(maintain_dag, upkeep)} <= ENDED, two_days)
    back = api.trigger(rollback_dag, {"day": str(SUNDAY), "version": 1})
    read_until(lambda: api.run_state(rollback_dag, back) in ENDED, two_days)

    for of, ended, task in ((maintain_dag, upkeep, "maintain"), (rollback_dag, back, "rollback")):
        assert [(item.task, item.state) for item in api.task_states(of, ended)] == [(task, "success")]
    told = Run.open(name, run_name(upkeep), settings).require(MAINTAIN)
    assert (told["ledger"]["manifests"], told["tables"].keys()) == (
        len(PARTITIONS),
        {two_days.stream.table, two_days.stream.quarantine_table},
    )
    rolled_back = Run.open(name, run_name(back), settings).require(ROLLBACK)
    assert (rolled_back.sealed.day, rolled_back.sealed.version) == (SUNDAY, 3)
    assert (rolled_back.rolled_back_to, rolled_back.already) == (1, False)
    of_sunday = (run_name(run), run_name(again), f"rollback-{SUNDAY}-3-to-1")
    assert two_days.seals()[1:] == [(str(SUNDAY), version, own) for version, own in enumerate(of_sunday, 1)]
    two_days.require_proven((SATURDAY, SUNDAY))


def _trigger_daily(api: AirflowApi, dag: str, day: date) -> str:
    """The run that the schedule makes of a day: half past midnight behind it, for the 24 hours before."""
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


def _day_states(api: AirflowApi, dag: str, run: str) -> Mapping[str, str]:
    """How the task ``day`` of a backfill by form ended, by its label."""
    return {item["rendered_map_index"]: item["state"] for item in instances(api, dag, run) if item["task_id"] == "day"}


def _span(api: AirflowApi, dag: str, run: str) -> Span:
    """When the run's first task began and its last one ended, but for the report: a failed day ends without it."""
    tasks = [item for item in instances(api, dag, run) if item["task_id"] != "report"]
    starts, ends = (
        [datetime.fromisoformat(item[key]) for item in tasks if item[key]] for key in ("start_date", "end_date")
    )
    return min(starts), max(ends)


def _most_at_once(spans: Sequence[Span]) -> int:
    return max(sum(start <= moment < end for start, end in spans) for moment, _ in spans)


def _log(airflow: LocalAirflow, dag: str, run: str, task: str) -> str:
    folder = airflow.home / "logs" / f"dag_id={dag}" / f"run_id={run}" / f"task_id={task}"
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.log")))
