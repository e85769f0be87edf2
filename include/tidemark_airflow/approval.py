"""The task that waits for a person's approval. It uses no worker and no trigger meanwhile."""

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun
from airflow.sdk.timezone import utcnow

from tidemark.reconcile.results import PLAN
from tidemark_airflow.connections import open_run
from tidemark_airflow.context import explained
from tidemark_airflow.notes import run_note
from tidemark_airflow.pages.links import report_url
from tidemark_airflow.task_log import log_skip

if TYPE_CHECKING:
    from tidemark.reconcile.approval import Decision
    from tidemark.run import Run

REBUILD = "Rebuild"
DECISIONS: dict[str, "Decision"] = {"Approve": "approved", "Reject": "rejected", REBUILD: "rebuild"}
WORDS = "words"
# What a person fills in with the answer: the operator's ``params``.
ANSWER_FORM = {
    WORDS: Param("", schema={"type": "string", "title": "Why"}, description="Goes into the seals and the report.")
}
NOBODY = "nobody"
# What the id of a rebuild has around the first run's.
_REBUILD_OF = re.compile(r"^rebuild__|(?<=.)__\d{8}T\d{6}$")
_ASKED = "asked"  # the digest of the question, while it waits for its answer


class ApproveStep(HITLOperator):
    """Asks a person whether to publish the days, if the run has to ask. Else it is skipped.

    The answer is saved as the step's outcome. A repetition of the task does not ask again for the rows that are
    approved. It asks again after a rejection: a person who clears the task can decide otherwise.
    """

    def __init__(self, *, stream: str, **kwargs: Any) -> None:
        super().__init__(subject="Publish the days?", options=[*DECISIONS], **kwargs)
        self.stream = stream

    def execute(self, context: Any) -> Any:
        """Raises AirflowSkipException where nothing needs a person."""
        from tidemark.reconcile.approval import open_question
        from tidemark.reconcile.report.report import report_run

        run = explained(lambda: open_run(self.stream, context["run_id"]))
        question = open_question(run)
        if question is None:
            raise log_skip(self.log, "Nothing needs a person's approval")
        report_run(run, waiting=question.sentences)
        self.subject, self.body = question.subject, question.body(report_url(self.stream, run.name))
        self.log.info("%s\n%s", self.subject, "\n".join(question.sentences))
        context["ti"].xcom_push(key=_ASKED, value=question.digest)
        return super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> None:
        """Called with the answer, or when the time is over. Raises AirflowFailException unless it is an approval."""
        from tidemark.reconcile.approval import decide

        run = explained(lambda: open_run(self.stream, context["run_id"]))
        if event.get("error_type") == "timeout":
            words = f"No answer within {self.response_timeout}"
            explained(lambda: decide(run, "rejected", by=NOBODY, words=words))
        answer: Any = super().execute_complete(context, event)
        user, choice = answer["responded_by_user"] or {}, answer["chosen_options"][0]
        by, words = user.get("name") or user.get("id") or NOBODY, str(answer["params_input"].get(WORDS) or "")
        self.log.info("%s by %s: %s", choice, by, words)
        if choice == REBUILD:
            self._start_again(run, context, by, words, answer["responded_at"])
        asked = str(context["ti"].xcom_pull(task_ids=self.task_id, key=_ASKED))
        explained(lambda: decide(run, DECISIONS[choice], by=by, words=words, at=answer["responded_at"], asked=asked))

    def _start_again(self, run: "Run", context: Any, by: str, words: str, at: datetime) -> None:
        """Start a run of the same days. Its id is that of the answer, so that a repetition starts no second one."""
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        planned = run.require(PLAN)
        days = planned.requested
        # Airflow keeps ids that start with scheduled__ or backfill__ for its own.
        first = _REBUILD_OF.sub("", context["run_id"])
        name = f"rebuild__{first}__{at:%Y%m%dT%H%M%S}"
        form = {"from_day": str(min(days)), "to_day": str(max(days)), "force": True}
        if planned.reassigned:
            form["reassign_days"] = True
        note = run_note(self.stream, days, f"rebuild instead of run {context['run_id']}, asked for by {by}", words)
        found = SUPERVISOR_COMMS.send(
            TriggerDagRun(dag_id=self.dag_id, run_id=name, run_after=utcnow(), conf=form, note=note)
        )
        if isinstance(found, ErrorResponse) and found.error.value != "DAGRUN_ALREADY_EXISTS":
            raise AirflowRuntimeError(found)
        self.log.info("Started run %s of the same days", name)
