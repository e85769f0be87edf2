"""Tidemark in Airflow: the DAGs of the streams, their operators and assets.

A file in the DAG folder makes the DAGs::

    from tidemark_airflow import tidemark_dags

    globals().update(tidemark_dags("include/streams"))

Airflow imports this package in each of its processes, so that importing it loads nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark_airflow.dag_file import check_dags, tidemark_dags

__all__ = ["check_dags", "tidemark_dags"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from tidemark_airflow import dag_file

        return getattr(dag_file, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
