"""Rollback DAGs: one per stream, started by hand. Parsing imports neither Spark nor Great Expectations."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from tidemark.orchestration.dag import START, sealed_asset
from tidemark.orchestration.operators import SparkStep
from tidemark.orchestration.steps import Reconcile

TIMEOUT = timedelta(hours=2)
HELP = (
    "Make a day's rows those of an earlier version again, in one atomic step. The day gets a new version that says so;"
    " no version is lost (`tidemark versions` lists them). Reconcile runs leave the day so until late records come."
    " A run that failed or was stopped can be repeated."
)


def rollback_dag_id(stream_name: str) -> str:
    """The id of a stream's rollback DAG."""
    return f"rollback_{stream_name}"


def rollback_dag(item: Reconcile) -> DAG:
    """The DAG of one stream; that of a broken definition is there too, and its task fails with the definition's error.

    One run at a time and no retries: what it is refused for won't right itself, and somebody should look.
    """
    broken = f"**The definition of stream `{item.name}` can't be used.**\n\n```\n{item.error}\n```\n\n"
    with DAG(
        dag_id=rollback_dag_id(item.name),
        description=f"Bring back an earlier version of a day of stream {item.name}",
        doc_md=(broken if item.error else "") + HELP,
        tags=["tidemark", item.name, *(["broken"] if item.error else [])],
        schedule=None,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        params={
            "day": Param(
                description="The day, in the stream's time zone.",
                schema={"type": "string", "format": "date", "title": "Day"},
            ),
            "version": Param(
                description="The version whose rows the day shall have.",
                schema={"type": "integer", "minimum": 1, "title": "Version"},
            ),
        },
        default_args={"retries": 0},
    ) as dag:
        SparkStep(
            task_id="rollback",
            step="rollback",
            stream=item.name,
            form=("day", "version"),
            outlets=[sealed_asset(item.name)],
            execution_timeout=TIMEOUT,
            doc_md=HELP,
        )
    return dag
