"""DAGs of one Spark step for the stream that the form names: replay, rollback and maintenance."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, AssetAlias, BaseOperator, Param

from tidemark.orchestration.steps import LEASE_STEP, LEASE_TIMEOUT, Reconcile
from tidemark_airflow.forms import day_param, doc, stream_param
from tidemark_airflow.operators import LeaseStep
from tidemark_airflow.reconcile_dag import OWNER, START
from tidemark_airflow.spark_step import spark_pool, spark_step

ROLLBACKS = 16  # at once
EVERY_STREAM = "every stream"  # no stream's name has a space
_STREAM = "{{ params.stream }}"
_REPLAY = (
    "Send every dead letter through the stream's transformation as it is now. Good ones go to the live topic, bad ones "
    "back to the dead-letter topic, with the number of their next attempt. Run it after a fix. A run that failed or "
    "was stopped loses and repeats nothing: trigger the DAG again, and it continues where that run stopped."
)
_ROLLBACK = (
    "Make a day's rows those of an earlier version again, in one atomic step. The day gets a new version that says "
    "so. No version is lost (`tidemark status STREAM DAY` lists them). Reconcile runs leave the day as it is until "
    "late records arrive. A run that failed or was stopped can be repeated."
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
        spark_step()(
            task_id="replay", step="replay", stream=_STREAM, pool=spark_pool(), execution_timeout=timedelta(hours=6)
        )
    return dag


def rollback_dag(items: Sequence[Reconcile]) -> DAG:
    """``tidemark_rollback``."""
    version = Param(
        description="The version whose rows the day shall have.",
        schema={"type": "integer", "minimum": 1, "title": "Version"},
    )
    form = {"day": day_param("Day", "The day, in the stream's time zone."), "version": version}
    about = "Bring back an earlier version of a day"
    # The lease keeps the runs of a stream apart. One that waits for it must not hold up other streams.
    with _dag("rollback", items, about, _ROLLBACK, form=form, runs_at_once=ROLLBACKS) as dag:
        lease = LeaseStep(
            task_id=LEASE_STEP,
            stream=_STREAM,
            timeout=LEASE_TIMEOUT.total_seconds(),
            doc_md="Wait until no reconcile run of the stream is under way. The log names the run it waits for.",
        )
        lease >> spark_step()(
            task_id="rollback",
            step="rollback",
            stream=_STREAM,
            form=tuple(form),
            pool=spark_pool(),
            outlets=[AssetAlias("tidemark_rollback")],
            execution_timeout=timedelta(hours=2),
        )
    return dag


def maintenance_dag(items: Sequence[Reconcile]) -> DAG:
    """``tidemark_maintenance``: a run of the schedule maintains every stream."""
    description = "Maintain archive and tables of a stream, or of every stream"
    with _dag("maintenance", items, description, _MAINTENANCE, default=EVERY_STREAM, schedule="0 4 * * 0") as dag:
        chosen = StreamsStep(task_id="streams", execution_timeout=timedelta(minutes=10))
        spark_step().partial(
            task_id="maintain",
            step="maintain",
            pool=spark_pool(),
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
    runs_at_once: int = 1,
) -> DAG:
    """No retries: what made a run fail rarely ends by itself, and a person should check it."""
    return DAG(
        dag_id=f"tidemark_{name}",
        description=description,
        doc_md=doc(items, text),
        tags=["tidemark"],
        schedule=schedule,
        start_date=START,
        catchup=False,
        max_active_runs=runs_at_once,
        # Nothing starts by itself without a schedule. And a form that also unpauses its DAG sends two requests at once,
        # which stop Airflow's server for a minute where the database is SQLite, as in the local stack.
        is_paused_upon_creation=False if schedule is None else None,
        params={"stream": stream_param(items, default=default), **(form or {})},
        default_args={"owner": OWNER, "retries": 0},
    )


class StreamsStep(BaseOperator):
    """Returns the streams that a maintenance run is for."""

    def execute(self, context: Any) -> list[str]:
        from tidemark.definitions.stream import stream_names
        from tidemark.settings import streams_dir

        wanted = context["params"]["stream"]
        return list(stream_names(streams_dir())) if wanted == EVERY_STREAM else [wanted]
