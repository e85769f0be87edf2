"""The DAG folder, parsed in a process of its own as Airflow's DAG processor does it."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
STREAMS = PROJECT / "include" / "streams"
BROKEN = ("bomb", "trains", "typo")
NAMES = sorted([*(path.stem for path in STREAMS.glob("*.yaml")), *BROKEN])
PARSER = Path(__file__).with_name("dag_folder.py")
MISNAMED = ("flights (copy).yaml", "a b.yaml", f"{'x' * 100}.yaml")
pytestmark = pytest.mark.services
STEPS = ("wait_for_lease", "wait", "plan", "refill", "finalize_plan", "rebuild", "audit", "publish", "seal", "report")


def parse(streams: Path, home: Path) -> dict[str, Any]:
    """What DagBag makes of the project's DAG folder, where nothing is known but the folder of the definitions."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TIDEMARK_", "AIRFLOW"))}
    done = subprocess.run(
        [sys.executable, str(PARSER), str(PROJECT / "dags")],
        env={
            **inherited,
            "PYTHONPATH": os.pathsep.join([str(PROJECT / "include"), str(PARSER.parent)]),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__SECRETS__BACKEND": "secrets_backend.RecordingBackend",
            "ASKED": str(home / "asked"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "TIDEMARK_STREAMS_DIR": str(streams),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The project's streams beside every kind of bad neighbour: broken, hostile and misnamed files."""
    streams = tmp_path_factory.mktemp("definitions") / "streams"
    shutil.copytree(STREAMS, streams, ignore=shutil.ignore_patterns("__pycache__"))
    text = (streams / "flights.yaml").read_text(encoding="utf-8")
    broken = text.replace("name: flights", "name: trains").replace("schedule:", "scedule:")
    (streams / "trains.yaml").write_text(broken, encoding="utf-8")
    typo = text.replace("name: flights", "name: typo").replace("min_value: 1", "min_value: 2024-02-30")
    (streams / "typo.yaml").write_text(typo, encoding="utf-8")
    (streams / "bomb.yaml").write_text("".join(f"k{n}:\n" for n in range(30_000)), encoding="utf-8")
    for name in MISNAMED:
        (streams / name).write_text(text, encoding="utf-8")
    return parse(streams, tmp_path_factory.mktemp("airflow"))


@pytest.fixture(scope="module")
def flights(parsed: Mapping[str, Any]) -> dict[str, Any]:
    dag: dict[str, Any] = parsed["dags"]["reconcile_flights"]
    return dag


def test_parsing_takes_less_than_a_second_and_imports_nothing_heavy(parsed: Mapping[str, Any]) -> None:
    assert parsed["heavy"] == []
    assert parsed["seconds"] < 1


def test_parsing_asks_for_no_connection_and_no_variable_and_connects_to_nothing(parsed: Mapping[str, Any]) -> None:
    assert parsed["control"] == ["connection control"]
    assert (parsed["asked"], parsed["connected"]) == ([], [])


def test_every_stream_has_a_reconcile_dag_and_the_other_dags_are_shared(parsed: Mapping[str, Any]) -> None:
    kinds = ("backfill", "replay", "rollback", "maintenance")
    shared = {f"tidemark_{kind}" for kind in kinds}
    assert set(parsed["dags"]) == shared | {f"reconcile_{name}" for name in NAMES}


def test_the_dag_runs_daily_in_the_streams_time_zone_with_real_intervals(flights: Mapping[str, Any]) -> None:
    assert flights["timetable"] == "CronDataIntervalTimetable"
    assert flights["cron"] == ["30 0 * * *", "America/New_York"]
    assert flights["catchup"] is False
    assert flights["max_active_runs"] == 1


def test_the_steps_follow_each_other_and_the_last_task_decides(flights: Mapping[str, Any]) -> None:
    downstream = {name: task["downstream"] for name, task in flights["tasks"].items()}
    chain = {before: [after] for before, after in itertools.pairwise(STEPS)}
    assert downstream == {**chain, "seal": ["complete", "report"], "report": ["complete"], "complete": []}
    rules = {name: task["rule"] for name, task in flights["tasks"].items() if task["rule"] != "all_success"}
    assert rules == {"finalize_plan": "none_failed", **dict.fromkeys(("report", "complete"), "all_done_setup_success")}
    teardowns = {name: task["fails_run"] for name, task in flights["tasks"].items() if task["teardown"]}
    assert teardowns == {"report": False, "complete": True}


@pytest.mark.conformance(29)
def test_spark_steps_are_submitted_and_show_no_settings_in_templates(flights: Mapping[str, Any]) -> None:
    spark = {name: task["templates"] for name, task in flights["tasks"].items() if task["operator"] == "SparkStep"}
    assert spark == {name: ["application"] for name in ("refill", "rebuild", "audit", "publish")}


def test_every_step_is_retried_and_has_a_time_out(flights: Mapping[str, Any]) -> None:
    steps = {name: task for name, task in flights["tasks"].items() if name in STEPS}
    assert {task["retries"] for task in steps.values()} == {2}
    assert all(task["bounded"] for task in steps.values())


def test_sealing_announces_the_streams_asset(flights: Mapping[str, Any]) -> None:
    outlets = {name: task["outlets"] for name, task in flights["tasks"].items() if task["outlets"]}
    assert outlets == {"seal": ["tidemark://streams/flights/sealed"]}


def test_the_form_asks_for_days_and_force(flights: Mapping[str, Any]) -> None:
    day = {"type": ["null", "string"], "format": "date"}
    assert flights["params"] == {
        "from_day": {**day, "title": "From day"},
        "to_day": {**day, "title": "To day"},
        "force": {"type": "boolean", "title": "Rebuild unchanged days"},
    }
    assert flights["undescribed"] == []


def test_no_day_waits_for_another_and_airflow_may_backfill_them(flights: Mapping[str, Any]) -> None:
    assert {name for name, task in flights["tasks"].items() if task["depends_on_past"]} == set()


def test_a_backfill_is_started_by_hand_and_has_a_task_per_chunk(parsed: Mapping[str, Any]) -> None:
    dag = parsed["dags"]["tidemark_backfill"]
    assert (dag["timetable"], dag["catchup"]) == ("NullTimetable", False)
    assert dag["params"] == {
        "stream": {"type": "string", "title": "Stream", "enum": NAMES},
        "from_day": {"type": "string", "format": "date", "title": "From day"},
        "to_day": {"type": "string", "format": "date", "title": "To day"},
        "days_per_run": {"type": "integer", "minimum": 1, "maximum": 92, "title": "Days per run"},
        "force": {"type": "boolean", "title": "Rebuild unchanged days"},
    }
    assert dag["undescribed"] == []
    found = {name: (task["mapped"], task["downstream"], task["retries"]) for name, task in dag["tasks"].items()}
    assert found == {"chunks": (False, ["chunk"], 2), "chunk": (True, [], 2)}
    assert dag["tasks"]["chunk"]["at_once_per_run"] == 1


def test_a_replay_is_started_by_hand_one_at_a_time_and_not_retried(parsed: Mapping[str, Any]) -> None:
    dag = parsed["dags"]["tidemark_replay"]
    assert (dag["timetable"], dag["catchup"], dag["max_active_runs"]) == ("NullTimetable", False, 1)
    assert dag["params"] == {"stream": {"type": "string", "title": "Stream", "enum": NAMES}}
    ((name, task),) = dag["tasks"].items()
    assert (name, task["operator"], task["templates"]) == ("replay", "StreamStep", ["application", "stream", "name"])
    assert (task["retries"], task["bounded"]) == (0, True)
    assert "Run it after a fix" in dag["doc"]


def test_a_rollback_is_started_by_hand_with_a_stream_a_day_and_a_version(parsed: Mapping[str, Any]) -> None:
    dag = parsed["dags"]["tidemark_rollback"]
    assert (dag["timetable"], dag["catchup"], dag["max_active_runs"]) == ("NullTimetable", False, 1)
    assert dag["params"] == {
        "stream": {"type": "string", "title": "Stream", "enum": NAMES},
        "day": {"type": "string", "format": "date", "title": "Day"},
        "version": {"type": "integer", "minimum": 1, "title": "Version"},
    }
    assert dag["undescribed"] == []
    lease, task = (dag["tasks"][name] for name in ("wait_for_lease", "rollback"))
    assert (lease["operator"], lease["templates"], lease["downstream"]) == ("LeaseStep", ["stream"], ["rollback"])
    assert (task["operator"], task["templates"]) == ("StreamStep", ["application", "stream", "name"])
    assert (task["retries"], task["bounded"]) == (0, True)
    assert task["outlets"] == ["tidemark_rollback"]


def test_maintenance_runs_every_week_for_every_stream_and_one_run_at_a_time(parsed: Mapping[str, Any]) -> None:
    dag = parsed["dags"]["tidemark_maintenance"]
    assert (dag["timetable"], dag["cron"], dag["catchup"]) == ("CronTriggerTimetable", ["0 4 * * 0", "UTC"], False)
    choices = {"type": "string", "title": "Stream", "enum": ["every stream", *NAMES]}
    assert (dag["max_active_runs"], dag["params"], dag["defaults"]) == (1, {"stream": choices}, ["every stream"])
    found = {name: (task["mapped"], task["downstream"], task["retries"]) for name, task in dag["tasks"].items()}
    assert found == {"streams": (False, ["maintain"], 0), "maintain": (True, [], 0)}
    assert all(task["bounded"] for task in dag["tasks"].values())
    assert "rewrite the archive's small objects as large ones, and delete the replaced ones a week later" in dag["doc"]


def test_a_broken_definition_shows_as_an_import_error_and_spoils_no_other_stream(parsed: Mapping[str, Any]) -> None:
    (file, error), *others = parsed["errors"].items()
    assert (Path(file).name, others) == ("stream_definitions.py", [])
    assert "batch.scedule: unknown key" in error
    assert "'2024-02-30' is no timestamp (day is out of range for month)" in error
    assert "at most 20,000 keys and values" in error
    assert re.findall(r"/(\w+\.yaml)", error) == [f"{name}.yaml" for name in BROKEN]
    assert [name for name in MISNAMED if f"found {name.removesuffix('.yaml')!r}" not in error] == []
    good, bad = parsed["dags"]["reconcile_flights"], parsed["dags"]["reconcile_trains"]
    assert good["cron"] == ["30 0 * * *", "America/New_York"]
    assert bad["timetable"] == "NullTimetable"
    assert "batch.scedule: unknown key" in bad["doc"]
    assert list(bad["tasks"]) == list(good["tasks"])
    shared = [dag["doc"] for name, dag in parsed["dags"].items() if name.startswith("tidemark_")]
    assert len(shared) == 4
    assert all("stream `trains` is broken" in doc and "batch.scedule: unknown key" in doc for doc in shared)


@pytest.mark.conformance(62)
def test_a_definition_that_airflow_refuses_has_a_dag_that_says_why(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from tidemark.definitions.stream import load_stream
from tidemark.orchestration.reconcile_dag import reconcile_dag
from tidemark.orchestration.steps import Reconcile
stream = load_stream("flights", Path(sys.argv[1]))
batch = stream.batch.model_copy(update={"wait_seconds": 10**15})  # more than a duration can hold
dag = reconcile_dag(Reconcile(name="flights", stream=stream.model_copy(update={"batch": batch}), error=None))
print("\\n".join([type(dag.timetable).__name__, str(len(dag.tasks)), dag.description]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(STREAMS)],
        env={**os.environ, "PYTHONPATH": str(PROJECT / "include"), "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    timetable, tasks, description = done.stdout.splitlines()[-3:]
    assert (timetable, tasks) == ("NullTimetable", str(len(STEPS) + 1))
    assert description.startswith("Broken: Airflow refuses a definition: found OverflowError: ")
