"""The Airflow DAGs of the streams: ``reconcile_<stream>`` per definition, and those whose form names the stream."""

from tidemark_airflow import tidemark_dags

globals().update(tidemark_dags())
