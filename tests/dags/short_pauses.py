"""Stands in Airflow's DAG folder in place of dags/streams.py: a task that ended is tried again a second later."""

from datetime import timedelta

import pytest

from tidemark_airflow import retries, tidemark_dags

with pytest.MonkeyPatch.context() as patch:
    patch.setitem(retries.RETRY_ARGS, "retry_delay", timedelta(seconds=1))
    globals().update(tidemark_dags())
