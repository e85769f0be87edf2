"""What the Spark application of step ``rebuild`` does: also step ``audit``, which spares the start of a session."""

from pyspark.sql import SparkSession

from tidemark.core.errors import TidemarkError
from tidemark.logs import log_error
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.run import Run


def rebuild_and_audit(run: Run, spark: SparkSession) -> None:
    """Rebuild the run's days and check them. Raises what ``rebuild_run`` does.

    How the audit ended is saved as its own step's outcome, which task ``audit`` reports, also a failure.
    """
    rebuild_run(run, spark)
    try:
        audit_run(run, spark)
    except TidemarkError as error:
        log_error(error)
