"""One Airflow DAG ``rollback_<stream>`` per file in the folder of stream definitions."""

from airflow.sdk import get_parsing_context

from tidemark.orchestration.manual_dags import ROLLBACK
from tidemark.orchestration.steps import reconciles
from tidemark.settings import settings

wanted = get_parsing_context().dag_id  # a running task needs its own DAG only
for item in reconciles(settings().streams_dir):
    dag_id = ROLLBACK.dag_id(item.name)
    if wanted in (None, dag_id):
        globals()[dag_id] = ROLLBACK.dag(item)
