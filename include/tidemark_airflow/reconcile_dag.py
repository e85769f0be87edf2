"""Reconcile DAGs from ``tidemark.orchestration.steps``. Parsing imports neither Spark nor Great Expectations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, CronDataIntervalTimetable, Param, TriggerRule, chain

from tidemark.core.delivery import FAILS_NO_RUN
from tidemark.core.errors import ConfigError
from tidemark.core.text import error_text
from tidemark.definitions.stream import Stream, misnamed_files
from tidemark.orchestration.steps import (
    LAST_HELP,
    LAST_TASK,
    LEASE_STEP,
    SPAN_DAYS_MAX,
    STEPS,
    Reconcile,
    Step,
    reconciles,
)
from tidemark.reconcile.results import FINALIZE_PLAN, PUBLISH
from tidemark_airflow.approval import ANSWER_FORM, ApproveStep
from tidemark_airflow.assets import day_asset, sealed_asset
from tidemark_airflow.forms import force_param
from tidemark_airflow.operators import LeaseStep, PythonStep, WaitStep
from tidemark_airflow.pages.links import stream_url
from tidemark_airflow.priority import SCHEDULED_FIRST
from tidemark_airflow.retries import RETRY_ARGS
from tidemark_airflow.spark_step import SparkStep, spark_pool, spark_step

# Before any data. A run's days come from its interval, and catchup is off.
START = datetime(2000, 1, 1, tzinfo=UTC)
OWNER = "tidemark"
LAST_TIMEOUT = timedelta(minutes=30)
# Spark's steps take nothing from a definition that Airflow could refuse.
_NOT_SPARK = tuple(step for step in STEPS if step.kind != "spark")
_FIRST = (
    "Rebuilds days of stream `{name}` from the archive, proves them complete and publishes them. "
    "Days begin and end in {zone}. [The stream's page]({page}) shows every day.\n\n"
    "- **A run is red:** open its first red task. The end of its log says what happened and what to do. Clear the task "
    "once the cause is fixed.\n"
    "- **A day is missing:** trigger this DAG, and fill in both days of the form. For many days use "
    "`tidemark_backfill`.\n"
    "- **Late records** need nothing: the next run includes them, and the day gets a new version.\n"
    "- **A run waits in `wait_for_lease`:** its log names the run that holds the lease.\n"
    "- **To undo a version of a day,** use `tidemark_rollback`."
)


def reconcile_dag(item: Reconcile) -> DAG:
    """The DAG of one stream.

    That of a broken definition has the same tasks, so history and running runs stay intact, but no schedule; a task
    of it fails with the definition's error until the file is repaired.
    """
    dag = _checked(item)[1]
    # Now, because each operator copies the parameters that its DAG has when it is made: a third of the time of parsing.
    # A task that runs gets its DAG's parameters all the same.
    dag.params = _params()  # type: ignore[assignment]  # Airflow converts it
    return dag


def require_sound(folder: Path) -> None:
    """Raises ConfigError that names every broken definition and every misnamed file in the folder."""
    broken = [error for item in reconciles(folder) if (error := _checked(item, _NOT_SPARK)[0].error) is not None]
    broken += map(str, misnamed_files(folder).values())
    if broken:
        raise ConfigError("; ".join(broken))


def _checked(item: Reconcile, steps: Sequence[Step] = STEPS) -> tuple[Reconcile, DAG]:
    """The DAG; if Airflow refuses what the definition says, the DAG of a broken definition, with the reason."""
    try:
        dag = _dag(item, steps)
        dag.validate()  # type: ignore[no-untyped-call]  # as DagBag calls it
    except Exception as error:  # one stream must never stop the DAGs of others
        if item.error is not None:
            raise
        found = error_text(error)
        problem = ConfigError("Airflow refuses a definition", found=found, where=f"{item.name}.yaml")
        broken = replace(item, stream=None, error=str(problem))
        return broken, _dag(broken, steps)
    return item, dag


def _dag(item: Reconcile, steps: Sequence[Step]) -> DAG:
    stream, spark = item.stream, partial(spark_step(), pool=spark_pool())
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
        default_args={"owner": stream.owner if stream else OWNER, "weight_rule": SCHEDULED_FIRST, **RETRY_ARGS},
    ) as dag:
        tasks = {step.name: _operator(step, item.name, stream, spark) for step in steps}
        chain(*tasks.values())
        complete = PythonStep(
            task_id=LAST_TASK, step=LAST_TASK, stream=item.name, execution_timeout=LAST_TIMEOUT, doc_md=LAST_HELP
        )
        chain([tasks["seal"], *(tasks[name] for name in FAILS_NO_RUN if name in tasks), tasks["report"]], complete)
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
        "accept_loss": Param(
            False,
            description="Seal the days without records that Kafka deleted before they were archived. Your name goes "
            "into each seal.",
            schema={"type": "boolean", "title": "Accept losses"},
        ),
        "reassign_days": Param(
            False,
            description="After a change of a key that decides days: rebuild the requested days, and all sealed days "
            "that records move to or from.",
            schema={"type": "boolean", "title": "Reassign days"},
        ),
    }


def _operator(step: Step, stream_name: str, stream: Stream | None, spark: Callable[..., SparkStep]) -> BaseOperator:
    common: dict[str, Any] = {"task_id": step.name, "stream": stream_name, "doc_md": step.help}
    if step.name in {FINALIZE_PLAN.name, PUBLISH.name}:  # come after a step that may have been skipped
        common["trigger_rule"] = TriggerRule.NONE_FAILED
    if step.name in FAILS_NO_RUN:  # the report waits for it, and must not wait for hours
        common |= {"retries": 1, "retry_policy": None}
    match step.kind:
        case "spark":
            return spark(step=step.name, execution_timeout=step.timeout, **common)
        case "sensor" if step.name == LEASE_STEP:
            return LeaseStep(timeout=step.timeout.total_seconds(), **common)
        case "sensor":
            patience = timedelta(seconds=stream.batch.wait_seconds if stream else 0)
            return WaitStep(timeout=(patience + step.timeout).total_seconds(), **common)
        case "person":
            patience = timedelta(hours=stream.batch.approval_hours) if stream else step.timeout
            return ApproveStep(params=ANSWER_FORM, response_timeout=patience, execution_timeout=step.timeout, **common)
        case "python":
            if step.name == "seal":
                common["outlets"] = [sealed_asset(stream_name), day_asset(stream_name)]
            return PythonStep(step=step.name, execution_timeout=step.timeout, **common)


def _doc(item: Reconcile) -> str:
    if item.error is not None:
        return (
            f"**The definition of stream `{item.name}` can't be used.** Repair it; nothing is scheduled until then."
            f"\n\n```\n{item.error}\n```\n"
        )
    steps = "\n".join(f"- **{step.name}** {step.help}" for step in STEPS)
    stream = item.stream
    about = f"{stream.description}\n\n" if stream and stream.description else ""
    first = _FIRST.format(name=item.name, zone=stream.time_zone if stream else "", page=stream_url(item.name))
    return f"{about}{first}\n\n**Steps of a run**\n\n{steps}\n"
