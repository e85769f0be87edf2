"""One run under a real Airflow in which every step's worker is killed once, and the scheduler and triggerer as well."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conftest import MakeStream, Produce
from tests.dags.asking import answer
from tests.dags.days import SUNDAY, Days
from tests.dags.kills import Killer, each_step_once
from tests.dags.runs import (
    BACKFILL,
    ENDED,
    EVERY_S,
    RUN_S,
    chunk_states,
    instances,
    read_until,
    run_states,
    running_airflow,
    tries_at_least,
    tries_of,
    wait_for_dags,
    wait_for_end,
)
from tests.faults import FaultProxy
from tests.waiting import wait_until
from tidemark.orchestration.steps import STEPS
from tidemark.run import run_name
from tidemark.settings import Settings
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.local import LocalStack

pytestmark = [pytest.mark.timeout(1800), pytest.mark.conformance(17)]
# Most rows have more: the check fails, and a person has to approve the day.
AT_MOST_ONE = {
    "expectation": "expect_column_values_to_be_between",
    "kwargs": {"column": "n", "max_value": 1},
    "severity": "warning",
}


@pytest.fixture(scope="module")
def days(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    """A day that nothing archived, and whose warning has to be approved."""
    made = Days.make(settings, make_stream, produce, (SUNDAY,))
    path = settings.streams_dir / f"{made.stream.name}.yaml"
    definition = yaml.safe_load(path.read_text(encoding="utf-8"))
    definition["batch"] |= {"checks": [AT_MOST_ONE], "approval": ["warnings"]}
    path.write_text(yaml.safe_dump(definition), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def airflow(
    stack: LocalStack, proxy: FaultProxy, days: Days, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalAirflow]:
    streams, dags = tmp_path_factory.mktemp("streams"), tmp_path_factory.mktemp("dags")
    for path in stack.streams_dir.glob(f"{days.stream.name}.*"):
        shutil.copy(path, streams)
    shutil.copy(Path(__file__).with_name("short_pauses.py"), dags / "streams.py")
    own = {
        "TIDEMARK_S3_ENDPOINT": proxy.url,
        "TIDEMARK_STREAMS_DIR": str(streams),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        # A killed scheduler's tasks are noticed soon.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    }
    with running_airflow(stack, own) as running:
        wait_for_dags(running.api, [f"reconcile_{days.stream.name}", BACKFILL])
        yield running


def test_a_day_is_sealed_once_though_every_worker_the_scheduler_and_the_triggerer_are_killed(
    airflow: LocalAirflow, proxy: FaultProxy, days: Days
) -> None:
    api, dag = airflow.api, f"reconcile_{days.stream.name}"
    kills = each_step_once(days.stream, SUNDAY)
    killer = Killer(proxy, airflow.components["airflow-scheduler"], kills)
    form = {"stream": days.stream.name, "from_day": str(SUNDAY), "to_day": str(SUNDAY)}
    backfill = api.trigger(BACKFILL, form)
    run = f"{SUNDAY}__{backfill}__1"

    def waits_for_a_person() -> bool:
        if run not in run_states(api, dag):
            return False
        return any(item["state"] == "awaiting_input" for item in instances(api, dag, run))

    wait_until(waits_for_a_person, "the run waits for a person", RUN_S, every_s=EVERY_S)
    assert set(chunk_states(api, backfill).values()) == {"deferred"}
    triggerer = airflow.components["airflow-triggerer"]
    triggerer.kill()
    answer(airflow, days.stream, run, "Approve", "It was measured again.")
    read_until(lambda: api.run_state(dag, run) in ENDED, days)
    assert set(chunk_states(api, backfill).values()) == {"deferred"}
    triggerer.launch()
    wait_for_end(api, BACKFILL, backfill)

    tasks = tries_of(api, dag, run)
    assert killer.done == list(kills), tasks
    ended = {step.name: ("success", 2) for step in STEPS}
    # It died once the answer was saved: its repetition has nothing to ask.
    ended |= {"approve": ("skipped", 2), "delivery": ("skipped", 1)}
    ended |= {"rebuild": ("success", 3), "audit": ("success", 1)}  # the rebuild's application does both
    assert tries_at_least(tasks, ended) == ended
    assert (api.run_state(BACKFILL, backfill), run_states(api, dag)) == ("success", {run: "success"})
    assert days.seals() == [(str(SUNDAY), 1, run_name(run))]
    for table in (days.stream.table, days.stream.quarantine_table):
        assert days.publishers(table) == [run_name(run)]
    days.require_proven((SUNDAY,))
