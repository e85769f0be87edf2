"""The DAG ``tidemark_backfill``: the days of a span in chunks, one after another, each by a reconcile run."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.providers.standard.triggers.external_task import DagStateTrigger
from airflow.sdk import DAG, BaseOperator, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidemark.core.days import days_between
from tidemark.orchestration import tasks
from tidemark.orchestration.backfill import BackfillPlan, plan_backfill, plan_lines
from tidemark.orchestration.run_days import BACKFILL_RUNS_MAX, backfill_days, require_possible
from tidemark.orchestration.steps import SPAN_DAYS_MAX, Reconcile, dag_id
from tidemark.reconcile.results import HeldDay, held_text
from tidemark_airflow.connections import open_run, task_settings
from tidemark_airflow.context import explained
from tidemark_airflow.forms import day_param, doc, force_param, stream_param
from tidemark_airflow.notes import run_note
from tidemark_airflow.operators import POKE_SECONDS
from tidemark_airflow.reconcile_dag import OWNER, START
from tidemark_airflow.retries import RETRY_ARGS
from tidemark_airflow.triggers import UNDER_WAY, IdleTrigger

DAYS_PER_RUN = 7
_HELP = (
    "Reconcile the days of a span in chunks, one after another. Each chunk is a run of `reconcile_<stream>`, whose id "
    "begins with its first day. Days whose seal has every archived record are left out, unless you force them.\n\n"
    "**To see what will happen first**, switch on `Dry run`. The log of task `chunks` then shows each day, its state, "
    "and what the runs read and cost at most. No run starts.\n\n"
    "**A chunk that fails** does not stop the next one. Its task `chunk` is red, and its log ends with the step that "
    "failed and why. **To try it again**, clear the red task: it starts a new run. A chunk whose run succeeded or is "
    "under way is never started again.\n\n"
    "**To stop**, mark this run as failed: no further chunk starts, and the run that is under way continues.\n\n"
    "It needs Airflow's triggerer, with Tidemark installed there. A chunk that waits holds no worker. It starts its "
    "run when no run of `reconcile_<stream>` is queued or running."
)


def backfill_dag(items: Sequence[Reconcile]) -> DAG:
    """``tidemark_backfill``."""
    with DAG(
        dag_id="tidemark_backfill",
        description="Reconcile a span of days of a stream, chunk by chunk",
        doc_md=doc(items, _HELP),
        tags=["tidemark"],
        schedule=None,
        start_date=START,
        catchup=False,
        is_paused_upon_creation=False,  # as any DAG without a schedule; see manual_dags
        params=_params(items),
        default_args={"owner": OWNER, **RETRY_ARGS},
    ) as dag:
        chunks = ChunksStep(
            task_id="chunks",
            execution_timeout=timedelta(minutes=30),
            doc_md="Check the form, and show what will happen. A dry run ends here.",
        )
        # Without an execution timeout: a later Airflow may count the time in the triggerer.
        ChunkStep.partial(
            task_id="chunk",
            trigger_dag_id=dag_id("{{ params.stream }}"),
            logical_date=None,
            wait_for_completion=True,
            deferrable=True,
            poke_interval=POKE_SECONDS,
            max_active_tis_per_dagrun=1,
            map_index_template="{{ task.label }}",
            doc_md="One per chunk: wait until the stream is idle, start its reconcile run, and wait until it ends.",
        ).expand(conf=chunks.output)
    return dag


def _params(items: Sequence[Reconcile]) -> dict[str, Param]:
    return {
        "stream": stream_param(items),
        "from_day": day_param("From day", "First day, in the stream's time zone."),
        "to_day": day_param("To day", f"Last day, included. It must be over. {BACKFILL_RUNS_MAX:,} runs at most."),
        "days_per_run": Param(
            DAYS_PER_RUN,
            description="How many days a run reconciles. One day that fails its checks fails all days of its run.",
            schema={"type": "integer", "minimum": 1, "maximum": SPAN_DAYS_MAX, "title": "Days per run"},
        ),
        "force": force_param(),
        "reason": Param(
            None,
            description="Why, in your words. The note of each chunk's run shows it.",
            schema={"type": ["null", "string"], "maxLength": 500, "title": "Reason"},
        ),
        "dry_run": Param(
            False,
            description="Only show what would happen, in the log of task chunks.",
            schema={"type": "boolean", "title": "Dry run"},
        ),
    }


class ChunksStep(BaseOperator):
    """Checks the form, and shows what will happen. Returns the form of each chunk's run; none for a dry run."""

    def execute(self, context: Any) -> list[dict[str, Any]]:
        params, ti = context["params"], context["ti"]
        plan = explained(lambda: self._plan(params))
        for line in plan_lines(plan):
            self.log.info("%s", line)
        ti.xcom_push(key="plan", value=list(plan_lines(plan)))
        if params["dry_run"]:
            self.log.info("Dry run: no run is started")
            return []
        reconcile = dag_id(params["stream"])
        if ti.get_dag(reconcile).is_paused:
            raise AirflowFailException(
                f"{reconcile} is paused, so no run of it would start. Unpause it, clear this task"
            )
        return [
            {"from_day": str(run[0].day), "to_day": str(run[-1].day), "force": params["force"]} for run in plan.runs
        ]

    def _plan(self, params: Mapping[str, Any]) -> BackfillPlan:
        from tidemark.definitions.stream import load_stream
        from tidemark.settings import streams_dir

        stream, now = load_stream(params["stream"], streams_dir()), datetime.now(UTC)
        days = backfill_days(params["from_day"], params["to_day"], now=now, zone=stream.zone)
        size = params["days_per_run"]
        plan = plan_backfill(task_settings(), stream, days, days_per_run=size, force=params["force"], now=now)
        require_possible(plan.runs)
        return plan


class ChunkStep(TriggerDagRunOperator):
    """Starts the chunk's reconcile run and waits for it. Its failure is the one that the run's steps saved.

    Executed again, by a retry or after it was cleared, it waits for the run that is there, and starts another one
    only where every earlier one has failed. Before it starts one, it waits until no run of the DAG is queued or
    running: Airflow creates no scheduled run while another one is queued.
    """

    conf: dict[str, Any]

    @property
    def days(self) -> tuple[date, ...]:
        return days_between(*(date.fromisoformat(self.conf[key]) for key in ("from_day", "to_day")))

    @property
    def label(self) -> str:
        """The chunk's name in Airflow."""
        return tasks.days_text(self.days)

    def execute(self, context: Any, event: Any = None) -> None:  # noqa: ARG002  # Airflow gives the trigger's event
        ti, reconcile, params = context["ti"], self.trigger_dag_id, context["params"]
        why = f"backfill by run {context['run_id']}"
        self.note = run_note(params["stream"], self.days, why, params["reason"] or "")
        for attempt in count(1):
            # It starts with the day: Airflow keeps ids that start with ``backfill__`` for its own.
            run = f"{self.days[0]}__{context['run_id']}__{attempt}"
            if ti.get_dr_count(reconcile, run_ids=[run]) == 0:
                if ti.get_dr_count(reconcile, states=UNDER_WAY):
                    self.log.info("Waiting until no run of %s is queued or running", reconcile)
                    idle = IdleTrigger(dag_id=reconcile, poll_interval=self.poke_interval)
                    self.defer(trigger=idle, method_name="execute")
                self.trigger_run_id = run
                super().execute(context)
            elif ti.get_dagrun_state(reconcile, run) != "failed":
                ends = [*self.allowed_states, *self.failed_states]
                wait = DagStateTrigger(dag_id=reconcile, states=ends, run_ids=[run], poll_interval=self.poke_interval)
                self.defer(trigger=wait, method_name="execute_complete")

    def execute_complete(self, context: Any, event: Any) -> None:
        """Called as the run has ended; raises AirflowFailException where the chunk is not sealed."""
        (run,) = event[1]["run_ids"]
        stream = context["params"]["stream"]
        opened = open_run(stream, run)
        held = tasks.held(opened)
        try:
            super().execute_complete(context, event)
        except AirflowException as error:
            reason = tasks.reason(opened) or held_text(held) or "no step saved a reason"
            # A run also fails for days held back that are not its own: this chunk is sealed then.
            if not self._is_sealed(context["ti"], stream, run, held):
                raise AirflowFailException(f"{self.label}: run {run} of {dag_id(stream)} failed: {reason}") from error
        if held:
            self.log.warning("Days held back by run %s: %s", run, held_text(held))

    def _is_sealed(self, ti: Any, stream: str, run: str, held: Sequence[HeldDay]) -> bool:
        states = ti.get_task_states(dag_id=dag_id(stream), run_ids=[run]).get(run, {})
        ended = states.get("seal") == "success" and states.get("report") == "success"
        return ended and not any(item.day in self.days for item in held)
