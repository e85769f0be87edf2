"""DAGs of one Spark step, mostly started by hand, one per stream. Parsing imports no Spark, no Great Expectations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from airflow.sdk import DAG, Param

from tidemark.orchestration.operators import SparkStep
from tidemark.orchestration.reconcile_dag import START, sealed_asset
from tidemark.orchestration.steps import Reconcile


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """A DAG of one Spark step, which is called as it; ``form`` are the parameters that its application is given.

    ``schedule`` is a cron expression, in UTC, of one that also runs by itself.
    """

    step: str
    description: str  # in front of the stream's name
    help: str
    timeout: timedelta
    form: Mapping[str, Param] = field(default_factory=dict)
    seals: bool = False
    schedule: str | None = None

    def dag_id(self, stream_name: str) -> str:
        """The id of a stream's DAG."""
        return f"{self.step}_{stream_name}"

    def dag(self, item: Reconcile) -> DAG:
        """The DAG of a stream; that of a broken definition is there too, and its task fails with that error.

        One run at a time and no retries: what it is refused for won't right itself, and somebody should look.
        """
        broken = f"**The definition of stream `{item.name}` can't be used.**\n\n```\n{item.error}\n```\n\n"
        with DAG(
            dag_id=self.dag_id(item.name),
            description=f"{self.description} {item.name}",
            doc_md=(broken if item.error else "") + self.help,
            tags=["tidemark", item.name, *(["broken"] if item.error else [])],
            schedule=None if item.error else self.schedule,
            start_date=START,
            catchup=False,
            max_active_runs=1,
            params=dict(self.form),
            default_args={"retries": 0},
        ) as dag:
            SparkStep(
                task_id=self.step,
                step=self.step,
                stream=item.name,
                form=tuple(self.form),
                outlets=[sealed_asset(item.name)] if self.seals else [],
                execution_timeout=self.timeout,
                doc_md=self.help,
            )
        return dag


REPLAY = ByHand(
    step="replay",
    description="Replay the dead letters of stream",
    help=(
        "Send every dead letter through the stream's transformation as it is now: good ones to the live topic, bad ones"
        " back to the dead-letter topic, one attempt further. Run it after a fix. A run that failed or was stopped"
        " loses and repeats nothing: trigger the DAG again, it goes on where that one was."
    ),
    timeout=timedelta(hours=6),
)

ROLLBACK = ByHand(
    step="rollback",
    description="Bring back an earlier version of a day of stream",
    help=(
        "Make a day's rows those of an earlier version again, in one atomic step. The day gets a new version that says"
        " so; no version is lost (`tidemark versions` lists them). Reconcile runs leave the day so until late records"
        " come. A run that failed or was stopped can be repeated."
    ),
    timeout=timedelta(hours=2),
    form={
        "day": Param(
            description="The day, in the stream's time zone.",
            schema={"type": "string", "format": "date", "title": "Day"},
        ),
        "version": Param(
            description="The version whose rows the day shall have.",
            schema={"type": "integer", "minimum": 1, "title": "Version"},
        ),
    },
    seals=True,
)

MAINTAIN = ByHand(
    step="maintain",
    description="Look after archive and tables of stream",
    help=(
        "Abort uploads of data objects that nobody finished within a day, and of the tables' files within a week;"
        " drop audit branches that nobody wrote to for a week, expire the tables' snapshots behind the stream's"
        " `batch.snapshot_retention_days`, delete files of no snapshot, and compact the ledger. Then write the"
        " archive's small objects anew as large ones, and delete, a week later, those that were replaced: from then"
        " on a Tidemark from before compaction refuses the archive. Safe beside everything else; a run that failed or"
        " was stopped can be repeated."
    ),
    timeout=timedelta(hours=24),  # it reads every manifest there is
    schedule="0 4 * * 0",
)
