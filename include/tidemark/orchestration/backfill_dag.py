"""The DAG ``backfill_<stream>``: a form, a run of the reconcile DAG per day, and what became of each day."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from airflow.sdk import DAG, BaseOperator, BaseSensorOperator, Param, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from tidemark.orchestration import tasks
from tidemark.orchestration.backfill import (
    DayRun,
    all_ended,
    backfill_days,
    day_run_id,
    day_run_ids,
    day_runs,
    progress,
    to_start,
)
from tidemark.orchestration.context import explained
from tidemark.orchestration.operators import POKE_SECONDS
from tidemark.orchestration.reconcile_dag import START
from tidemark.orchestration.steps import (
    BACKFILL_DAYS_MAX,
    RETRY_DELAY,
    RUNS_AT_ONCE,
    Reconcile,
    dag_id,
)

# It may look for weeks: each worker that is replaced meanwhile, each answer that fails to come, costs a try for good.
LOOK_RETRIES = 50
IDS_PER_CALL = 200  # they go into an address
_HELP = (
    "Reconcile every day of a span, each by a run of its own of `{reconcile}`, a few at once. A day that fails holds up"
    " no other. When all have ended, task `day` shows each one: green, or red with the step that failed and why.\n\n"
    "**To try the failed days again**, clear task `reconcile` with its downstream then: days that succeeded are not run"
    " again. **To stop**, mark this run as failed: no further day is started, those that run go on."
)


def backfill_dag_id(stream_name: str) -> str:
    """The id of a stream's backfill DAG."""
    return f"backfill_{stream_name}"


def backfill_dag(item: Reconcile) -> DAG:
    """The DAG of a stream; that of a broken definition is there too, and its task fails with that error."""
    broken = f"**The definition of stream `{item.name}` can't be used.**\n\n```\n{item.error}\n```\n\n"
    with DAG(
        dag_id=backfill_dag_id(item.name),
        description=f"Reconcile a span of days of stream {item.name}, day by day",
        doc_md=(broken if item.error else "") + _HELP.format(reconcile=item.dag_id),
        tags=["tidemark", item.name, *(["broken"] if item.error else [])],
        schedule=None,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        params=_params(),
    ) as dag:
        runs = DaysStep(
            task_id="reconcile",
            stream=item.name,
            timeout=timedelta(days=30).total_seconds(),
            retries=LOOK_RETRIES,
            retry_delay=RETRY_DELAY,
            doc_md="Start the days' runs, a few at once, and wait until all have ended. Its log tells how far it is.",
        )
        DayStep.partial(
            task_id="day",
            stream=item.name,
            retries=0,
            execution_timeout=timedelta(minutes=10),
            map_index_template="{{ task.outcome.day }}",
            doc_md="One per day: how its run ended.",
        ).expand(outcome=runs.output)
    return dag


def _params() -> dict[str, Param]:
    day = {"type": "string", "format": "date"}
    return {
        "from_day": Param(
            description="First day, in the stream's time zone.",
            schema={**day, "title": "From day"},
        ),
        "to_day": Param(
            description=f"Last day, included. It must be over. {BACKFILL_DAYS_MAX} days at most.",
            schema={**day, "title": "To day"},
        ),
        "at_once": Param(
            RUNS_AT_ONCE,
            description="How many days may be in work at the same time.",
            schema={"type": "integer", "minimum": 1, "maximum": RUNS_AT_ONCE, "title": "Days at once"},
        ),
        "force": Param(
            False,
            description="Rebuild a day again, as a new version, although nothing new was archived since it was sealed.",
            schema={"type": "boolean", "title": "Rebuild unchanged days"},
        ),
    }


class DaysStep(BaseSensorOperator):
    """Looks now and then how the days' runs stand, starts the next, and holds no worker in between.

    It remembers nothing: each look derives from Airflow what there is, so that one that is killed is simply repeated.
    """

    def __init__(self, *, stream: str, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=POKE_SECONDS, **kwargs)
        self.stream = stream

    def poke(self, context: Any) -> PokeReturnValue:
        days = explained(lambda: self._days(context["params"]))
        ti, backfill, params = context["ti"], context["run_id"], context["params"]
        # Airflow allows a task that is cleared as many tries more as at first: a look that dies is no new attempt. One
        # that began with fewer retries, before an upgrade, keeps those.
        dag, attempt = dag_id(self.stream), max(ti.max_tries - self.retries + 1, 1)
        if ti.get_first_reschedule_date(context) is None and ti.get_dag(dag).is_paused:
            raise AirflowFailException(
                f"{dag} is paused, so no run of it would start. Switch it on, then trigger again"
            )
        states: dict[str, Mapping[str, str | None]] = {}
        ids = day_run_ids(backfill, days, attempt)
        for start in range(0, len(ids), IDS_PER_CALL):
            states |= ti.get_task_states(dag_id=dag, run_ids=ids[start : start + IDS_PER_CALL])
        runs = day_runs(backfill, days, attempt, states, partial(tasks.holds_back, self.stream))
        self.log.info("Backfill of %s, %s: %s", self.stream, tasks.days_text(days), progress(runs))
        for day in to_start(runs, attempt, params["at_once"]):
            form = {"from_day": str(day), "to_day": str(day), "force": params["force"]}
            _trigger(dag, day_run_id(backfill, day, attempt), form)
            self.log.info("Started %s", day)
        return PokeReturnValue(is_done=all_ended(runs, attempt), xcom_value=[_outcome(run) for run in runs])

    def _days(self, params: Mapping[str, Any]) -> Any:
        from tidemark.definitions.stream import load_stream
        from tidemark.settings import settings

        zone = load_stream(self.stream, settings().streams_dir).zone
        return backfill_days(params["from_day"], params["to_day"], now=datetime.now(UTC), zone=zone)


class DayStep(BaseOperator):
    """Succeeds where the day's run has sealed it, and else fails with the reason that the run's steps saved."""

    def __init__(self, *, stream: str, outcome: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream
        self.outcome = outcome

    def execute(self, context: Any) -> None:  # noqa: ARG002 - as Airflow calls it
        day, run = self.outcome["day"], self.outcome["run"]
        if self.outcome["state"] != "success":
            reason = tasks.reason(self.stream, run) or tasks.held(self.stream, run) or "no step saved a reason"
            raise AirflowFailException(f"{day} failed, see run {run} of {dag_id(self.stream)}: {reason}")
        self.log.info("%s succeeded, in run %s of %s", day, run, dag_id(self.stream))
        held = tasks.held(self.stream, run)
        if held:
            self.log.warning("Beside it: %s", held)


def _outcome(run: DayRun) -> dict[str, str]:
    return {"day": str(run.day), "run": run.run or "", "state": run.state}


def _trigger(dag: str, run_id: str, form: Mapping[str, Any]) -> None:
    """Start a run; nothing happens where there is one of that id.

    It is the message that TriggerDagRunOperator ends in; no public interface sends it. That operator, mapped over the
    days, makes all runs at once, and the daily run queues behind them to the end; or it waits for each in a worker or
    in a triggerer, and its retry clears the run that is under way or does not wait for it.
    """
    from airflow.sdk.execution_time.comms import TriggerDagRun
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    SUPERVISOR_COMMS.send(TriggerDagRun(dag_id=dag, run_id=run_id, conf=dict(form)))
