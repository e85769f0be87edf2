"""Shows broken stream definitions as an import error in Airflow; defines no DAG.

An import error takes every DAG of its file down. That is why it is raised here and not in reconcile.py, where the other
streams' DAGs go on and a broken stream's own keeps its place without a schedule.
"""

from tidemark.orchestration.steps import check_streams
from tidemark.settings import settings

check_streams(settings().streams_dir)
