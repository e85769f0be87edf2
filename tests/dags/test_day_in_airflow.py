"""A day in a real Airflow: triggered, rebuilt from the archive, sealed, proven. Its tasks know connections only."""

import shutil
from collections.abc import Iterator

import pytest

from tests.conftest import MakeStream, Produce
from tests.dags.connections import by_connections
from tests.dags.days import SUNDAY, Days
from tests.dags.runs import running_airflow, states_of, wait_for_dags, wait_for_end
from tidemark.run import run_name
from tidemark.settings import Settings
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.local import LocalStack

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def days(settings: Settings, make_stream: MakeStream, produce: Produce) -> Days:
    found = Days.make(settings, make_stream, produce, (SUNDAY,))
    found.archive()
    return found


@pytest.fixture
def airflow(stack: LocalStack, days: Days, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """An Airflow that knows this stream alone."""
    streams = tmp_path_factory.mktemp("streams")
    for path in stack.streams_dir.glob(f"{days.stream.name}.*"):
        shutil.copy(path, streams)
    own = {
        **by_connections(stack, tmp_path_factory.mktemp("deployment")),
        "TIDEMARK_STREAMS_DIR": str(streams),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    }
    with running_airflow(stack, own) as running:
        yield running


@pytest.mark.conformance(29)
def test_a_triggered_day_is_sealed_and_proven_and_airflow_keeps_no_secret(airflow: LocalAirflow, days: Days) -> None:
    api, dag = airflow.api, f"reconcile_{days.stream.name}"
    wait_for_dags(api, [dag])
    run = api.trigger(dag, {"from_day": str(SUNDAY), "to_day": str(SUNDAY)})
    wait_for_end(api, dag, run)

    assert api.run_state(dag, run) == "success", states_of(api, dag, run)
    assert days.seals() == [(str(SUNDAY), 1, run_name(run))]
    days.require_proven((SUNDAY,))
    secret = airflow.stack.settings.s3_secret_key.get_secret_value().encode()
    kept = [path for path in airflow.home.rglob("*") if path.is_file()]
    assert len([path for path in kept if path.suffix == ".log"]) > 1
    assert [path.name for path in kept if secret in path.read_bytes()] == []
