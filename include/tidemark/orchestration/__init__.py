"""The Airflow DAGs: the steps of a reconcile run as plain values and functions, and as operators."""
