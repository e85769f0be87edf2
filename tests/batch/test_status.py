"""``tidemark.inspect.status``: every stream's layers, days and last run in one answer, and what needs attention."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.batch.logs import MONDAY, TUESDAY, ZONE, Log, at
from tests.batch.test_seal import finalized, finish, two_days
from tests.conftest import MakeStream
from tests.hung_server import HungServer, hung_catalogs, hung_server
from tidemark.core.days import micros
from tidemark.core.heartbeat import Heartbeat
from tidemark.inspect.status import StreamStatus, read_status
from tidemark.inspect.watch import ALL_STREAMS, Announced, OpenProblem, WatchState, find_changes, next_problems
from tidemark.inspect.watch_findings import of_status, read_findings
from tidemark.reconcile.lease import release, take
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import AUDIT, NOT_ENDED
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack

pytestmark = pytest.mark.conformance(55)

WEDNESDAY = TUESDAY + timedelta(days=1)


def thursday(hour: int) -> datetime:
    return datetime(2013, 1, 17, hour, tzinfo=ZONE)


def beat(log: Log, layer: str = "archive", *, age: timedelta = timedelta(), **fields: object) -> None:
    """A heartbeat of the layer, from five o'clock on Thursday or before."""
    values: dict[str, object] = {
        "deployment": "prod",
        "stream": log.stream.name,
        "layer": layer,
        "state": "running",
        "time": thursday(5) - age,
        "version": 1,
        "writer": "w",
        "batch": 1,
        "positions": (),
        "lag_records": 0,
        "lag_seconds": 0.0,
        "overflow_rows": 0,
        "out_of_bounds_rows": 0,
        "alarm_until": None,
        "error": None,
        **fields,
    }
    log.store.put(log.layout.heartbeat_key(layer), Heartbeat(**values).to_json())  # type: ignore[arg-type]  # tests name the fields


def ask(log: Log, *names: str, hour: int = 5) -> tuple[StreamStatus, ...]:
    return read_status(log.settings, names or (log.stream.name,), now=thursday(hour))


def kinds(found: StreamStatus) -> list[str]:
    return [item.kind for item in found.problems]


@pytest.fixture
def sealed(log: Log) -> Log:
    """Monday and Tuesday are sealed, by a run that has reported, and the archive layer runs."""
    two_days(log)
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    finish(run, {MONDAY: 10, TUESDAY: 5})
    seal_run(run)
    report_run(run)
    beat(log)
    return log


def test_a_stream_whose_days_are_sealed_and_whose_layers_run_has_no_problem(sealed: Log) -> None:
    began = datetime.now(UTC) - timedelta(minutes=5)
    (found,) = ask(sealed)
    assert found.problems == ()
    assert (found.last_sealed, found.overdue, found.unproven) == (TUESDAY, (), ())
    assert found.waiting == 15  # there is no table here, so every archived record is unpublished
    assert [(item.layer, item.healthy) for item in found.layers] == [("archive", True)]
    assert found.last_run is not None
    assert (found.last_run.name, found.last_run.days) == ("run-1", (MONDAY, TUESDAY))
    assert found.last_run.report == sealed.layout.run_key("run-1", "report.html")
    assert began < found.last_run.ended_at <= datetime.now(UTC)


def test_the_answer_about_sealed_days_needs_neither_pandas_nor_pyiceberg(sealed: Log, stack: LocalStack) -> None:
    """Each takes a second or more, and the command has to answer in two. pyarrow loads pandas for some conversions."""
    script = (
        "import sys\nfrom tidemark.cli.app import app\n"
        f"try:\n    app(['status', '{sealed.stream.name}'])\nexcept SystemExit:\n    pass\n"
        "print('heavy:', sorted({'pandas', 'pyiceberg', 'pyspark'} & set(sys.modules)))\n"
    )
    settings = sealed.settings
    own = {"TIDEMARK_PREFIX": settings.prefix, "TIDEMARK_STREAMS_DIR": str(settings.streams_dir)}
    environment = {**os.environ, **stack.env, **own, "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert f"{MONDAY}  sealed, v1" in done.stdout
    assert done.stdout.endswith("heavy: []\n")


def test_a_day_is_overdue_after_its_grace_period_and_a_layer_is_stale_after_a_minute(sealed: Log) -> None:
    beat(sealed, "speed", age=timedelta(seconds=61))
    (found,) = ask(sealed, hour=5)
    assert kinds(found) == ["speed_stale"]
    (found,) = ask(sealed, hour=7)
    assert (found.overdue, found.days[-1].status) == ((), "quiet")  # nobody has a record of it or a later one
    sealed.produce(1, at(WEDNESDAY, 9))
    (found,) = ask(sealed, hour=7)
    assert (found.overdue, found.last_sealed) == ((WEDNESDAY,), TUESDAY)
    assert kinds(found) == ["archive_stale", "speed_stale", "day_overdue"]
    assert f"--from {WEDNESDAY} --to {WEDNESDAY}" in found.problems[-1].hint


def test_the_watch_announces_a_missed_deadline_once_and_its_end_once(sealed: Log) -> None:
    path = sealed.settings.streams_dir / f"{sealed.stream.name}.yaml"
    definition = yaml.safe_load(path.read_text(encoding="utf-8"))
    definition["batch"]["sealed_by"] = "02:15"
    path.write_text(yaml.safe_dump(definition), encoding="utf-8")
    sealed.produce(1, at(WEDNESDAY, 9))
    sealed.archive(15, 16)
    open_problems: tuple[OpenProblem, ...] = ()
    sent: list[list[tuple[str, tuple[str, ...]]]] = []
    for minute in (14, 16, 21):
        open_problems = watched(sealed, minute, open_problems, sent)
    (problem,) = open_problems
    name = sealed.stream.name
    assert problem.text == (
        f"{name}: days not sealed by 02:15 of the next day: 2013-01-16."
        " Overdue since 2013-01-17 02:15 in America/New_York"
    )
    assert problem.hint.endswith(f"'tidemark backfill {name} --from 2013-01-16 --to 2013-01-16'")
    run = finalized(sealed, "run-2", WEDNESDAY)
    finish(run, {WEDNESDAY: 1})
    seal_run(run)
    for minute in (26, 31):
        open_problems = watched(sealed, minute, open_problems, sent)
    assert sent == [[], [("began", ("2013-01-16",))], [], [("ended", ("2013-01-16",))], []]


def watched(
    log: Log, minute: int, before: tuple[OpenProblem, ...], sent: list[list[tuple[str, tuple[str, ...]]]]
) -> tuple[OpenProblem, ...]:
    """The overdue problems after a check of the watch at 02:``minute``; what it announces is added to ``sent``."""
    now = thursday(2) + timedelta(minutes=minute)
    (status,) = read_status(log.settings, [log.stream.name], now=now)
    found = [item for item in of_status(status) if item.problem.kind == "day_overdue"]
    after = next_problems(found, frozenset(), before, now_us=micros(now))
    changes = find_changes(after, Announced(notifier="mail", problems=before))
    sent.append([(item.change, item.problem.marks) for item in changes])
    return after


def test_the_last_run_is_a_problem_if_it_failed_until_another_one_ended_well(sealed: Log) -> None:
    failed = finalized(sealed, "run-2", WEDNESDAY)
    with pytest.raises(ZeroDivisionError), failed.step(AUDIT):
        raise ZeroDivisionError("it broke")
    report_run(failed)
    (found,) = ask(sealed)
    assert found.last_run is not None
    assert (found.last_run.name, found.last_run.verdict) == ("run-2", "failed")
    assert found.last_run.failed is (found.last_run.verdict in NOT_ENDED)
    assert kinds(found) == ["run_failed"]
    assert "it broke" in found.problems[0].text
    run = finalized(sealed, "run-3", MONDAY, force=True)
    finish(run, {MONDAY: 10})
    seal_run(run)
    report_run(run)
    assert kinds(ask(sealed)[0]) == []


def test_the_run_under_way_is_named_while_it_holds_the_lease(sealed: Log) -> None:
    def running(ahead: timedelta = timedelta()) -> str | None:
        (found,) = read_status(sealed.settings, (sealed.stream.name,), now=datetime.now(UTC) + ahead)
        return None if found.running is None else found.running.run

    run = finalized(sealed, "run-5", WEDNESDAY)
    assert running() is None
    take(run)
    assert running() == "run-5"
    assert running(timedelta(hours=1)) is None  # nobody renewed it
    assert running(timedelta(hours=-1)) is None  # a wrong clock took it
    release(run)
    assert running() is None


def test_a_failed_layer_and_records_beyond_a_bound_are_problems_of_their_own(sealed: Log) -> None:
    beat(sealed, overflow_rows=7, out_of_bounds_rows=3, alarm_until=thursday(6))
    beat(sealed, "speed", state="failed", error="ServiceError: no broker")
    (found,) = ask(sealed)
    assert kinds(found) == ["overflow", "out_of_bounds", "speed_failed"]
    assert [item.healthy for item in found.layers] == [False, False]
    assert "ServiceError: no broker" in found.problems[2].text


@pytest.mark.conformance(76)
def test_unreadable_times_are_a_problem_until_their_alarm_ends(sealed: Log) -> None:
    beat(sealed, unreadable_times=1234, unreadable_times_share=0.02154, unreadable_times_until=thursday(6))
    (found,) = ask(sealed)
    assert kinds(found) == ["unreadable_times"]
    assert not found.layers[0].healthy
    assert found.problems[0].text == (
        f"{sealed.stream.name}: 1,234 records with a time field that can't be read;"
        f" their share of the last hour's records is 2.15 %; alarm until {thursday(6):%Y-%m-%d %H:%M} UTC"
    )
    beat(sealed, unreadable_times=1234, unreadable_times_share=0.02154, unreadable_times_until=thursday(4))
    (found,) = ask(sealed)
    assert (kinds(found), found.layers[0].healthy) == ([], True)


def test_a_stream_that_never_ran_needs_its_archive_layer(log: Log) -> None:
    (found,) = ask(log)
    assert (found.last_sealed, found.last_run, found.waiting) == (None, None, 0)
    assert kinds(found) == ["archive_never_started"]


def test_a_stream_that_is_sealed_from_kafka_alone_needs_no_archive_layer(sealed: Log) -> None:
    sealed.store.delete(sealed.layout.heartbeat_key("archive"))
    (found,) = ask(sealed)
    assert (found.problems, found.layers[0].heartbeat) == ((), None)


def test_a_question_without_an_answer_hides_neither_its_stream_nor_another(sealed: Log) -> None:
    name = f"broken_{sealed.stream.name}"
    path = sealed.settings.streams_dir / f"{name}.yaml"
    path.write_text("name: other", encoding="utf-8")
    sealed.store.put(sealed.layout.run_key("run-1", "report.json"), b"{")
    try:
        found, broken = ask(sealed, sealed.stream.name, name)
    finally:
        path.unlink()
    assert (kinds(found), kinds(broken)) == (["unknown"], ["definition_invalid"])
    assert "Cannot find out the last run" in found.problems[0].text
    assert found.last_sealed == TUESDAY
    assert found.layers[0].healthy
    assert (found.days_known, broken.days_known) == (True, False)


def test_a_catalog_without_an_answer_leaves_the_layers_known(sealed: Log) -> None:
    missing = sealed.settings.model_copy(update={"catalog_uri": "jdbc:sqlite:/nowhere/catalog.db"})
    (found,) = read_status(missing, [sealed.stream.name], now=thursday(5))
    assert kinds(found) == ["unknown"]
    assert "Cannot find out the days" in found.problems[0].text
    assert not found.days_known
    assert found.layers[0].retention is not None
    assert found.layers[0].healthy


@pytest.mark.parametrize("kind", ["jdbc", "rest"])
def test_a_catalog_that_hangs_leaves_the_layers_known_and_is_named_with_its_limit(sealed: Log, kind: str) -> None:
    with hung_server() as server:
        hung = hangs(sealed, server, kind)
        (found,) = read_status(hung, [sealed.stream.name], now=thursday(5))
    assert kinds(found) == ["unknown"]
    begin = f"Cannot find out the days of {sealed.stream.name}: ServiceError: the catalog does not answer: expected an "
    assert found.problems[0].text.startswith(f"{begin}answer within 4 s, found ")
    assert f"[{kind} catalog tidemark at {hung.catalog_uri}]. Check TIDEMARK_CATALOG_URI" in found.problems[0].text
    assert found.layers[0].healthy


def test_a_catalog_that_hangs_is_waited_for_once_for_all_streams(sealed: Log, make_stream: MakeStream) -> None:
    names = [sealed.stream.name, *(make_stream().name for _ in range(2))]
    with hung_server() as server:
        found = read_status(hangs(sealed, server, "rest"), names, now=thursday(5))
        assert server.connections() == 1
    assert ["the catalog does not answer" in item.problems[0].text for item in found] == [True] * 3


def test_a_catalog_that_hangs_is_one_problem_of_the_watch(sealed: Log, tmp_path: Path) -> None:
    definition = f"{sealed.stream.name}.yaml"
    (tmp_path / definition).symlink_to(sealed.settings.streams_dir / definition)
    with hung_server() as server:
        hung = hangs(sealed, server, "rest").model_copy(update={"streams_dir": tmp_path})
        found = read_findings(hung, WatchState(), datetime.now(UTC))
    (outage,) = (item for item in found.problems if item.problem.kind == "unknown")
    assert outage.stream == ALL_STREAMS
    assert outage.problem.text.startswith("The catalog does not answer, so streams can't be checked: ")
    assert "expected an answer within 4 s" in outage.problem.text
    assert found.unchecked == {sealed.stream.name}


def hangs(log: Log, server: HungServer, kind: str) -> Settings:
    values = {**log.settings.model_dump(), "catalog_type": kind, **hung_catalogs(server.address)[kind]}
    return Settings.model_validate(values)
