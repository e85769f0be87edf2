"""The steps of a reconcile run as plain values and functions, for Airflow and for the command line."""
