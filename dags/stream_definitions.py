"""Shows broken stream definitions and misnamed files as an import error in Airflow; defines no DAG.

An import error takes every DAG of its file down. So it is raised here and not in reconcile.py. There the DAGs of other
streams continue, and a broken stream keeps its DAG, without a schedule.
"""

from tidemark.orchestration.reconcile_dag import check_streams
from tidemark.settings import streams_dir

check_streams(streams_dir())
