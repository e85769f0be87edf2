"""Tidemark's plugin, for an Airflow in which its provider is not installed."""

from tidemark_airflow.plugin import TidemarkPlugin

__all__ = ["TidemarkPlugin"]
