"""The reconcile DAGs: what a run does (``steps``), for which days (``days``), and as Airflow operators (``dag``)."""
