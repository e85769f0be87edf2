"""Replay DAGs: one per stream, started by hand. Parsing imports neither Spark nor Great Expectations."""

from datetime import timedelta

from airflow.sdk import DAG

from tidemark.orchestration.dag import START
from tidemark.orchestration.operators import SparkStep
from tidemark.orchestration.steps import Reconcile

TIMEOUT = timedelta(hours=6)
HELP = (
    "Send every dead letter through the stream's transformation as it is now: good ones to the live topic, bad ones"
    " back to the dead-letter topic, one attempt further. Run it after a fix. A run that failed or was stopped loses"
    " and repeats nothing: trigger the DAG again, it goes on where that one was."
)


def replay_dag_id(stream_name: str) -> str:
    """The id of a stream's replay DAG."""
    return f"replay_{stream_name}"


def replay_dag(item: Reconcile) -> DAG:
    """The DAG of one stream; that of a broken definition is there too, and its task fails with the definition's error.

    One run at a time and no retries: a replay that is started anew takes over from one that still runs.
    """
    broken = f"**The definition of stream `{item.name}` can't be used.**\n\n```\n{item.error}\n```\n\n"
    with DAG(
        dag_id=replay_dag_id(item.name),
        description=f"Replay the dead letters of stream {item.name}",
        doc_md=(broken if item.error else "") + HELP,
        tags=["tidemark", item.name, *(["broken"] if item.error else [])],
        schedule=None,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        default_args={"retries": 0},
    ) as dag:
        SparkStep(task_id="replay", step="replay", stream=item.name, execution_timeout=TIMEOUT, doc_md=HELP)
    return dag
