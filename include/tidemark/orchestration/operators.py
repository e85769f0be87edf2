"""The operators of a reconcile DAG: each does one step of ``tidemark.orchestration.steps`` for one stream."""

import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator, BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from tidemark.core.errors import IncompleteError
from tidemark.orchestration import tasks
from tidemark.orchestration.context import explained, request
from tidemark.orchestration.steps import LAST_TASK, PROJECT

POKE_SECONDS = 15


class LeaseStep(BaseSensorOperator):
    """Takes the stream's lease for the run. It waits while another run holds it, and uses no worker meanwhile."""

    template_fields = ("stream",)

    def __init__(self, *, stream: str, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=POKE_SECONDS, **kwargs)
        self.stream = stream

    def poke(self, context: Any) -> PokeReturnValue:
        ti = context["ti"]
        holder = explained(lambda: tasks.take_lease(self.stream, context["run_id"], partial(_has_ended, ti)))
        if holder is not None:
            began = ti.get_first_reschedule_date(context) or datetime.now(UTC)
            self.log.info("Waiting since %s for %s", began.isoformat(timespec="seconds"), holder)
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
        with tasks.holding("wait", self.stream, context["run_id"]):
            done = explained(
                lambda: tasks.poll_archive(self.stream, context["run_id"], wanted, waited_seconds=waited_seconds)
            )
        return PokeReturnValue(is_done=done)


class PythonStep(BaseOperator):
    """Calls the step's function, and announces its result in the events of its outlets."""

    def __init__(self, *, step: str, stream: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.stream = stream

    def execute(self, context: Any) -> Any:
        """The function's result; raises AirflowFailException where a retry is pointless."""
        with explained(lambda: tasks.holding(self.step, self.stream, context["run_id"])):
            # The last step asks what the others did: a retry of it finds the same.
            result = explained(lambda: self._act(context), *([IncompleteError] if self.step == LAST_TASK else []))
        _announce(self, context, result)
        return result

    def _act(self, context: Any) -> Any:
        run_id = context["run_id"]
        if self.step == "plan":
            return tasks.plan(self.stream, run_id, request(self.stream, context))
        return tasks.STEPS_BY_PLAN[self.step](self.stream, run_id)


class SparkStep(SparkSubmitOperator):
    """spark-submit of ``spark_apps/<step>.py`` for one stream and this DAG run.

    ``form`` names the run's parameters that the application gets as arguments. The events of the
    task's outlets name the days in the step's result.

    Jars, memory and the S3 credentials are looked up when the task runs. The credentials reach spark-submit as
    inherited variables; no field of this operator holds them, so no rendered template can show them.
    """

    template_fields: tuple[str, ...] = ("application",)

    def __init__(self, *, step: str, stream: str, form: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(
            application=str(PROJECT / "spark_apps" / f"{step}.py"),
            name=f"tidemark-{step}-{stream}",
            conn_id="spark_default",
            # Each step can be repeated as it is; there is no cluster-side job to reconnect to in client mode.
            durable=False,
            **kwargs,
        )
        self.step = step
        self.stream = stream
        self.form = form

    def execute(self, context: Any) -> None:
        """Raises AirflowSkipException for a refill of nothing, else what the application saved as its failure.

        Where it saved none, as one that was killed, spark-submit's own error stands.
        """
        run_id = context["run_id"]
        if self.step == "refill" and tasks.nothing_to_refill(self.stream, run_id):
            raise AirflowSkipException("the archive lacks nothing that Kafka can give")
        arguments, environment = tasks.submission(self.stream, run_id)
        self.jars = arguments["jars"]
        self._driver_memory = arguments["driver_memory"]
        asked = [f"--{name}={context['params'][name]}" for name in self.form]
        self.application_args = [*arguments["application_args"], *asked]
        os.environ.update(environment)  # this task's own process
        before = explained(lambda: tasks.saved(self.step, self.stream, run_id))
        held = explained(lambda: tasks.holding(self.step, self.stream, run_id))
        try:
            with held:
                super().execute(context)
        except AirflowException as error:
            found = tasks.failure(self.step, self.stream, run_id, before)
            if found is None:
                raise
            reason, final = found
            raise (AirflowFailException if final else AirflowException)(f"{self.step}: {reason}") from error
        if self.outlets:
            _announce(self, context, tasks.rolled_back(self.stream, run_id))


def _announce(step: PythonStep | SparkStep, context: Any, result: Any) -> None:
    for asset in step.outlets:
        context["outlet_events"][asset].extra = {"stream": step.stream, "run": context["run_id"], **result}
