"""Airflow of the local stack, for real: what its own scheduler and DAG processor make of our DAGs.

It starts once, and every run that does not follow another one is under way from the beginning: a test awaits its own.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.conftest import MakeStream, Produce
from tests.dags.days import SUNDAY, Days
from tests.dags.runs import ENDED, EVERY_S, read_until, run_states, wait_for_dags, wait_for_end, wait_for_kill
from tests.speed.dead_letters import letter, source_id
from tests.speed.live import read_topic
from tests.waiting import wait_until
from tidemark.definitions.stream import Stream
from tidemark.run import Run, run_name
from tidemark.settings import Settings
from tidemark.speed.replay.replay import REPLAY
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.local import LocalStack

pytestmark = pytest.mark.timeout(1800)
ZONE = ZoneInfo("Europe/Berlin")


@pytest.fixture(scope="module")
def mended(settings: Settings, make_stream: MakeStream, produce: Produce) -> Stream:
    """A stream with three dead letters, of which the second is none that can be mended."""
    stream = make_stream()
    topic_id, values = source_id(settings, stream), (b'{"n":1}', b"{", b'{"n":3}')
    letters = [letter(stream, topic_id, (0, offset), value) for offset, value in enumerate(values)]
    produce(stream.speed.dead_letter_topic, letters)
    return stream


@pytest.fixture(scope="module")
def berlin(make_stream: MakeStream) -> Stream:
    """East of Greenwich, where a day begins before it does in UTC."""
    return make_stream(time_zone=str(ZONE))


@pytest.fixture(scope="module")
def sunday(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    """A stream with one day."""
    days = Days.make(settings, make_stream, produce, (SUNDAY,))
    days.archive()
    return days


@pytest.fixture(scope="module")
def airflow(
    stack: LocalStack, tmp_path_factory: pytest.TempPathFactory, mended: Stream, berlin: Stream, sunday: Days
) -> Iterator[LocalAirflow]:
    """Started when every definition is there, of streams of its own: each of its tasks loads them all."""
    streams = tmp_path_factory.mktemp("streams")
    for name in ("flights", mended.name, berlin.name, sunday.stream.name):
        for path in stack.streams_dir.glob(f"{name}.*"):
            shutil.copy(path, streams)
    text = (streams / "flights.yaml").read_text(encoding="utf-8")
    broken = text.replace("name: flights", "name: trains").replace("schedule:", "scedule:")
    (streams / "trains.yaml").write_text(broken, encoding="utf-8")
    # No definition changes from here on, so that nothing needs parsing again.
    own = {"TIDEMARK_STREAMS_DIR": str(streams), "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600"}
    running = LocalAirflow(stack, schedules=False, extra_env=own)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The ids of the runs."""

    backfill: str
    sunday: str  # that the backfill starts
    replay: str
    tomorrow: str
    no_days: str


@pytest.fixture(scope="module")
def runs(airflow: LocalAirflow, mended: Stream, berlin: Stream, sunday: Days) -> Runs:
    """All under way, and the rebuild of Sunday's killed."""
    api, name = airflow.api, sunday.stream.name
    fill, late_fill, replay = f"backfill_{name}", f"backfill_{berlin.name}", f"replay_{mended.name}"
    wait_for_dags(api, (f"reconcile_{name}", "reconcile_flights", fill, late_fill, replay))
    tomorrow = str(datetime.now(ZONE).date() + timedelta(days=1))
    backfill = api.trigger(fill, {"from_day": str(SUNDAY), "to_day": str(SUNDAY)})
    runs = Runs(
        backfill=backfill,
        sunday=f"{SUNDAY}__{backfill}__1",
        replay=api.trigger(replay, {}),
        tomorrow=api.trigger(late_fill, {"from_day": tomorrow, "to_day": tomorrow}),
        no_days=api.trigger("reconcile_flights", {}),
    )
    wait_for_kill(airflow, f"reconcile_{name}", runs.sunday, "rebuild")
    return runs


def test_a_broken_definition_is_an_import_error_and_the_other_streams_run_on(airflow: LocalAirflow, runs: Runs) -> None:
    api = airflow.api
    wait_until(lambda: bool(api.import_errors()), "every file is parsed", timeout_s=240, every_s=EVERY_S)
    ((file, error),) = api.import_errors().items()
    assert Path(file).name == "stream_definitions.py"
    assert "batch.scedule: unknown key" in error
    assert api.dag_known("reconcile_trains")
    assert run_states(api, "reconcile_flights").keys() == {runs.no_days}


def test_a_run_without_days_fails_at_once_saying_what_to_fill_in_and_is_reported(
    airflow: LocalAirflow, runs: Runs
) -> None:
    api, dag, run = airflow.api, "reconcile_flights", runs.no_days
    wait_for_end(api, dag, run)

    assert api.run_state(dag, run) == "failed"
    tasks = {item.task: item for item in api.task_states(dag, run)}
    assert {name: item.state for name, item in tasks.items()} == {
        "wait": "failed",
        **dict.fromkeys(("plan", "refill", "settle", "rebuild", "audit", "publish", "seal"), "upstream_failed"),
        "report": "success",
        "complete": "upstream_failed",
    }
    assert tasks["wait"].tries == 1
    assert "Trigger the DAG again and fill in from_day and to_day" in log(airflow, dag, run, "wait")


@pytest.mark.conformance(24)
def test_a_replay_triggered_by_hand_brings_back_what_is_good_now_and_saves_what_became_of_the_letters(
    airflow: LocalAirflow, settings: Settings, mended: Stream, runs: Runs
) -> None:
    api, dag, run = airflow.api, f"replay_{mended.name}", runs.replay
    wait_for_end(api, dag, run)

    told = log(airflow, dag, run, "replay")
    assert [(item.task, item.state) for item in api.task_states(dag, run)] == [("replay", "success")], told
    assert '\\"event\\": \\"replayed\\"' in told
    live = read_topic(settings, mended.speed.topic)
    assert [(item.source, item.value) for item in live] == [((0, 0), b'{"n":1}'), ((0, 2), b'{"n":3}')]
    again = read_topic(settings, mended.speed.dead_letter_topic)[3:]
    assert [(item.source, item.value, item.header("attempt")) for item in again] == [((0, 1), b"{", "1")]
    saved = Run.open(mended.name, run_name(run), settings).require(REPLAY)
    assert (saved["read"], saved["published"], saved["dead_again"], saved["status"]) == (3, 2, 1, "ok")


@pytest.mark.conformance(51)
def test_airflows_own_backfill_from_midnight_to_midnight_in_the_streams_zone_takes_those_days(
    airflow: LocalAirflow, berlin: Stream, runs: Runs
) -> None:
    api, dag = airflow.api, f"reconcile_{berlin.name}"
    span = (date(2024, 3, 30), date(2024, 4, 1))  # the one between them has 23 hours
    start, end = (datetime.combine(day, datetime.min.time(), tzinfo=ZONE) for day in span)
    asked = {"dag_id": dag, "from_date": start.isoformat(), "to_date": (end + timedelta(hours=23)).isoformat()}
    found = api._authorised("POST", "/api/v2/backfills/dry_run", json=asked)["backfills"]
    moments = [datetime.fromisoformat(item["logical_date"]).astimezone(UTC).isoformat() for item in found]
    # Half past midnight in Berlin, where the data interval of each day's run begins.
    assert moments == [f"2024-03-{at}+00:00" for at in ("29T23:30:00", "30T23:30:00", "31T22:30:00")]


@pytest.mark.conformance(51)
def test_a_backfill_by_form_of_a_day_that_is_not_over_fails_at_once_saying_so_and_starts_no_run(
    airflow: LocalAirflow, berlin: Stream, runs: Runs
) -> None:
    api, dag, run = airflow.api, f"backfill_{berlin.name}", runs.tomorrow
    wait_for_end(api, dag, run)

    states = {item.task: (item.state, item.tries) for item in api.task_states(dag, run)}
    assert states == {"reconcile": ("failed", 1), "day": ("upstream_failed", 0)}
    assert "the last day of the backfill is not over" in log(airflow, dag, run, "reconcile")
    assert run_states(api, f"reconcile_{berlin.name}") == {}


@pytest.mark.conformance(17)
def test_a_run_of_a_backfill_whose_rebuild_is_killed_publishes_and_seals_its_day_once(
    airflow: LocalAirflow, runs: Runs, sunday: Days
) -> None:
    api, run = airflow.api, runs.sunday
    dag, backfill_dag = f"reconcile_{sunday.stream.name}", f"backfill_{sunday.stream.name}"
    read_until(lambda: api.run_state(dag, run) in ENDED, sunday)

    tasks = {item.task: (item.state, item.tries) for item in api.task_states(dag, run)}
    assert (tasks["rebuild"], tasks["seal"]) == (("success", 2), ("success", 1))
    assert run_states(api, dag) == {run: "success"}
    assert sunday.seals() == [(str(SUNDAY), 1, run_name(run))]
    for table in (sunday.stream.table, sunday.stream.quarantine_table):
        assert sunday.publishers(table) == [run_name(run)]
    sunday.require_proven((SUNDAY,))

    wait_for_end(api, backfill_dag, runs.backfill)
    days = [(item.task, item.state) for item in api.task_states(backfill_dag, runs.backfill)]
    assert sorted(days) == [("day", "success"), ("reconcile", "success")]


@pytest.mark.conformance(29)
def test_only_the_owner_can_read_airflows_secrets(airflow: LocalAirflow) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in (airflow.password_file, airflow.home / "airflow.cfg")}
    assert modes == {"passwords.json": 0o600, "airflow.cfg": 0o600}
    assert airflow.home.stat().st_mode & 0o777 == 0o700


def log(airflow: LocalAirflow, dag: str, run: str, task: str) -> str:
    """What the task's only attempt logged."""
    folder = airflow.home / "logs" / f"dag_id={dag}" / f"run_id={run}" / f"task_id={task}"
    (path,) = folder.glob("*.log")
    return path.read_text(encoding="utf-8")
