"""Reconcile DAGs from ``tidemark.orchestration.steps``. Parsing imports neither Spark nor Great Expectations."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, BaseOperator, CronDataIntervalTimetable, Param, TriggerRule, chain

from tidemark.core.errors import ConfigError
from tidemark.core.text import error_text
from tidemark.definitions.stream import Stream, misnamed_files
from tidemark.orchestration.forms import force_param
from tidemark.orchestration.operators import LeaseStep, PythonStep, SparkStep, WaitStep
from tidemark.orchestration.steps import (
    LAST_HELP,
    LAST_TASK,
    LEASE_STEP,
    RETRIES,
    RETRY_DELAY,
    SPAN_DAYS_MAX,
    STEPS,
    Reconcile,
    Step,
    reconciles,
)
from tidemark.reconcile.results import FINALIZE_PLAN

# Before any data. A run's days come from its interval, and catchup is off.
START = datetime(2000, 1, 1, tzinfo=UTC)


def sealed_asset(stream_name: str) -> Asset:
    """What downstream DAGs schedule on to follow a stream's sealed days; an event's extra names days and versions."""
    return Asset(name=f"{stream_name}_sealed", uri=f"tidemark://streams/{stream_name}/sealed", group="tidemark")


def reconcile_dag(item: Reconcile) -> DAG:
    """The DAG of one stream.

    That of a broken definition has the same tasks, so history and running runs stay intact, but no schedule; a task
    of it fails with the definition's error until the file is repaired.
    """
    return _checked(item)[1]


def check_streams(folder: Path) -> None:
    """Raises ConfigError that names every broken definition and every misnamed file in the folder."""
    broken = [error for item in reconciles(folder) if (error := _checked(item)[0].error) is not None]
    broken += map(str, misnamed_files(folder).values())
    if broken:
        raise ConfigError("; ".join(broken))


def _checked(item: Reconcile) -> tuple[Reconcile, DAG]:
    """The DAG; if Airflow refuses what the definition says, the DAG of a broken definition, with the reason."""
    try:
        dag = _dag(item)
        dag.validate()  # type: ignore[no-untyped-call]  # as DagBag calls it
    except Exception as error:  # one stream must never stop the DAGs of others
        if item.error is not None:
            raise
        found = error_text(error)
        problem = ConfigError("Airflow refuses a definition", found=found, where=f"{item.name}.yaml")
        broken = replace(item, stream=None, error=str(problem))
        return broken, _dag(broken)
    return item, dag


def _dag(item: Reconcile) -> DAG:
    stream = item.stream
    with DAG(
        dag_id=item.dag_id,
        description=item.description,
        doc_md=_doc(item),
        tags=["tidemark", item.name, *(["broken"] if item.error else [])],
        schedule=CronDataIntervalTimetable(stream.batch.schedule, timezone=stream.time_zone) if stream else None,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        auto_register=False,  # a DAG that Airflow refuses would be registered beside the one that says so
        params=_params(),
        default_args={"retries": RETRIES, "retry_delay": RETRY_DELAY},
    ) as dag:
        tasks = {step.name: _operator(step, item.name, stream) for step in STEPS}
        chain(*tasks.values())
        complete = PythonStep(task_id=LAST_TASK, step=LAST_TASK, stream=item.name, doc_md=LAST_HELP)
        chain([tasks["seal"], tasks["report"]], complete)
        # Where a run is marked failed by hand, Airflow skips every task that waits, but a teardown: it still runs.
        tasks["report"].as_teardown()
        # The run's state is that of this task. As no teardown it would be skipped then, which counts as a success.
        complete.as_teardown(on_failure_fail_dagrun=True)
    return dag


def _params() -> dict[str, Param]:
    day = {"type": ["null", "string"], "format": "date"}
    return {
        "from_day": Param(
            None,
            description="First day to reconcile, in the stream's time zone. Fill in both days or neither, for "
            f"{SPAN_DAYS_MAX} days at most; where both are empty, it is the day of the run's data interval.",
            schema={**day, "title": "From day"},
        ),
        "to_day": Param(None, description="Last day to reconcile, included.", schema={**day, "title": "To day"}),
        "force": force_param(),
    }


def _operator(step: Step, stream_name: str, stream: Stream | None) -> BaseOperator:
    common: dict[str, Any] = {"task_id": step.name, "stream": stream_name, "doc_md": step.help}
    if step.name == FINALIZE_PLAN.name:  # comes after a refill that may have been skipped
        common["trigger_rule"] = TriggerRule.NONE_FAILED
    match step.kind:
        case "spark":
            return SparkStep(step=step.name, execution_timeout=step.timeout, **common)
        case "sensor" if step.name == LEASE_STEP:
            return LeaseStep(timeout=step.timeout.total_seconds(), **common)
        case "sensor":
            patience = timedelta(seconds=stream.batch.wait_seconds if stream else 0)
            return WaitStep(timeout=(patience + step.timeout).total_seconds(), **common)
        case "python":
            if step.name == "seal":
                common["outlets"] = [sealed_asset(stream_name)]
            return PythonStep(step=step.name, execution_timeout=step.timeout, **common)


def _doc(item: Reconcile) -> str:
    if item.error is not None:
        return (
            f"**The definition of stream `{item.name}` can't be used.** Repair it; nothing is scheduled until then."
            f"\n\n```\n{item.error}\n```\n"
        )
    steps = "\n".join(f"- **{step.name}** {step.help}" for step in STEPS)
    return (
        f"Rebuilds days of stream `{item.name}` from the archive, proves them complete and publishes them.\n\n{steps}\n"
    )
