"""The DAG ``tidemark_watch``: every few minutes the problems of all streams, and a message about what changed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, BaseOperator

from tidemark.connections.sources import variable
from tidemark.core.days import micros
from tidemark.core.errors import ConfigError
from tidemark.orchestration.steps import Reconcile, dag_id
from tidemark.settings import plain_setting
from tidemark_airflow.connections import task_settings
from tidemark_airflow.context import explained
from tidemark_airflow.forms import doc
from tidemark_airflow.pages import links
from tidemark_airflow.priority import FIRST
from tidemark_airflow.reconcile_dag import OWNER, START
from tidemark_airflow.reopen import KEY, LateStep, runs_to_start
from tidemark_airflow.watch_state import read_state, save_state

if TYPE_CHECKING:
    from tidemark.inspect.watch_message import Links
    from tidemark.settings import Settings

WATCH = "tidemark_watch"
_SETTING = "watch_minutes"
_MINUTES = range(1, 1441)
_HELP = (
    "Check every stream: its layers, its days, its last run, how long Kafka keeps what is not archived, its "
    "dead letters and its last delivery audit. Task `check` lists every problem in its log. Task `notify` has one part "
    "per notifier that has something to announce: a problem that began, got worse or ended, never a repetition.\n\n"
    "If a notifier fails, its part is red, and the next run sends what it has missed. The setting "
    "`TIDEMARK_NOTIFIERS` names the notifiers, `TIDEMARK_WATCH_MINUTES` how often this DAG runs. Each check takes "
    "seconds, and no worker is in use between two checks.\n\n"
    "If sealed days of a stream with `batch.late_data: as_archived` have late records, task `reopen` starts a run of "
    "`reconcile_<stream>`, unless one is under way.\n\n"
    "**To silence it**, pause this DAG. Unpaused, it announces what differs from its last message."
)


def watch_dag(items: Sequence[Reconcile]) -> DAG:
    """``tidemark_watch``. It is unpaused from the beginning: it only reads, unless a stream asks for more."""
    try:
        schedule: timedelta | None = watch_interval()
    except ConfigError:  # check_dags shows it
        schedule = None
    with DAG(
        dag_id=WATCH,
        description="Check every stream, and announce problems that begin, get worse or end",
        doc_md=doc(items, _HELP),
        tags=["tidemark"],
        schedule=schedule,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        # Not RetryByKind: its pauses of up to an hour would delay the next check, which is a retry itself.
        default_args={
            "owner": OWNER,
            "retries": 1,
            "retry_delay": timedelta(seconds=30),
            # What is wrong must be announced while runs wait for slots, too.
            "priority_weight": FIRST,
            "weight_rule": "absolute",
        },
    ) as dag:
        check = CheckStep(
            task_id="check",
            execution_timeout=timedelta(minutes=10),
            doc_md="Find every stream's problems, and what each notifier has to announce.",
        )
        NotifyStep.partial(
            task_id="notify",
            execution_timeout=timedelta(minutes=5),
            max_active_tis_per_dagrun=1,  # each changes the state
            map_index_template="{{ task.notifier }}",
            doc_md="One per notifier that has something to announce: one message about all changes.",
        ).expand(notifier=check.output)
        if any(item.stream is not None and item.stream.batch.late_data == "as_archived" for item in items):
            late = LateStep(
                task_id="late",
                execution_timeout=timedelta(minutes=5),
                doc_md="The runs to start for late records that are archived.",
            )
            check >> late
            TriggerDagRunOperator.partial(
                task_id="reopen",
                logical_date=None,
                skip_when_already_exists=True,  # started by an attempt that was killed
                execution_timeout=timedelta(minutes=5),
                map_index_template="{{ task.trigger_dag_id }}",
                doc_md="One per stream with late records: start a run of its reconcile DAG.",
            ).expand_kwargs(late.output)
    return dag


def watch_interval() -> timedelta:
    """How often the DAG runs. Raises ConfigError for another setting than a number of minutes."""
    given = plain_setting(_SETTING)
    text = str(given.value)
    if not text.isdecimal() or int(text) not in _MINUTES:
        raise ConfigError(
            "the interval of the watch is wrong",
            expected=f"minutes, {_MINUTES.start} to {_MINUTES.stop - 1}",
            found=text,
            where=f"{variable(_SETTING)}, {given.source}",
        )
    return timedelta(minutes=int(text))


class CheckStep(BaseOperator):
    """Checks every stream, and saves the problems. Returns the ids of the notifiers that have something to announce."""

    def execute(self, context: Any) -> list[str]:
        return explained(lambda: self._check(context["ti"]))

    def _check(self, ti: Any) -> list[str]:
        from tidemark.inspect.watch import Announced, find_changes, next_problems, of_notifiers
        from tidemark.inspect.watch_findings import audit_lines, read_findings
        from tidemark.inspect.watch_late import paused_problem

        settings, now = task_settings(), datetime.now(UTC)
        before = read_state()
        found = read_findings(settings, before, now)
        late = runs_to_start(found, before.reopenings, now, ti)
        ti.xcom_push(KEY, late.runs)
        waiting = [paused_problem(item, dag_id(item.stream)) for item in late.paused]
        problems = next_problems([*found.problems, *waiting], found.unchecked, before.problems, now_us=micros(now))
        ids = [item.id for item in settings.notifiers]
        state = of_notifiers(
            replace(
                before,
                checked_us=micros(now),
                problems=problems,
                dead_letters=found.dead_letters,
                reopenings=late.reopenings,
            ),
            ids,
        )
        save_state(state)
        for line in audit_lines(found.audits):
            self.log.info("%s", line)
        for problem in problems:
            self.log.warning("%s: %s. %s", problem.kind, problem.text, problem.hint)
        for change in find_changes(problems, Announced(notifier="", problems=before.problems)):
            self.log.info(
                "Since the last check: %s of %s %s", change.problem.kind, change.problem.stream, change.change
            )
        self.log.info("%d open problems; checked: %s", len(problems), ", ".join(item.stream for item in found.statuses))
        return [name for name in ids if find_changes(problems, state.announced_by(name))]


class NotifyStep(BaseOperator):
    """Sends one message through one notifier, and saves what it has announced.

    A task that is killed between the message and the second save sends it again.
    """

    def __init__(self, *, notifier: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.notifier = notifier

    def execute(self, context: Any) -> None:
        from tidemark.inspect.watch import after_message, before_message, find_changes
        from tidemark.inspect.watch_message import write_message
        from tidemark_airflow.notifiers import send

        settings, state = explained(task_settings), explained(read_state)
        item = next((item for item in settings.notifiers if item.id == self.notifier), None)
        changes = find_changes(state.problems, state.announced_by(self.notifier))
        if item is None or not changes:
            self.log.info("Nothing to announce")
            return
        message = write_message(settings.deployment, changes, _links(settings))
        save_state(before_message(state, self.notifier))
        explained(lambda: send(item, message, context))
        save_state(after_message(state, self.notifier))
        self.log.info("Sent: %s", message.subject)


def _links(settings: "Settings") -> "Links":
    from tidemark.inspect.watch_message import Links

    docs = settings.docs_url.rstrip("/")
    return Links(
        page=lambda stream: links.stream_url(stream) if stream else links.streams_url(),
        day=links.day_url,
        docs=lambda page: f"{docs}/{page}/" if docs else f"docs/{page}.md",
    )
