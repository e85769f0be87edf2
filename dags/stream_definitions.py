"""Shows broken stream definitions and misnamed files as an import error in Airflow; defines no DAG."""

from tidemark_airflow import check_dags

check_dags()
