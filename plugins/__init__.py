"""Airflow loads every module of this folder as a plugin; they import neither Spark nor Great Expectations."""
