"""The four Airflow DAGs whose form names the stream: tidemark_backfill, _replay, _rollback and _maintenance."""

from tidemark.orchestration.backfill_dag import backfill_dag
from tidemark.orchestration.manual_dags import maintenance_dag, replay_dag, rollback_dag
from tidemark.orchestration.steps import reconciles
from tidemark.settings import streams_dir

streams = reconciles(streams_dir())
for make in (backfill_dag, replay_dag, rollback_dag, maintenance_dag):
    dag = make(streams)
    globals()[dag.dag_id] = dag
