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
DAGS = PROJECT / "dags"
STREAMS = PROJECT / "include" / "streams"
BROKEN = ("bomb", "trains", "typo")
NAMES = sorted([*(path.stem for path in STREAMS.glob("*.yaml")), *BROKEN])
PARSER = Path(__file__).with_name("dag_folder.py")
MISNAMED = ("flights (copy).yaml", "a b.yaml", f"{'x' * 100}.yaml")
pytestmark = pytest.mark.services
STEPS = (
    *("wait_for_lease", "wait", "plan", "refill", "finalize_plan", "rebuild", "audit", "approve", "publish", "seal"),
    *("delivery", "report"),
)


def parse(streams: Path, home: Path, dags: Path = DAGS, /, **more: str) -> dict[str, Any]:
    """What DagBag makes of the project's DAG folder, or of a file of it, where only the definitions are known."""
    return printed(PARSER, streams, home, dags, **more)


def printed(
    program: Path, streams: Path, home: Path, dags: Path = DAGS, /, *arguments: str, **more: str
) -> dict[str, Any]:
    """What the program prints about the project's DAG folder."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TIDEMARK_", "AIRFLOW"))}
    done = subprocess.run(
        [sys.executable, str(program), str(dags), *arguments],
        env={
            **inherited,
            "PYTHONPATH": os.pathsep.join([str(PROJECT / "include"), str(PARSER.parent)]),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__SECRETS__BACKEND": "secrets_backend.RecordingBackend",
            "ASKED": str(home / "asked"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "TIDEMARK_STREAMS_DIR": str(streams),
            **more,
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


def test_parsing_imports_nothing_heavy_and_takes_no_minutes(parsed: Mapping[str, Any]) -> None:
    assert parsed["heavy"] == []
    assert parsed["cpu_seconds"] < 5  # ten times what it takes here


@pytest.mark.conformance(29)
def test_parsing_asks_for_no_connection_and_no_variable_and_connects_to_nothing(parsed: Mapping[str, Any]) -> None:
    assert parsed["control"] == ["connection control"]
    assert (parsed["asked"], parsed["connected"]) == ([], [])


def test_every_stream_has_a_reconcile_dag_and_the_other_dags_are_shared(parsed: Mapping[str, Any]) -> None:
    kinds = ("backfill", "replay", "rollback", "maintenance", "watch")
    shared = {f"tidemark_{kind}" for kind in kinds}
    assert set(parsed["dags"]) == shared | {f"reconcile_{name}" for name in NAMES}


def test_every_dag_says_what_it_is_for_and_who_owns_it(parsed: Mapping[str, Any]) -> None:
    dags = parsed["dags"]
    assert {name for name, dag in dags.items() if not dag["description"] or not dag["doc"]} == set()
    assert {name: dag["owners"] for name, dag in dags.items() if dag["owners"] != ["tidemark"]} == {}
    broken = {f"reconcile_{name}": sorted(["broken", name, "tidemark"]) for name in BROKEN}
    streams = {name: sorted([name.removeprefix("reconcile_"), "tidemark"]) for name in dags if name[0] == "r"}
    shared = {name: ["tidemark"] for name in dags if name[0] == "t"}
    assert {name: dag["tags"] for name, dag in dags.items()} == {**streams, **shared, **broken}


def test_a_streams_page_begins_with_its_description(flights: Mapping[str, Any]) -> None:
    about = "Departures of the three airports of New York in 2013"
    assert flights["description"] == f"Rebuild, prove and publish days of stream flights: {about}"
    assert flights["doc"].startswith(f"{about}\n\nRebuilds days of stream `flights` from the archive")
    assert "Days begin and end in America/New_York." in flights["doc"]


def test_every_task_has_a_time_out_but_the_one_that_waits_for_a_run(parsed: Mapping[str, Any]) -> None:
    tasks = {(dag, name): task for dag, item in parsed["dags"].items() for name, task in item["tasks"].items()}
    assert {name for name, task in tasks.items() if not task["bounded"]} == {("tidemark_backfill", "chunk")}


def test_the_dag_runs_daily_in_the_streams_time_zone_with_real_intervals(flights: Mapping[str, Any]) -> None:
    assert flights["timetable"] == "CronDataIntervalTimetable"
    assert flights["cron"] == ["30 0 * * *", "America/New_York"]
    assert flights["catchup"] is False
    assert flights["max_active_runs"] == 1


def test_the_steps_follow_each_other_and_the_last_task_decides(flights: Mapping[str, Any]) -> None:
    downstream = {name: task["downstream"] for name, task in flights["tasks"].items()}
    chain = {before: [after] for before, after in itertools.pairwise(STEPS)}
    # Airflow fails a run by tasks that have only "report" after them: a failed "delivery" must have "complete", too.
    last = {"seal": ["complete", "delivery"], "delivery": ["complete", "report"], "report": ["complete"]}
    assert downstream == {**chain, **last, "complete": []}
    rules = {name: task["rule"] for name, task in flights["tasks"].items() if task["rule"] != "all_success"}
    assert rules == {
        **dict.fromkeys(("finalize_plan", "publish"), "none_failed"),
        **dict.fromkeys(("report", "complete"), "all_done_setup_success"),
    }
    teardowns = {name: task["fails_run"] for name, task in flights["tasks"].items() if task["teardown"]}
    assert teardowns == {"report": False, "complete": True}


@pytest.mark.conformance(29)
def test_spark_steps_are_submitted_and_show_no_settings_in_templates(flights: Mapping[str, Any]) -> None:
    spark = {name: task["templates"] for name, task in flights["tasks"].items() if task["operator"] == "ClientStep"}
    assert spark == {name: ["stream"] for name in ("refill", "rebuild", "audit", "publish", "delivery")}


def test_spark_steps_run_in_the_pool_of_the_deployment_and_other_tasks_do_not(tmp_path: Path) -> None:
    shutil.copy(STREAMS / "flights.yaml", tmp_path)
    dags = parse(tmp_path, tmp_path, TIDEMARK_SPARK_POOL="spark")["dags"]
    found = {
        dag: [name for name, task in item["tasks"].items() if task["pool"] == "spark"] for dag, item in dags.items()
    }
    assert {dag: names for dag, names in found.items() if names} == {
        "reconcile_flights": ["refill", "rebuild", "audit", "publish", "delivery"],
        "tidemark_replay": ["replay"],
        "tidemark_rollback": ["rollback"],
        "tidemark_maintenance": ["maintain"],
    }
    others = {task["pool"] for item in dags.values() for task in item["tasks"].values()} - {"spark"}
    assert others == {"default_pool"}


def test_the_watch_comes_before_scheduled_runs_and_these_before_every_other_run(tmp_path: Path) -> None:
    shutil.copy(STREAMS / "flights.yaml", tmp_path)
    daily = "scheduled__2026-11-26T05:30:00+00:00"
    others = (
        "manual__2026-11-26T08:00:00+00:00",
        "backfill__2026-11-01T05:30:00+00:00",  # of Airflow's own dialog
        "2026-11-01__manual__2026-11-26T08:00:00+00:00__1",  # a chunk of tidemark_backfill
        "2026-11-01__late__2026-11-26T08-00-00",  # started by the watch
        "2026-11-01 scheduled__by hand",
    )
    plugins = {"AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins")}
    weights = printed(PARSER.with_name("weights.py"), tmp_path, tmp_path, DAGS, daily, *others, **plugins)
    flights = weights.pop("reconcile_flights")
    first = flights[daily]
    assert set(first) == {*STEPS, "complete"}
    assert all(min(first.values()) > max(flights[run].values()) for run in others)
    watch = weights.pop("tidemark_watch")[daily]
    shared = [weight for runs in weights.values() for tasks in runs.values() for weight in tasks.values()]
    assert min(watch.values()) > max(first.values()) >= min(first.values()) > max(shared)


def test_every_step_is_retried_and_has_a_time_out(flights: Mapping[str, Any]) -> None:
    steps = {name: task for name, task in flights["tasks"].items() if name in STEPS}
    # The report waits for "delivery", so that is tried again only once.
    assert {name: task["retries"] for name, task in steps.items()} == dict.fromkeys(STEPS, 6) | {"delivery": 1}
    assert all(task["bounded"] for task in steps.values())


def test_sealing_announces_the_streams_assets(flights: Mapping[str, Any]) -> None:
    outlets = {name: task["outlets"] for name, task in flights["tasks"].items() if task["outlets"]}
    assert outlets == {"seal": ["tidemark://streams/flights/sealed", "tidemark://streams/flights/day"]}


def test_the_form_asks_for_days_and_for_what_a_person_decides(flights: Mapping[str, Any]) -> None:
    day = {"type": ["null", "string"], "format": "date"}
    assert flights["params"] == {
        "from_day": {**day, "title": "From day"},
        "to_day": {**day, "title": "To day"},
        "force": {"type": "boolean", "title": "Rebuild unchanged days"},
        "accept_loss": {"type": "boolean", "title": "Accept losses"},
        "reassign_days": {"type": "boolean", "title": "Reassign days"},
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
        "reason": {"type": ["null", "string"], "maxLength": 500, "title": "Reason"},
        "dry_run": {"type": "boolean", "title": "Dry run"},
    }
    assert dag["undescribed"] == []
    found = {name: (task["mapped"], task["downstream"], task["retries"]) for name, task in dag["tasks"].items()}
    assert found == {"chunks": (False, ["chunk"], 6), "chunk": (True, [], 6)}
    assert dag["tasks"]["chunk"]["at_once_per_run"] == 1


def test_a_dag_that_only_a_person_starts_needs_no_switch(parsed: Mapping[str, Any]) -> None:
    """Broken streams have no schedule either, but their DAGs can't run."""
    shared = {name: dag for name, dag in parsed["dags"].items() if name.startswith("tidemark_")}
    by_hand = {name: dag["paused_at_first"] for name, dag in shared.items() if dag["timetable"] == "NullTimetable"}
    assert by_hand == dict.fromkeys(["tidemark_backfill", "tidemark_replay", "tidemark_rollback"], False)


def test_a_replay_is_started_by_hand_one_at_a_time_and_not_retried(parsed: Mapping[str, Any]) -> None:
    dag = parsed["dags"]["tidemark_replay"]
    assert (dag["timetable"], dag["catchup"], dag["max_active_runs"]) == ("NullTimetable", False, 1)
    assert dag["params"] == {"stream": {"type": "string", "title": "Stream", "enum": NAMES}}
    ((name, task),) = dag["tasks"].items()
    assert (name, task["operator"], task["templates"]) == ("replay", "ClientStep", ["stream"])
    assert (task["retries"], task["bounded"]) == (0, True)
    assert "Run it after a fix" in dag["doc"]


def test_a_rollback_is_started_by_hand_with_a_stream_a_day_and_a_version(parsed: Mapping[str, Any]) -> None:
    dag = parsed["dags"]["tidemark_rollback"]
    # A run that waits for its stream's lease does not hold up those of other streams.
    assert (dag["timetable"], dag["catchup"], dag["max_active_runs"]) == ("NullTimetable", False, 16)
    assert dag["params"] == {
        "stream": {"type": "string", "title": "Stream", "enum": NAMES},
        "day": {"type": "string", "format": "date", "title": "Day"},
        "version": {"type": "integer", "minimum": 1, "title": "Version"},
    }
    assert dag["undescribed"] == []
    lease, task = (dag["tasks"][name] for name in ("wait_for_lease", "rollback"))
    assert (lease["operator"], lease["templates"], lease["downstream"]) == ("LeaseStep", ["stream"], ["rollback"])
    assert (task["operator"], task["templates"]) == ("ClientStep", ["stream"])
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


def test_the_watch_runs_every_five_minutes_and_has_a_task_per_notifier_with_news(parsed: Mapping[str, Any]) -> None:
    dag = parsed["dags"]["tidemark_watch"]
    assert (dag["timetable"], dag["catchup"], dag["max_active_runs"]) == ("DeltaTriggerTimetable", False, 1)
    found = {name: (task["mapped"], task["downstream"], task["retries"]) for name, task in dag["tasks"].items()}
    assert found == {"check": (False, ["notify"], 1), "notify": (True, [], 1)}
    assert dag["tasks"]["notify"]["at_once_per_run"] == 1
    assert all(task["bounded"] for task in dag["tasks"].values())


def test_the_watch_can_start_runs_if_a_stream_wants_its_late_data_at_once(tmp_path: Path) -> None:
    text = (STREAMS / "flights.yaml").read_text(encoding="utf-8")
    streams = tmp_path / "streams"
    shutil.copytree(STREAMS, streams, ignore=shutil.ignore_patterns("__pycache__"))
    wanted = text.replace("batch:\n", "batch:\n  late_data: as_archived\n")
    assert wanted != text
    (streams / "flights.yaml").write_text(wanted, encoding="utf-8")
    tasks = parse(streams, tmp_path)["dags"]["tidemark_watch"]["tasks"]
    found = {name: (task["mapped"], task["downstream"]) for name, task in tasks.items()}
    assert found == {
        "check": (False, ["late", "notify"]),
        "notify": (True, []),
        "late": (False, ["reopen"]),
        "reopen": (True, []),
    }


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("WATCH_MINUTES", "0", "expected minutes, 1 to 1440, found 0 [TIDEMARK_WATCH_MINUTES, variable"),
        ("NOTIFIERS", "{}", "expected a list of"),
        (
            "NOTIFIERS",
            '[{"class": "a.B", "kwargs": {"api_key": "x"}}]',
            "api_key holds a secret: put it into a",
        ),
        (
            "NOTIFIERS",
            '[{"class": "airflow.providers.slack.notifications.slack.SlackNotifier"}]',
            "Install the package apache-airflow-providers-slack",
        ),
        ("NOTIFIERS", '[{"class": "json.JSONDecoder"}]', "expected a subclass of airflow.sdk.BaseNotifier"),
        (
            "NOTIFIERS",
            '[{"class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier", "kwargs": {"tox": "x"}}]',
            "a notifier refuses its arguments",
        ),
    ],
)
def test_a_wrong_setting_of_the_watch_is_an_import_error_and_every_dag_is_there(
    tmp_path: Path, name: str, text: str, error: str
) -> None:
    found = parse(STREAMS, tmp_path, **{f"TIDEMARK_{name}": text})
    ((file, shown),) = found["errors"].items()
    assert Path(file).name == "stream_definitions.py"
    assert error in shown
    assert {"tidemark_watch", "reconcile_flights"} <= found["dags"].keys()


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
    assert len(shared) == 5
    assert all("stream `trains` is broken" in doc and "batch.scedule: unknown key" in doc for doc in shared)


@pytest.mark.conformance(62)
def test_a_definition_that_airflow_refuses_has_a_dag_that_says_why(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from unittest.mock import patch
from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import load_stream
from tidemark_airflow.reconcile_dag import reconcile_dag, require_sound
from tidemark.orchestration.steps import Reconcile
stream = load_stream("flights", Path(sys.argv[1]))
batch = stream.batch.model_copy(update={"wait_seconds": 10**15})  # more than a duration can hold
item = Reconcile(name="flights", stream=stream.model_copy(update={"batch": batch}), error=None)
dag = reconcile_dag(item)
try:
    with patch("tidemark_airflow.reconcile_dag.reconciles", return_value=(item,)):
        require_sound(Path(sys.argv[1]))
except ConfigError as error:
    shown = str(error)
print("\\n".join([type(dag.timetable).__name__, str(len(dag.tasks)), dag.description, shown]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(STREAMS)],
        env={**os.environ, "PYTHONPATH": str(PROJECT / "include"), "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    timetable, tasks, description, shown = done.stdout.splitlines()[-4:]
    assert description == f"Broken: {shown}"
    assert (timetable, tasks) == ("NullTimetable", str(len(STEPS) + 1))
    assert description.startswith("Broken: Airflow refuses a definition: found OverflowError: ")
