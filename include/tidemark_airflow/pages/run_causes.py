"""Why a run has not done its work, by what its steps have saved."""

from datetime import tzinfo

from tidemark.inspect.last_run import LastRun
from tidemark.pages.causes import RunCause, run_cause
from tidemark.reconcile.results import FINALIZE_PLAN
from tidemark_airflow.connections import open_run


def read_cause(run: LastRun | None, stream: str, zone: tzinfo) -> RunCause | None:
    """The cause of a run; None without a run. A failed run's plan says whether records are lost."""
    if run is None:
        return None
    outcome = open_run(stream, run.name).outcome(FINALIZE_PLAN) if run.failed else None
    return run_cause(run, outcome.result.plan if outcome and outcome.result else None, zone)
