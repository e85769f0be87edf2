"""What a stream's DAG shows of it: its owner, and events of the days that a run has sealed, and of no others."""

import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.core.worlds import log, seal_of, sealed_log
from tidemark.installation import PROJECT
from tidemark.orchestration.steps import reconciles
from tidemark.orchestration.tasks import announced
from tidemark_airflow.assets import announce, day_asset, sealed_asset
from tidemark_airflow.operators import PythonStep
from tidemark_airflow.reconcile_dag import reconcile_dag

DAY = date(2013, 1, 14)
STREAMS = PROJECT / "include" / "streams"
LOGS = [sealed_log(log(), 0, 10)]


def test_the_owner_of_a_stream_owns_every_task_of_its_dag(tmp_path: Path) -> None:
    for file in STREAMS.glob("flights*"):
        shutil.copy(file, tmp_path)
    definition = tmp_path / "flights.yaml"
    definition.write_text(f"{definition.read_text(encoding='utf-8')}\nowner: team-air\n", encoding="utf-8")
    (stream,) = reconciles(tmp_path)
    assert {task.owner for task in reconcile_dag(stream).tasks} == {"team-air"}


def events_of(*versions: int) -> tuple[Any, dict[str, Any]]:
    """What a run that sealed these versions of the day emits: the day's event, None without one, and the stream's."""
    outlets = [sealed_asset("flights"), day_asset("flights")]
    task = PythonStep(task_id="seal", step="seal", stream="flights", outlets=outlets)
    events = OutletEventAccessors()
    result = announced([seal_of(DAY, LOGS, version=version) for version in versions])
    announce(task, "flights", {"run_id": "run-1", "outlet_events": events}, result)
    day = events[day_asset("flights")] if day_asset("flights") in task.outlets else None
    return day, events[sealed_asset("flights")].extra


@pytest.mark.parametrize("version", [1, 2], ids=["sealed", "re-opened"])
def test_a_sealed_version_of_a_day_emits_the_days_key_with_its_version(version: int) -> None:
    day, extra = events_of(version)
    assert sorted(day.partition_keys) == ["2013-01-14"]
    assert day.extra == extra
    assert extra == {
        "stream": "flights",
        "run": "run-1",
        "days": {"2013-01-14": version},
        "quality": {"2013-01-14": "passed"},
    }


def test_a_run_that_has_sealed_no_day_emits_no_event_of_one() -> None:
    """All its days are held back."""
    day, extra = events_of()
    assert (day, extra["days"]) == (None, {})
