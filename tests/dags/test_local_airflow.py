"""Airflow of the local stack, for real: what its own scheduler and DAG processor make of our DAGs."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.conftest import MakeStream, Produce
from tests.dags.days import PARTITIONS, SATURDAY, SUNDAY, Days
from tests.dags.runs import ENDED, kill_task, read_until, run_states
from tests.speed.letters import letter, source_id
from tests.speed.live import read_topic
from tests.waiting import wait_until
from tidemark.batch.run import Run, run_name
from tidemark.core.errors import ServiceError
from tidemark.settings import Settings
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.local import LocalStack
from tidemark.streams import Stream

pytestmark = pytest.mark.timeout(900)
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
def two_days(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    days = Days.make(settings, make_stream, produce, (SATURDAY, SUNDAY))
    days.archive()
    return days


@pytest.fixture(scope="module")
def airflow(stack: LocalStack, mended: Stream, berlin: Stream, two_days: Days) -> Iterator[LocalAirflow]:
    """Started when every definition is there: it looks for new ones only now and then."""
    broken = stack.streams_dir / "trains.yaml"
    text = (stack.streams_dir / "flights.yaml").read_text(encoding="utf-8")
    broken.write_text(text.replace("name: flights", "name: trains").replace("schedule:", "scedule:"), encoding="utf-8")
    running = LocalAirflow(stack, schedules=False)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        broken.unlink()


def test_a_broken_definition_is_an_import_error_and_the_other_streams_run_on(airflow: LocalAirflow) -> None:
    api = airflow.api
    wait_until(
        lambda: api.dag_known("reconcile_flights") and bool(api.import_errors()),
        "the definitions are parsed",
        timeout_s=240,
    )
    ((file, error),) = api.import_errors().items()
    assert Path(file).name == "stream_definitions.py"
    assert "batch.scedule: unknown key" in error
    assert api.dag_known("reconcile_trains")


def test_a_run_without_days_fails_at_once_saying_what_to_fill_in_and_is_reported(airflow: LocalAirflow) -> None:
    api, dag = airflow.api, "reconcile_flights"
    wait_until(lambda: api.dag_known(dag), "the DAG is known", timeout_s=240)
    api.unpause(dag)
    run = api.trigger(dag, {})
    wait_until(lambda: api.run_state(dag, run) in {"success", "failed"}, "the run ends", timeout_s=300)

    assert api.run_state(dag, run) == "failed"
    tasks = {item.task: item for item in api.task_states(dag, run)}
    assert {name: item.state for name, item in tasks.items()} == {
        "wait": "failed",
        **dict.fromkeys(("plan", "refill", "settle", "rebuild", "audit", "publish", "seal"), "upstream_failed"),
        "report": "success",
        "complete": "upstream_failed",
    }
    assert tasks["wait"].tries == 1
    (log,) = (airflow.home / "logs" / f"dag_id={dag}" / f"run_id={run}" / "task_id=wait").glob("*.log")
    assert "Trigger the DAG again and fill in from_day and to_day" in log.read_text(encoding="utf-8")


def test_a_replay_triggered_by_hand_brings_back_what_is_good_now_and_saves_what_became_of_the_letters(
    airflow: LocalAirflow, settings: Settings, mended: Stream
) -> None:
    api, dag = airflow.api, f"replay_{mended.name}"
    wait_until(lambda: api.dag_known(dag), "the DAG is known", timeout_s=240)
    api.unpause(dag)
    run = api.trigger(dag, {})
    wait_until(lambda: api.run_state(dag, run) in {"success", "failed"}, "the run ends", timeout_s=600)

    (log,) = (airflow.home / "logs" / f"dag_id={dag}" / f"run_id={run}" / "task_id=replay").glob("*.log")
    told = log.read_text(encoding="utf-8")
    assert [(item.task, item.state) for item in api.task_states(dag, run)] == [("replay", "success")], told
    assert '\\"event\\": \\"replayed\\"' in told
    live = read_topic(settings, mended.speed.topic)
    assert [(item.source, item.value) for item in live] == [((0, 0), b'{"n":1}'), ((0, 2), b'{"n":3}')]
    again = read_topic(settings, mended.speed.dead_letter_topic)[3:]
    assert [(item.source, item.value, item.header("attempt")) for item in again] == [((0, 1), b"{", "1")]
    saved = Run.open(mended.name, run_name(run), settings).require("replay")
    assert (saved["read"], saved["published"], saved["dead_again"], saved["status"]) == (3, 2, 1, "ok")


def test_airflows_own_backfill_from_midnight_to_midnight_in_the_streams_zone_takes_those_days(
    airflow: LocalAirflow, berlin: Stream
) -> None:
    api, dag = airflow.api, f"reconcile_{berlin.name}"
    wait_until(lambda: api.dag_known(dag), "the DAG is known", timeout_s=240)
    span = (date(2024, 3, 30), date(2024, 4, 1))  # the one between them has 23 hours
    start, end = (datetime.combine(day, datetime.min.time(), tzinfo=ZONE) for day in span)
    asked = {"dag_id": dag, "from_date": start.isoformat(), "to_date": (end + timedelta(hours=23)).isoformat()}
    found = api._authorised("POST", "/api/v2/backfills/dry_run", json=asked)["backfills"]
    moments = [datetime.fromisoformat(item["logical_date"]).astimezone(UTC).isoformat() for item in found]
    # Half past midnight in Berlin, where the data interval of each day's run begins.
    assert moments == [f"2024-03-{at}+00:00" for at in ("29T23:30:00", "30T23:30:00", "31T22:30:00")]


def test_a_backfill_by_form_of_a_day_that_is_not_over_fails_at_once_saying_so_and_starts_no_run(
    airflow: LocalAirflow, berlin: Stream
) -> None:
    api, dag = airflow.api, f"backfill_{berlin.name}"
    wait_until(lambda: api.dag_known(dag), "the DAG is known", timeout_s=240)
    api.unpause(dag)
    tomorrow = str(datetime.now(ZONE).date() + timedelta(days=1))
    run = api.trigger(dag, {"from_day": tomorrow, "to_day": tomorrow})

    def ended() -> bool:
        with suppress(ServiceError):  # a busy Airflow may take longer to answer than its client waits
            return api.run_state(dag, run) in {"success", "failed"}
        return False

    wait_until(ended, "the run ends", timeout_s=600)

    states = {item.task: (item.state, item.tries) for item in api.task_states(dag, run)}
    assert states == {"reconcile": ("failed", 1), "day": ("upstream_failed", 0)}
    (log,) = (airflow.home / "logs" / f"dag_id={dag}" / f"run_id={run}" / "task_id=reconcile").glob("*.log")
    assert "the last day of the backfill is not over" in log.read_text(encoding="utf-8")
    assert api._authorised("GET", f"/api/v2/dags/reconcile_{berlin.name}/dagRuns")["dag_runs"] == []


@pytest.mark.timeout(2400)
def test_a_run_whose_rebuild_is_killed_and_a_backfill_beside_it_publish_and_seal_each_day_once_and_whole(
    airflow: LocalAirflow, settings: Settings, two_days: Days
) -> None:
    """Behind them another version of a day while the stream is maintained, and a rollback to the first one, by form."""
    api, name = airflow.api, two_days.stream.name
    kinds = ("reconcile", "backfill", "rollback", "maintain")
    dag, backfill_dag, rollback_dag, maintain_dag = (f"{kind}_{name}" for kind in kinds)
    for known in (dag, backfill_dag, rollback_dag, maintain_dag):
        wait_until(partial(api.dag_known, known), f"{known} is known", timeout_s=240)
        api.unpause(known)
    backfill = api.trigger(backfill_dag, {"from_day": str(SATURDAY), "to_day": str(SATURDAY)})
    run = api.trigger(dag, {"from_day": str(SUNDAY), "to_day": str(SUNDAY)})
    wait_until(lambda: kill_task(airflow, dag, run, "rebuild"), "the rebuild is killed", timeout_s=900)

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
    told = Run.open(name, run_name(upkeep), settings).require("maintain")
    assert (told["ledger"]["manifests"], told["tables"].keys()) == (
        len(PARTITIONS),
        {two_days.stream.table, two_days.stream.quarantine_table},
    )
    told = Run.open(name, run_name(back), settings).require("rollback")
    assert (told["days"], told["to"], told["already"]) == ({str(SUNDAY): 3}, 1, False)
    of_sunday = (run_name(run), run_name(again), f"rollback-{SUNDAY}-3-to-1")
    assert two_days.seals()[1:] == [(str(SUNDAY), version, own) for version, own in enumerate(of_sunday, 1)]
    two_days.require_proven((SATURDAY, SUNDAY))


def test_only_the_owner_can_read_airflows_secrets(airflow: LocalAirflow) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in (airflow.password_file, airflow.home / "airflow.cfg")}
    assert modes == {"passwords.json": 0o600, "airflow.cfg": 0o600}
    assert airflow.home.stat().st_mode & 0o777 == 0o700
