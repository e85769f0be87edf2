"""DAGs of one Spark step for the stream that the form names: replay, rollback and maintenance."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, AssetAlias, BaseOperator, Param

from tidemark.orchestration.forms import day_param, doc, stream_param
from tidemark.orchestration.operators import LeaseStep, SparkStep
from tidemark.orchestration.reconcile_dag import START, sealed_asset
from tidemark.orchestration.steps import LEASE_STEP, LEASE_TIMEOUT, Reconcile

EVERY_STREAM = "every stream"  # no stream's name has a space
_REPLAY = (
    "Send every dead letter through the stream's transformation as it is now. Good ones go to the live topic, bad ones "
    "back to the dead-letter topic, with the number of their next attempt. Run it after a fix. A run that failed or "
    "was stopped loses and repeats nothing: trigger the DAG again, and it continues where that run stopped."
)
_ROLLBACK = (
    "Make a day's rows those of an earlier version again, in one atomic step. The day gets a new version that says "
    "so. No version is lost (`tidemark versions` lists them). Reconcile runs leave the day as it is until late records "
    "arrive. A run that failed or was stopped can be repeated."
)
_MAINTENANCE = (
    "Abort unfinished uploads: of data objects after a day, of the tables' files after a week. Drop audit branches "
    "after a week without a write. Expire the tables' snapshots that are older than the stream's "
    "`batch.snapshot_retention_days`, delete files that belong to no snapshot, and compact the ledger. Then rewrite "
    "the archive's small objects as large ones, and delete the replaced ones a week later. It is safe while streams "
    "and other runs are at work. A run that failed or was stopped can be repeated."
)


def replay_dag(items: Sequence[Reconcile]) -> DAG:
    """``tidemark_replay``."""
    with _dag("replay", items, "Replay a stream's dead letters", _REPLAY) as dag:
        StreamStep(task_id="replay", step="replay", execution_timeout=timedelta(hours=6))
    return dag


def rollback_dag(items: Sequence[Reconcile]) -> DAG:
    """``tidemark_rollback``."""
    version = Param(
        description="The version whose rows the day shall have.",
        schema={"type": "integer", "minimum": 1, "title": "Version"},
    )
    form = {"day": day_param("Day", "The day, in the stream's time zone."), "version": version}
    with _dag("rollback", items, "Bring back an earlier version of a day", _ROLLBACK, form=form) as dag:
        lease = LeaseStep(
            task_id=LEASE_STEP,
            stream="{{ params.stream }}",
            timeout=LEASE_TIMEOUT.total_seconds(),
            doc_md="Wait until no reconcile run of the stream is under way. The log names the run it waits for.",
        )
        lease >> StreamStep(
            task_id="rollback",
            step="rollback",
            form=tuple(form),
            outlets=[AssetAlias("tidemark_rollback")],
            execution_timeout=timedelta(hours=2),
        )
    return dag


def maintenance_dag(items: Sequence[Reconcile]) -> DAG:
    """``tidemark_maintenance``: a run of the schedule maintains every stream."""
    description = "Maintain archive and tables of a stream, or of every stream"
    with _dag("maintenance", items, description, _MAINTENANCE, default=EVERY_STREAM, schedule="0 4 * * 0") as dag:
        chosen = StreamsStep(task_id="streams", execution_timeout=timedelta(minutes=10))
        SparkStep.partial(
            task_id="maintain",
            step="maintain",
            map_index_template="{{ task.stream }}",
            execution_timeout=timedelta(hours=24),  # it reads every manifest
        ).expand(stream=chosen.output)
    return dag


def _dag(
    name: str,
    items: Sequence[Reconcile],
    description: str,
    text: str,
    *,
    form: Mapping[str, Param] | None = None,
    default: str | None = None,
    schedule: str | None = None,
) -> DAG:
    """One run at a time and no retries: what made it fail rarely ends by itself, and a person should check it."""
    return DAG(
        dag_id=f"tidemark_{name}",
        description=description,
        doc_md=doc(items, text),
        tags=["tidemark"],
        schedule=schedule,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        params={"stream": stream_param(items, default=default), **(form or {})},
        default_args={"retries": 0},
    )


class StreamStep(SparkStep):
    """A Spark step for the form's stream. Where its outlet is an alias, that stands for the stream's asset."""

    template_fields = ("application", "stream", "name")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(stream="{{ params.stream }}", **kwargs)

    def execute(self, context: Any) -> None:
        """As SparkStep, and announces the days."""
        super().execute(context)
        for alias in self.outlets:
            events = context["outlet_events"][alias]
            events.add(sealed_asset(self.stream), extra=events.extra)


class StreamsStep(BaseOperator):
    """Returns the streams that a maintenance run is for."""

    def execute(self, context: Any) -> list[str]:
        from tidemark.definitions.stream import stream_names
        from tidemark.settings import streams_dir

        wanted = context["params"]["stream"]
        return list(stream_names(streams_dir())) if wanted == EVERY_STREAM else [wanted]
