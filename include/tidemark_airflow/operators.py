"""The operators of a reconcile DAG: each does one step of ``tidemark.orchestration.steps`` for one stream."""

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, BaseSensorOperator, PokeReturnValue

from tidemark.core.errors import IncompleteError
from tidemark.orchestration import tasks
from tidemark.orchestration.steps import LAST_TASK, LEASE_STEP
from tidemark_airflow.assets import announce
from tidemark_airflow.connections import open_run
from tidemark_airflow.context import explained, request
from tidemark_airflow.lineage import name_task, task_lineage
from tidemark_airflow.task_log import log_begin, log_end

if TYPE_CHECKING:
    from tidemark.run import Run

POKE_SECONDS = 15


class LeaseStep(BaseSensorOperator):
    """Takes the stream's lease for the run. It waits while another run holds it, and uses no worker meanwhile."""

    template_fields = ("stream",)

    def __init__(self, *, stream: str, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=POKE_SECONDS, **kwargs)
        self.stream = stream

    def poke(self, context: Any) -> PokeReturnValue:
        ti = context["ti"]
        run = explained(lambda: open_run(self.stream, context["run_id"]))
        first = ti.get_first_reschedule_date(context)
        if first is None:
            log_begin(self.log, LEASE_STEP, run)
        holder = explained(lambda: tasks.take_lease(run, partial(_has_ended, ti)))
        began = first or datetime.now(UTC)
        if holder is not None:
            self.log.info("Waiting since %s for %s", began.isoformat(timespec="seconds"), holder)
        else:
            waited_seconds = (datetime.now(UTC) - began).total_seconds()
            self.log.info("Run %s has the lease of %s, after %.0f s", run.name, self.stream, waited_seconds)
        return PokeReturnValue(is_done=holder is None)


def _has_ended(ti: Any, dag: str, run_id: str) -> bool | None:
    """Whether a run has ended; None where this Airflow does not know it."""
    if not ti.get_dr_count(dag_id=dag, run_ids=[run_id]):
        return None
    return bool(ti.get_dr_count(dag_id=dag, run_ids=[run_id], states=["success", "failed"]))


class WaitStep(BaseSensorOperator):
    """Polls how far the archive is, and uses no worker in between."""

    def __init__(self, *, stream: str, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=POKE_SECONDS, **kwargs)
        self.stream = stream

    def poke(self, context: Any) -> PokeReturnValue:
        wanted = explained(lambda: request(self.stream, context))
        self.log.info("Reconciling %s: %s", self.stream, tasks.days_text(wanted.days))
        began = context["ti"].get_first_reschedule_date(context) or datetime.now(UTC)
        waited_seconds = (datetime.now(UTC) - began).total_seconds()
        run = explained(lambda: open_run(self.stream, context["run_id"]))
        with tasks.holding("wait", run):
            done = explained(lambda: tasks.poll_archive(run, wanted, waited_seconds=waited_seconds))
        if done:
            log_end(self.log, "wait", run)
        return PokeReturnValue(is_done=done)


class PythonStep(BaseOperator):
    """Calls the step's function, and announces its result in the events of its outlets."""

    def __init__(self, *, step: str, stream: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.stream = stream
        self._lineage: Any = None

    def execute(self, context: Any) -> Any:
        """The function's result; raises AirflowFailException where a retry is pointless."""
        name_task(context)
        run = explained(lambda: open_run(self.stream, context["run_id"]))
        if self.step != "plan":
            log_begin(self.log, self.step, run)
        with explained(lambda: tasks.holding(self.step, run)):
            # The last step asks what the others did: a retry of it finds the same.
            final = [IncompleteError] if self.step == LAST_TASK else []
            try:
                result = explained(lambda: self._act(run, context), *final)
            finally:
                self._lineage = task_lineage(lambda: run, self.step)
        log_end(self.log, self.step, run)
        if self.outlets:
            announce(self, self.stream, context, result)
        return result

    def get_openlineage_facets_on_complete(self, _task_instance: Any) -> Any:
        """What Airflow's OpenLineage provider asks for, also after a failure."""
        return self._lineage

    def _act(self, run: "Run", context: Any) -> Any:
        if self.step == "plan":
            wanted = request(self.stream, context)
            forced = ", and rebuild unchanged days too" if wanted.force else ""
            self.log.info("Plan %s of %s%s", tasks.days_text(wanted.days), self.stream, forced)
            return tasks.plan(run, wanted)
        return tasks.STEPS_BY_PLAN[self.step](run)
