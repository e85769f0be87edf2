"""Airflow of the local stack, for real: what its own scheduler and DAG processor make of our DAGs.

Its tasks, and the Spark applications they submit, know Kafka, S3 and the catalog from Airflow's connections only.

It starts once, and every run that does not follow another one is under way from the beginning: a test awaits its own.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest

from tests.conftest import MakeStream, Produce
from tests.dags.connections import by_connections
from tests.dags.days import SUNDAY, Days
from tests.dags.runs import (
    BACKFILL,
    ENDED,
    EVERY_S,
    chunk_states,
    clear,
    instances,
    read_until,
    run_spans,
    run_states,
    task_log,
    wait_for_dags,
    wait_for_end,
    wait_for_kill,
)
from tests.speed.dead_letters import letter, source_id
from tests.speed.live import read_topic
from tests.waiting import wait_until
from tidemark.core.errors import ServiceError
from tidemark.definitions.stream import Stream
from tidemark.reconcile.lease import release, take
from tidemark.reconcile.results import REPORT
from tidemark.run import Run, run_name
from tidemark.settings import Settings
from tidemark.speed.replay.replay import REPLAY
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.airflow_api import AirflowApi
from tidemark.stack.local import PROJECT, LocalStack

pytestmark = pytest.mark.timeout(1800)
ZONE = ZoneInfo("Europe/Berlin")


@pytest.fixture(scope="module")
def mended(settings: Settings, make_stream: MakeStream, produce: Produce) -> Stream:
    """A stream with three dead letters, of which the second is none that can be mended."""
    stream = make_stream()
    topic_id, values = source_id(settings, stream), (b'{"n":1}', b"{", b'{"n":3}')
    dead_letters = [letter(stream, topic_id, (0, offset), value) for offset, value in enumerate(values)]
    produce(stream.speed.dead_letter_topic, dead_letters)
    return stream


@pytest.fixture(scope="module")
def berlin(make_stream: MakeStream) -> Stream:
    """East of Greenwich, where a day begins before it does in UTC."""
    return make_stream(time_zone=str(ZONE))


@pytest.fixture(scope="module")
def stub(make_stream: MakeStream) -> Stream:
    """A stream whose reconcile runs do nothing (see ``reconcile_stub``)."""
    return make_stream()


@pytest.fixture(scope="module")
def stub_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that decide how they end: the second chunk fails, the last one waits."""
    folder = tmp_path_factory.mktemp("stub")
    (folder / "fail-2024-04-01").touch()
    (folder / "hold-2024-04-03").touch()
    return folder


@pytest.fixture(scope="module")
def sunday(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    """A stream with one day."""
    days = Days.make(settings, make_stream, produce, (SUNDAY,))
    days.archive()
    return days


@pytest.fixture(scope="module")
def airflow(
    stack: LocalStack,
    tmp_path_factory: pytest.TempPathFactory,
    mended: Stream,
    berlin: Stream,
    sunday: Days,
    stub: Stream,
    stub_files: Path,
) -> Iterator[LocalAirflow]:
    """Started when every definition is there, of streams of its own: each of its tasks loads them all."""
    streams, dags = tmp_path_factory.mktemp("streams"), tmp_path_factory.mktemp("dags")
    for name in ("flights", mended.name, berlin.name, sunday.stream.name, stub.name):
        for path in stack.streams_dir.glob(f"{name}.*"):
            shutil.copy(path, streams)
    text = (streams / "flights.yaml").read_text(encoding="utf-8")
    broken = text.replace("name: flights", "name: trains").replace("schedule:", "scedule:")
    (streams / "trains.yaml").write_text(broken, encoding="utf-8")
    for path in (PROJECT / "dags").glob("*.py"):
        shutil.copy(path, dags)
    shutil.copy(Path(__file__).with_name("reconcile_stub.py"), dags / "reconcile.py")
    own = {
        **by_connections(stack, tmp_path_factory.mktemp("deployment")),
        "TIDEMARK_STREAMS_DIR": str(streams),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        # No definition changes from here on, so that nothing needs parsing again.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "STUB_STREAM": stub.name,
        "STUB_FOLDER": str(stub_files),
    }
    running = LocalAirflow(stack, schedules=False, extra_env=own)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The ids of the runs."""

    chunks: str  # a backfill of five days by the stub
    sunday: str  # that another backfill starts
    sunday_backfill: str
    replay: str
    tomorrow: str
    trains: str
    no_days: str
    stopped: str  # that a person marks as failed


@pytest.fixture(scope="module")
def runs(airflow: LocalAirflow, settings: Settings, mended: Stream, berlin: Stream, sunday: Days, stub: Stream) -> Runs:
    """All under way, and the rebuild of Sunday's killed, which has waited for a run of another process before."""
    api, name = airflow.api, sunday.stream.name
    reconcile = [f"reconcile_{stream}" for stream in (name, berlin.name, stub.name, mended.name, "flights", "trains")]
    wait_for_dags(api, (*reconcile, BACKFILL, "tidemark_replay"))

    def backfill(stream: str, first: date, last: date, size: int) -> str:
        span = {"from_day": str(first), "to_day": str(last)}
        return api.trigger(BACKFILL, {"stream": stream, **span, "days_per_run": size})

    day_after = datetime.now(ZONE).date() + timedelta(days=1)
    tomorrow = backfill(berlin.name, day_after, day_after, 7)
    with pytest.MonkeyPatch.context() as task:
        task.setenv("AIRFLOW_CTX_DAG_ID", BACKFILL)
        task.setenv("AIRFLOW_CTX_DAG_RUN_ID", tomorrow)
        assert take(Run.open("flights", "ended", settings)) is None
    by_hand, also = (Run.open(stream, "by-hand", settings) for stream in (name, mended.name))
    assert take(by_hand) is None
    assert take(also) is None
    of_sunday = backfill(name, SUNDAY, SUNDAY, 7)
    runs = Runs(
        sunday_backfill=of_sunday,
        sunday=f"{SUNDAY}__{of_sunday}__1",
        chunks=backfill(stub.name, date(2024, 3, 30), date(2024, 4, 3), 2),
        replay=api.trigger("tidemark_replay", {"stream": mended.name}),
        tomorrow=tomorrow,
        trains=backfill("trains", SUNDAY, SUNDAY, 7),
        no_days=api.trigger("reconcile_flights", {}),
        stopped=api.trigger(f"reconcile_{mended.name}", {"from_day": str(SUNDAY), "to_day": str(SUNDAY)}),
    )

    def waits() -> bool:
        if runs.sunday not in run_states(api, f"reconcile_{name}"):
            return False
        tasks = instances(api, f"reconcile_{name}", runs.sunday)
        return ("wait_for_lease", "up_for_reschedule") in {(item["task_id"], item["state"]) for item in tasks}

    wait_until(waits, "it waits for the lease", 600, every_s=EVERY_S)
    release(by_hand)
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
        "wait_for_lease": "success",
        "wait": "failed",
        **dict.fromkeys(("plan", "refill", "finalize_plan", "rebuild", "audit", "publish", "seal"), "upstream_failed"),
        "report": "success",
        "complete": "failed",
    }
    assert tasks["wait"].tries == 1
    assert "Trigger the DAG again and fill in from_day and to_day" in task_log(airflow, dag, run, "wait")


def test_a_run_that_a_person_marks_as_failed_is_reported_and_fails(
    airflow: LocalAirflow, settings: Settings, mended: Stream, runs: Runs
) -> None:
    api, dag, run = airflow.api, f"reconcile_{mended.name}", runs.stopped

    def waits() -> bool:
        return ("wait_for_lease", "up_for_reschedule") in {
            (item["task_id"], item["state"]) for item in instances(api, dag, run)
        }

    wait_until(waits, "it waits for the lease", 600, every_s=EVERY_S)
    api._authorised("PATCH", f"/api/v2/dags/{dag}/dagRuns/{run}", json={"state": "failed"})
    wait_for_end(api, dag, run)

    assert api.run_state(dag, run) == "failed"
    states = {item.task: item.state for item in api.task_states(dag, run)}
    assert states == {
        "wait_for_lease": "failed",
        **dict.fromkeys(("wait", "plan", "refill", "finalize_plan", "rebuild", "audit", "publish", "seal"), "skipped"),
        "report": "success",
        "complete": "failed",
    }
    verdict = Run.open(mended.name, run_name(run), settings).require(REPORT)["verdict"]
    assert (verdict["status"], verdict["title"]) == ("unfinished", "The run stopped before step plan")


def test_a_run_takes_the_lease_of_an_ended_run_and_releases_it_even_if_it_fails(
    airflow: LocalAirflow, settings: Settings, berlin: Stream, runs: Runs
) -> None:
    dag, run = "reconcile_flights", runs.no_days
    wait_for_end(airflow.api, dag, run)

    ended = f"run {runs.tomorrow} of DAG {BACKFILL}"
    assert f"taking over the lease of stream flights from {ended}, since" in task_log(
        airflow, dag, run, "wait_for_lease"
    )
    other = Run.open("flights", "other", settings)
    assert take(other) is None
    release(other)


@pytest.mark.conformance(24)
def test_a_replay_delivers_dead_letters_that_are_good_now_and_saves_the_outcome(
    airflow: LocalAirflow, settings: Settings, mended: Stream, runs: Runs
) -> None:
    api, dag, run = airflow.api, "tidemark_replay", runs.replay
    wait_for_end(api, dag, run)

    log = task_log(airflow, dag, run, "replay")
    assert [(item.task, item.state) for item in api.task_states(dag, run)] == [("replay", "success")], log
    assert '\\"event\\": \\"replayed\\"' in log
    live = read_topic(settings, mended.speed.topic)
    assert [(item.source, item.value) for item in live] == [((0, 0), b'{"n":1}'), ((0, 2), b'{"n":3}')]
    returned = read_topic(settings, mended.speed.dead_letter_topic)[3:]
    assert [(item.source, item.value, item.header("attempt")) for item in returned] == [((0, 1), b"{", "1")]
    saved = Run.open(mended.name, run_name(run), settings).require(REPLAY)
    assert (saved["read"], saved["published"], saved["dead_again"]) == (3, 2, 1)


@pytest.mark.conformance(51)
def test_airflows_own_backfill_takes_days_from_midnight_to_midnight_in_the_zone(
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
def test_the_form_offers_every_stream_and_refuses_what_cannot_be(
    airflow: LocalAirflow, sunday: Days, runs: Runs
) -> None:
    api, span = airflow.api, {"from_day": str(SUNDAY), "to_day": str(SUNDAY)}
    streams = sorted(path.stem for path in Path(airflow.env["TIDEMARK_STREAMS_DIR"]).glob("*.yaml"))
    for dag in (BACKFILL, "tidemark_replay", "tidemark_rollback"):
        form = api._authorised("GET", f"/api/v2/dags/{dag}/details")["params"]
        assert form["stream"]["schema"]["enum"] == streams
    form = api._authorised("GET", "/api/v2/dags/tidemark_maintenance/details")["params"]
    assert (form["stream"]["value"], form["stream"]["schema"]["enum"]) == ("every stream", ["every stream", *streams])

    with pytest.raises(ServiceError, match="'nowhere' is not one of"):
        api.trigger(BACKFILL, {"stream": "nowhere", **span})
    with pytest.raises(ServiceError, match=r"'31\.03\.2024' is not a 'date'"):
        api.trigger(BACKFILL, {"stream": sunday.stream.name, **span, "to_day": "31.03.2024"})
    with pytest.raises(ServiceError, match="93 is greater than the maximum of 92"):
        api.trigger(BACKFILL, {"stream": sunday.stream.name, **span, "days_per_run": 93})


@pytest.mark.conformance(51)
def test_a_backfill_that_cannot_be_made_fails_at_once_saying_why_and_starts_no_run(
    airflow: LocalAirflow, berlin: Stream, runs: Runs
) -> None:
    api = airflow.api
    for run, reason in (
        (runs.tomorrow, "the last day is not over"),
        (runs.trains, "batch.scedule: unknown key"),
    ):
        wait_for_end(api, BACKFILL, run)
        states = {item.task: (item.state, item.tries) for item in api.task_states(BACKFILL, run)}
        assert states == {"chunks": ("failed", 1), "chunk": ("upstream_failed", 0)}
        assert reason in task_log(airflow, BACKFILL, run, "chunks")
    assert run_states(api, f"reconcile_{berlin.name}") == run_states(api, "reconcile_trains") == {}


def test_a_backfill_runs_its_chunks_in_turn_and_repeats_only_a_cleared_one(
    airflow: LocalAirflow, stub: Stream, stub_files: Path, runs: Runs
) -> None:
    api, dag, backfill = airflow.api, f"reconcile_{stub.name}", runs.chunks
    first, second, third = (f"{day}__{backfill}__1" for day in ("2024-03-30", "2024-04-01", "2024-04-03"))
    labels = ("2024-03-30 to 2024-03-31 (2 days)", "2024-04-01 to 2024-04-02 (2 days)", "2024-04-03")
    at_first = dict(zip(labels, ("success", "failed", "deferred"), strict=True))
    wait_until(lambda: chunk_states(api, backfill) == at_first, "the last chunk waits", 600, every_s=EVERY_S)
    at_work = partial(stub_is_at_work, api, dag, third)
    wait_until(at_work, "its run's task is at work", 600, every_s=EVERY_S)
    assert run_states(api, dag) == {first: "success", second: "failed", third: "running"}
    forms = {key: api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns/{key}")["conf"] for key in (first, third)}
    assert forms == {
        first: {"from_day": "2024-03-30", "to_day": "2024-03-31", "force": False},
        third: {"from_day": "2024-04-03", "to_day": "2024-04-03", "force": False},
    }
    reason = f"2024-04-01 to 2024-04-02 (2 days): run {second} of {dag} failed: audit: critical checks failed"
    assert reason in task_log(airflow, BACKFILL, backfill, "chunk", map_index=1)

    # The chunk that is under way is cleared: it waits for the same run, which continues.
    started = [item["start_date"] for item in instances(api, dag, third)]
    clear(api, backfill, map_index=2)
    waits_again = partial(chunk_waits, api, backfill, 2, tries=2)
    wait_until(waits_again, "the last chunk waits again", 600, every_s=EVERY_S)
    assert run_states(api, dag) == {first: "success", second: "failed", third: "running"}
    assert [item["start_date"] for item in instances(api, dag, third)] == started

    # The failed chunk is cleared too: it begins when the one under way has ended.
    (stub_files / "fail-2024-04-01").unlink()
    clear(api, backfill, map_index=1)
    (stub_files / "hold-2024-04-03").unlink()
    wait_for_end(api, BACKFILL, backfill)

    repeated = f"2024-04-01__{backfill}__2"
    assert chunk_states(api, backfill) == dict.fromkeys(labels, "success")
    assert run_states(api, dag) == {first: "success", second: "failed", third: "success", repeated: "success"}
    spans = run_spans(api, dag)
    in_order = [spans[run] for run in (first, second, third, repeated)]
    assert all(before[1] <= after[0] for before, after in pairwise(in_order)), in_order


@pytest.mark.conformance(17)
def test_a_backfills_run_with_a_killed_rebuild_publishes_and_seals_its_day_once(
    airflow: LocalAirflow, runs: Runs, sunday: Days
) -> None:
    api, run = airflow.api, runs.sunday
    dag = f"reconcile_{sunday.stream.name}"
    read_until(lambda: api.run_state(dag, run) in ENDED, sunday)

    tasks = {item.task: (item.state, item.tries) for item in api.task_states(dag, run)}
    assert (tasks["rebuild"], tasks["seal"]) == (("success", 2), ("success", 1))
    assert re.search(
        r"Waiting since \S+ for run by-hand, process \d+ on", task_log(airflow, dag, run, "wait_for_lease")
    )
    assert run_states(api, dag) == {run: "success"}
    assert sunday.seals() == [(str(SUNDAY), 1, run_name(run))]
    for table in (sunday.stream.table, sunday.stream.quarantine_table):
        assert sunday.publishers(table) == [run_name(run)]
    sunday.require_proven((SUNDAY,))
    wait_for_end(api, BACKFILL, runs.sunday_backfill)
    assert chunk_states(api, runs.sunday_backfill) == {str(SUNDAY): "success"}


def test_people_and_tasks_have_servers_of_their_own(airflow: LocalAirflow) -> None:
    """In one process, a form that is sent while a task reports would stop both until SQLite's time-out."""
    api = airflow.api
    assert api._send("GET", f"{api.tasks_url}health") == {"status": "healthy"}
    for url in (f"{api.url}/execution/health", f"{api.tasks_url.removesuffix('execution/')}api/v2/monitor/health"):
        assert "status" not in httpx.get(url).text


@pytest.mark.conformance(29)
def test_no_log_or_table_of_airflow_holds_a_connections_secret(airflow: LocalAirflow, runs: Runs) -> None:
    wait_for_end(airflow.api, "tidemark_replay", runs.replay)
    secret = airflow.stack.settings.s3_secret_key.get_secret_value().encode()
    files = [path for path in airflow.home.rglob("*") if path.is_file()]
    assert len([path for path in files if path.suffix == ".log"]) > 1
    assert [path.name for path in files if secret in path.read_bytes()] == []


@pytest.mark.conformance(29)
def test_only_the_owner_can_read_airflows_secrets(airflow: LocalAirflow) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in (airflow.password_file, airflow.home / "airflow.cfg")}
    assert modes == {"passwords.json": 0o600, "airflow.cfg": 0o600}
    assert airflow.home.stat().st_mode & 0o777 == 0o700


def chunk_waits(api: AirflowApi, backfill: str, map_index: int, *, tries: int) -> bool:
    """Whether the chunk waits for its run in the triggerer, in this try."""
    (chunk,) = (item for item in instances(api, BACKFILL, backfill) if item["map_index"] == map_index)
    return (chunk["state"], chunk["try_number"]) == ("deferred", tries)


def stub_is_at_work(api: AirflowApi, dag: str, run: str) -> bool:
    """Whether the task of the stub's run is running."""
    return [item["state"] for item in instances(api, dag, run)] == ["running"]
