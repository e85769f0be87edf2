"""One Airflow DAG ``reconcile_<stream>`` per file in the folder of stream definitions."""

from airflow.sdk import get_parsing_context

from tidemark.orchestration.reconcile_dag import reconcile_dag
from tidemark.orchestration.steps import reconciles
from tidemark.settings import streams_dir

wanted = get_parsing_context().dag_id  # a running task needs its own DAG only
for item in reconciles(streams_dir()):
    if wanted in (None, item.dag_id):
        globals()[item.dag_id] = reconcile_dag(item)
