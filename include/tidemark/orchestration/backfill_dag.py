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
from tidemark.orchestration.context import explained
from tidemark.orchestration.forms import day_param, doc, force_param, stream_param
from tidemark.orchestration.operators import POKE_SECONDS
from tidemark.orchestration.reconcile_dag import START
from tidemark.orchestration.run_days import BACKFILL_RUNS_MAX, backfill_chunks
from tidemark.orchestration.steps import RETRIES, RETRY_DELAY, SPAN_DAYS_MAX, Reconcile, dag_id
from tidemark.reconcile.results import HeldDay, held_text

DAYS_PER_RUN = 7
_HELP = (
    "Reconcile the days of a span in chunks, one after another. Each chunk is a run of `reconcile_<stream>`. A chunk "
    "that fails does not stop the next one. Task `chunk` shows each one: green, or red with the step that failed and "
    "why in its log.\n\n"
    "**To try a chunk again**, clear its red task: it starts a new run. A chunk whose run succeeded or is under way is "
    "never started again. **To stop**, mark this run as failed: no further chunk starts, and the run that is under way "
    "continues.\n\n"
    "It needs Airflow's triggerer: a chunk that waits for its run holds no worker."
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
        params=_params(items),
        default_args={"retries": RETRIES, "retry_delay": RETRY_DELAY},
    ) as dag:
        chunks = ChunksStep(
            task_id="chunks", execution_timeout=timedelta(minutes=10), doc_md="Check the form, and split the days."
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
            doc_md="One per chunk: start its reconcile run, and wait until it has ended.",
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
    }


class ChunksStep(BaseOperator):
    """Checks the form. Returns the form of each chunk's run."""

    def execute(self, context: Any) -> list[dict[str, Any]]:
        params = context["params"]
        chunks = explained(lambda: self._chunks(params))
        reconcile = dag_id(params["stream"])
        if context["ti"].get_dag(reconcile).is_paused:
            raise AirflowFailException(
                f"{reconcile} is paused, so no run of it would start. Unpause it, clear this task"
            )
        return [{"from_day": str(days[0]), "to_day": str(days[-1]), "force": params["force"]} for days in chunks]

    def _chunks(self, params: Mapping[str, Any]) -> list[tuple[date, ...]]:
        from tidemark.definitions.stream import load_stream
        from tidemark.settings import streams_dir

        return backfill_chunks(
            params["from_day"],
            params["to_day"],
            size=params["days_per_run"],
            now=datetime.now(UTC),
            zone=load_stream(params["stream"], streams_dir()).zone,
        )


class ChunkStep(TriggerDagRunOperator):
    """Starts the chunk's reconcile run and waits for it. Its failure is the one that the run's steps saved.

    Executed again, by a retry or after it was cleared, it waits for the run that is there, and starts another one
    only where every earlier one has failed.
    """

    conf: dict[str, Any]

    @property
    def days(self) -> tuple[date, ...]:
        return days_between(*(date.fromisoformat(self.conf[key]) for key in ("from_day", "to_day")))

    @property
    def label(self) -> str:
        """The chunk's name in Airflow."""
        return tasks.days_text(self.days)

    def execute(self, context: Any) -> None:
        ti, reconcile = context["ti"], self.trigger_dag_id
        for attempt in count(1):
            # It starts with the day: Airflow keeps ids that start with ``backfill__`` for its own.
            run = f"{self.days[0]}__{context['run_id']}__{attempt}"
            if ti.get_dr_count(reconcile, run_ids=[run]) == 0:
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
        held = tasks.held(stream, run)
        try:
            super().execute_complete(context, event)
        except AirflowException as error:
            reason = tasks.reason(stream, run) or held_text(held) or "no step saved a reason"
            # A run also fails for days held back that are not its own: this chunk is sealed then.
            if not self._is_sealed(context["ti"], stream, run, held):
                raise AirflowFailException(f"{self.label}: run {run} of {dag_id(stream)} failed: {reason}") from error
        if held:
            self.log.warning("Days held back by run %s: %s", run, held_text(held))

    def _is_sealed(self, ti: Any, stream: str, run: str, held: Sequence[HeldDay]) -> bool:
        states = ti.get_task_states(dag_id=dag_id(stream), run_ids=[run]).get(run, {})
        ended = states.get("seal") == "success" and states.get("report") == "success"
        return ended and not any(item.day in self.days for item in held)
