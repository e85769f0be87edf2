"""Airflow of the local stack, for real: what its own scheduler and DAG processor make of our DAGs.

Its tasks, and the Spark applications they submit, know Kafka, S3 and the catalog from Airflow's connections only.

It starts once, and every run that does not follow another one is under way from the beginning: a test awaits its own.
"""

import re
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest

from tests.conftest import MakeStream, Produce
from tests.dags.asking import DAY, LOSS, answer, saved_run, start
from tests.dags.asking import clear as clear_approval
from tests.dags.connections import by_connections
from tests.dags.days import SUNDAY, Days
from tests.dags.receivers import Receivers, receiving
from tests.dags.runs import (
    BACKFILL,
    ENDED,
    EVERY_S,
    Runs,
    announce,
    chunk_states,
    chunk_waits,
    clear,
    instances,
    is_at_work,
    make_partition_runs,
    read_until,
    rebuilds_of,
    results,
    run_spans,
    run_states,
    running_airflow,
    states_of,
    task_log,
    tries_at_least,
    tries_of,
    wait_for_dags,
    wait_for_end,
    wait_for_kill,
    wait_for_lease,
)
from tests.speed.dead_letters import letter, source_id
from tests.speed.live import read_topic
from tests.waiting import wait_until
from tidemark.core.errors import ServiceError
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.orchestration.steps import RETRIES
from tidemark.reconcile.lease import release, take
from tidemark.reconcile.results import APPROVE, REPORT
from tidemark.run import Run, run_name
from tidemark.settings import Settings
from tidemark.speed.replay.replay import REPLAY
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.local import LocalStack

pytestmark = pytest.mark.timeout(1800)
ZONE = ZoneInfo("Europe/Berlin")
AFTER_WAIT = ("plan", "refill", "finalize_plan", "rebuild", "audit", "approve", "publish", "seal", "delivery")


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
def asking(make_stream: MakeStream) -> Stream:
    """A stream that wants a person to approve warnings and losses. Its runs begin with that."""
    return make_stream(batch={"approval": ["warnings", "losses"]})


@pytest.fixture(scope="module")
def impatient(make_stream: MakeStream) -> Stream:
    """The same, but with twenty seconds for the answer: more than a busy scheduler takes to see that it waits."""
    return make_stream(batch={"approval": ["warnings", "losses"], "approval_hours": 20 / 3600})


@pytest.fixture(scope="module")
def sunday(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    """A stream with one day."""
    days = Days.make(settings, make_stream, produce, (SUNDAY,))
    days.archive()
    return days


@pytest.fixture(scope="module")
def receivers() -> Iterator[Receivers]:
    """Where the watch's notifications arrive."""
    with receiving() as found:
        yield found


@pytest.fixture(scope="module")
def airflow(
    stack: LocalStack,
    receivers: Receivers,
    tmp_path_factory: pytest.TempPathFactory,
    mended: Stream,
    berlin: Stream,
    sunday: Days,
    stub: Stream,
    stub_files: Path,
    asking: Stream,
    impatient: Stream,
) -> Iterator[LocalAirflow]:
    """Started when every definition is there, of streams of its own: each of its tasks loads them all."""
    streams, dags = tmp_path_factory.mktemp("streams"), tmp_path_factory.mktemp("dags")
    for name in ("flights", mended.name, berlin.name, sunday.stream.name, stub.name, asking.name, impatient.name):
        for path in stack.streams_dir.glob(f"{name}.*"):
            shutil.copy(path, streams)
    text = (streams / "flights.yaml").read_text(encoding="utf-8")
    broken = text.replace("name: flights", "name: trains").replace("schedule:", "scedule:")
    (streams / "trains.yaml").write_text(broken, encoding="utf-8")
    for path in (PROJECT / "dags").glob("*.py"):
        shutil.copy(path, dags)
    shutil.copy(Path(__file__).with_name("reconcile_stub.py"), dags / "streams.py")
    for name, stream in (("follow_days", sunday.stream), ("follow_months", berlin)):
        example = (PROJECT / "dags" / "examples" / f"{name}.py").read_text(encoding="utf-8")
        (dags / f"{name}.py").write_text(example.replace("flights", stream.name), encoding="utf-8")
    own = {
        **by_connections(stack, tmp_path_factory.mktemp("deployment")),
        "TIDEMARK_STREAMS_DIR": str(streams),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        # No definition changes from here on, so that nothing needs parsing again.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        **receivers.environment(tmp_path_factory.mktemp("notifiers")),
        "STUB_STREAM": stub.name,
        "STUB_FOLDER": str(stub_files),
        "ASKING_STREAMS": f"{asking.name} {impatient.name}",
    }
    with running_airflow(stack, own) as running:
        yield running


@pytest.fixture(scope="module")
def runs(airflow: LocalAirflow, settings: Settings, mended: Stream, berlin: Stream, sunday: Days, stub: Stream) -> Runs:
    """All under way, and the rebuild of Sunday's killed, which has waited for a run of another process before."""
    api, name = airflow.api, sunday.stream.name
    reconcile = [f"reconcile_{stream}" for stream in (name, berlin.name, stub.name, mended.name, "flights", "trains")]
    follow = (f"follow_{name}_days", f"follow_{berlin.name}_months")
    wait_for_dags(api, (*reconcile, BACKFILL, "tidemark_replay", *follow))

    def backfill(stream: str, first: date, last: date, size: int) -> str:
        span = {"from_day": str(first), "to_day": str(last)}
        return api.trigger(BACKFILL, {"stream": stream, **span, "days_per_run": size, "reason": "a new column"})

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

    wait_for_lease(api, f"reconcile_{name}", runs.sunday)
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
        **dict.fromkeys(AFTER_WAIT, "upstream_failed"),
        "report": "success",
        "complete": "failed",
    }
    assert tasks["wait"].tries <= RETRIES  # it has tries left
    assert "Trigger the DAG again and fill in from_day and to_day" in task_log(airflow, dag, run, "wait")


def test_a_run_that_a_person_marks_as_failed_is_reported_and_fails(
    airflow: LocalAirflow, settings: Settings, mended: Stream, runs: Runs
) -> None:
    api, dag, run = airflow.api, f"reconcile_{mended.name}", runs.stopped
    wait_for_lease(api, dag, run)
    api._authorised("PATCH", f"/api/v2/dags/{dag}/dagRuns/{run}", json={"state": "failed"})
    wait_for_end(api, dag, run)

    found = api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns/{run}")
    assert (found["state"], found["note"]) == ("failed", f"{SUNDAY}, UTC: started by admin")
    assert states_of(api, dag, run) == {
        "wait_for_lease": "failed",
        **dict.fromkeys(("wait", *AFTER_WAIT), "skipped"),
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
        tasks = {item.task: item for item in api.task_states(BACKFILL, run)}
        assert {name: item.state for name, item in tasks.items()} == {"chunks": "failed", "chunk": "upstream_failed"}
        assert tasks["chunks"].tries <= RETRIES  # it has tries left
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
    at_work = partial(is_at_work, api, dag, third)
    wait_until(at_work, "its run's task is at work", 600, every_s=EVERY_S)
    assert run_states(api, dag) == {first: "success", second: "failed", third: "running"}
    forms = {key: api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns/{key}")["conf"] for key in (first, third)}
    assert forms == {
        first: {"from_day": "2024-03-30", "to_day": "2024-03-31", "force": False},
        third: {"from_day": "2024-04-03", "to_day": "2024-04-03", "force": False},
    }
    note = api._authorised("GET", f"/api/v2/dags/{dag}/dagRuns/{second}")["note"]
    assert note == f"2024-04-01 to 2024-04-02 (2 days), UTC: backfill by run {backfill}: a new column"
    reason = f"2024-04-01 to 2024-04-02 (2 days): run {second} of {dag} failed: audit: critical checks failed"
    assert reason in task_log(airflow, BACKFILL, backfill, "chunk", map_index=1)

    # The chunk that is under way is cleared: it waits for the same run, which continues.
    started = [item["start_date"] for item in instances(api, dag, third)]
    clear(api, backfill, map_index=2)
    waits_again = partial(chunk_waits, api, backfill, 2, tries=2)
    wait_until(waits_again, "the last chunk waits again", 600, every_s=EVERY_S)
    assert run_states(api, dag) == {first: "success", second: "failed", third: "running"}
    assert [item["start_date"] for item in instances(api, dag, third)] == started

    # Another backfill of the stream starts its run when no other one is under way.
    form = {"stream": stub.name, "from_day": "2024-05-01", "to_day": "2024-05-01"}
    other = api.trigger(BACKFILL, form)
    waits = partial(chunk_waits, api, other, 0, tries=1)
    wait_until(waits, "the other backfill's chunk waits", 600, every_s=EVERY_S)
    assert run_states(api, dag) == {first: "success", second: "failed", third: "running"}

    # The failed chunk is cleared too: it begins when the one under way has ended.
    (stub_files / "fail-2024-04-01").unlink()
    clear(api, backfill, map_index=1)
    (stub_files / "hold-2024-04-03").unlink()
    for each in (backfill, other):
        wait_for_end(api, BACKFILL, each)

    repeated, of_other = f"2024-04-01__{backfill}__2", f"2024-05-01__{other}__1"
    assert chunk_states(api, backfill) == dict.fromkeys(labels, "success")
    ended = {first: "success", second: "failed", third: "success", repeated: "success", of_other: "success"}
    assert run_states(api, dag) == ended
    spans = run_spans(api, dag)
    assert spans[third][1] <= spans[of_other][0]
    in_order = [spans[run] for run in (first, second, third, repeated)]
    assert all(before[1] <= after[0] for before, after in pairwise(in_order)), in_order


def test_a_dry_run_shows_each_day_and_starts_no_run(airflow: LocalAirflow, mended: Stream, runs: Runs) -> None:
    api, dag = airflow.api, f"reconcile_{mended.name}"
    span = {"from_day": "2024-03-30", "to_day": "2024-04-01"}
    backfill = api.trigger(BACKFILL, {"stream": mended.name, **span, "days_per_run": 2, "dry_run": True})
    wait_for_end(api, BACKFILL, backfill)

    states = states_of(api, BACKFILL, backfill)
    assert (api.run_state(BACKFILL, backfill), states) == ("success", {"chunks": "success", "chunk": "skipped"})
    log = task_log(airflow, BACKFILL, backfill, "chunks")
    for line in (
        f"Backfill of {mended.name}: 3 days in 2 runs",
        "   1  2024-03-30              0          0  not sealed",
        "   2  2024-04-01              0          0  not sealed",
        "Dry run: no run is started",
    ):
        assert line in log
    assert set(run_states(api, dag)) == {runs.stopped}


@pytest.mark.conformance(17)
def test_a_backfills_run_with_a_killed_rebuild_publishes_and_seals_its_day_once(
    airflow: LocalAirflow, runs: Runs, sunday: Days
) -> None:
    api, run = airflow.api, runs.sunday
    dag = f"reconcile_{sunday.stream.name}"
    read_until(lambda: api.run_state(dag, run) in ENDED, sunday)

    tasks = tries_of(api, dag, run)
    expected = {"rebuild": ("success", 2), "seal": ("success", 1)}
    assert tries_at_least(tasks, expected) == expected
    assert re.search(
        r"Waiting since \S+ for run by-hand, process \d+ on", task_log(airflow, dag, run, "wait_for_lease")
    )
    # 23 hours and the last second in each of two partitions, and as many broken records as partitions.
    rebuilt, audited = (task_log(airflow, dag, run, task) for task in ("rebuild", "audit"))
    assert f"Rebuild {SUNDAY} of {sunday.stream.name} from 2 objects of the archive" in rebuilt
    assert f"{SUNDAY}: 50 rows read = 48 to publish + 2 quarantined + 0 duplicates removed" in rebuilt
    assert "0 not passed: the days may be published" in audited
    assert " INFO " not in rebuilt + audited
    assert run_states(api, dag) == {run: "success"}
    assert sunday.seals() == [(str(SUNDAY), 1, run_name(run))]
    for table in (sunday.stream.table, sunday.stream.quarantine_table):
        assert sunday.publishers(table) == [run_name(run)]
    sunday.require_proven((SUNDAY,))
    wait_for_end(api, BACKFILL, runs.sunday_backfill)
    assert chunk_states(api, runs.sunday_backfill) == {str(SUNDAY): "success"}


def test_a_dag_of_days_runs_for_each_sealed_version_and_one_of_months_only_once(
    airflow: LocalAirflow, sunday: Days, berlin: Stream, runs: Runs
) -> None:
    api, daily, monthly = airflow.api, f"follow_{sunday.stream.name}_days", f"follow_{berlin.name}_months"
    wait_for_end(api, f"reconcile_{sunday.stream.name}", runs.sunday)
    february = {str(date(2023, 2, day)): 1 for day in range(1, 29)}
    for day in february:
        announce(api, berlin.name, day, 1)
    make_partition_runs(airflow)
    for dag in (daily, monthly):
        wait_for_end(api, dag, *run_states(api, dag))
    of_day, of_month = {"day": str(SUNDAY), "version": 1, "quality": "passed"}, {"month": "2023-02"}
    assert results(api, daily, "use_day") == [of_day]
    assert results(api, monthly, "use_month") == [{**of_month, "versions": february}]

    (first,) = run_states(api, daily)
    announce(api, berlin.name, "2023-02-14", 2)
    announce(api, sunday.stream.name, str(SUNDAY), 2)
    make_partition_runs(airflow)
    (second,) = run_states(api, daily).keys() - {first}
    wait_for_end(api, daily, second)
    assert results(api, daily, "use_day") == [of_day, {**of_day, "version": 2, "quality": "unchecked"}]
    # The month waits for all its days again.
    waiting = api._authorised("GET", f"/ui/partitioned_dag_runs?dag_id={monthly}&has_created_dag_run_id=false")
    found = [(item["partition_key"], item["total_received"]) for item in waiting["partitioned_dag_runs"]]
    assert (found, len(run_states(api, monthly))) == ([("2023-02", 1)], 1)

    asked = {"logical_date": None, "partition_key": "2023-02"}
    by_hand = api._authorised("POST", f"/api/v2/dags/{monthly}/dagRuns", json=asked)["dag_run_id"]
    wait_for_end(api, monthly, by_hand)
    assert results(api, monthly, "use_month") == [{**of_month, "versions": february}, {**of_month, "versions": {}}]


def test_a_problem_is_announced_once_by_each_notifier_and_one_that_fails_stops_no_other(
    airflow: LocalAirflow, receivers: Receivers
) -> None:
    api, dag = airflow.api, "tidemark_watch"
    wait_for_dags(api, (dag,))

    def check() -> dict[str, str]:
        run = api.trigger(dag, {})
        wait_for_end(api, dag, run)
        parts = [item for item in instances(api, dag, run) if item["rendered_map_index"]]
        return {item["rendered_map_index"].split("-")[0]: item["state"] for item in parts}

    receivers.refuses = True
    assert check() == {"SmtpNotifier": "success", "WebhookNotifier": "failed"}
    receivers.refuses = False
    assert check()["WebhookNotifier"] == "success"
    check()

    began = "trains: definition_invalid began."
    mails, posts = [item["html"] for item in receivers.mails], [item["text"] for item in receivers.posts]
    assert [sum(began in text for text in texts) for texts in (mails, posts)] == [1, 1]
    page = f"{api.url}/plugin/tidemark/tidemark/streams/trains"
    assert f'<a href="{page}">' in mails[0]
    assert f"  Page: {page}\n" in posts[0]
    assert receivers.mails[0]["subject"].startswith(f"Tidemark {airflow.stack.settings.deployment}: problems: ")


def test_a_run_publishes_what_a_person_approves_and_asks_nothing_without_findings(
    airflow: LocalAirflow, settings: Settings, asking: Stream
) -> None:
    api, dag = airflow.api, f"reconcile_{asking.name}"
    wait_for_dags(api, [dag])
    saved_run(settings, asking, "calm", asks=False)
    run = saved_run(settings, asking, "asked")
    start(api, asking, "calm")
    start(api, asking, "asked")
    asked = answer(airflow, asking, "asked", "Approve", "the airport was closed")
    assert asked["subject"] == f"Publish {DAY} of stream {asking.name} in spite of 1 failed check and 1 loss?"
    assert f"- Failed check: {DAY}: expect_a: failed, observed 7\n- Loss: {LOSS}" in asked["body"]
    wait_for_end(api, dag, "asked")

    assert states_of(api, dag, "calm") == {"approve": "skipped", "publish": "success"}
    assert states_of(api, dag, "asked") == {"approve": "success", "publish": "success"}
    result = run.require(APPROVE)
    assert (result.decision, result.approval.by, result.approval.words) == (
        "approved",
        "admin",
        "the airport was closed",
    )
    # A repetition does not ask again for the rows that are approved.
    clear_approval(api, asking, "asked")
    wait_until(lambda: states_of(api, dag, "asked")["approve"] == "skipped", "it skips", 600, every_s=EVERY_S)
    assert run.require(APPROVE) == result


def test_a_rejected_run_fails_at_once_and_can_be_decided_again(
    airflow: LocalAirflow, settings: Settings, asking: Stream
) -> None:
    api, dag = airflow.api, f"reconcile_{asking.name}"
    wait_for_dags(api, [dag])
    run = saved_run(settings, asking, "refused")
    start(api, asking, "refused")
    answer(airflow, asking, "refused", "Reject", "wrong prices")
    wait_for_end(api, dag, "refused")
    assert states_of(api, dag, "refused") == {"approve": "failed", "publish": "upstream_failed"}
    saved = run.outcome(APPROVE)
    assert saved is not None
    assert "a person has rejected the days: found admin, " in str(saved.error)
    assert ": wrong prices [" in str(saved.error)

    clear_approval(api, asking, "refused")
    answer(airflow, asking, "refused", "Rebuild", "prices are correct now")
    wait_for_end(api, dag, "refused")
    assert run_states(api, dag)["refused"] == "failed"
    repeated = rebuilds_of(api, dag, "refused")
    assert [item["conf"] for item in repeated] == [{"from_day": str(DAY), "to_day": str(DAY), "force": True}]
    assert "asked for by admin" in repeated[0]["note"]

    clear_approval(api, asking, "refused")
    answer(airflow, asking, "refused", "Rebuild", "they were not, but are now")
    wait_for_end(api, dag, "refused")
    assert len(rebuilds_of(api, dag, "refused")) == 2


def test_a_run_that_nobody_answers_counts_as_rejected_and_lets_the_next_run_begin(
    airflow: LocalAirflow, settings: Settings, impatient: Stream
) -> None:
    api, dag = airflow.api, f"reconcile_{impatient.name}"
    wait_for_dags(api, [dag])
    first = saved_run(settings, impatient, "first")
    saved_run(settings, impatient, "second", asks=False)
    start(api, impatient, "first")
    start(api, impatient, "second")
    wait_for_end(api, dag, "second")

    assert run_states(api, dag) == {"first": "failed", "second": "success"}
    assert states_of(api, dag, "first")["approve"] == "failed"
    saved = first.outcome(APPROVE)
    assert saved is not None
    assert "a person has rejected the days: found nobody, " in str(saved.error)
    assert "No answer within 0:00:20" in str(saved.error)
    spans = run_spans(api, dag)
    assert spans["first"][1] <= spans["second"][0]


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
