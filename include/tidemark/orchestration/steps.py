"""A stream's reconcile DAG as plain values; ``tidemark_airflow.reconcile_dag`` makes the operators from them."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from tidemark.core.delivery import DELIVERY
from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream, load_stream, stream_names
from tidemark.reconcile.results import APPROVE, AUDIT, FINALIZE_PLAN, PLAN, PUBLISH, REBUILD, REFILL, REPORT, SEAL, WAIT

RETRIES = 6  # only errors of services are retried so often: tidemark_airflow.retries
RETRY_DELAY = timedelta(seconds=15)
SPAN_DAYS_MAX = 92
LEASE_TIMEOUT = timedelta(days=7)
LEASE_STEP = "wait_for_lease"
LAST_TASK = "complete"
LAST_HELP = (
    "Succeeds if the days are sealed and reported. Fails if a step failed or was not reached. Also fails if late "
    "records are held back: their days can't be rebuilt, or do not pass the checks."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One task of the DAG.

    ``sensor`` gives its slot back between two checks; ``spark`` runs ``spark_apps/<name>.py``; ``person`` waits for a
    person without a slot; ``always`` runs even after a failure; ``leased`` works only while the run holds the stream's
    lease.
    """

    name: str
    kind: Literal["sensor", "python", "spark", "person"]
    help: str
    timeout: timedelta
    always: bool = False
    leased: bool = True


STEPS = (
    Step(
        name=LEASE_STEP,
        kind="sensor",
        help="Wait until no other run of the stream is under way. The log names the run it waits for.",
        timeout=LEASE_TIMEOUT,
        leased=False,
    ),
    Step(
        name=WAIT.name,
        kind="sensor",
        help="Wait until the archive reaches the end of the days, at most the stream's `batch.wait_seconds`. "
        "A stream that lags or is down is no failure: what it has not archived is refilled from Kafka.",
        timeout=timedelta(minutes=10),
    ),
    Step(
        name=PLAN.name,
        kind="python",
        help="Fix the offsets the run must prove, and decide what to read, refill and rebuild.",
        timeout=timedelta(minutes=30),
    ),
    Step(
        name=REFILL.name,
        kind="spark",
        help="Fetch exactly the missing offsets from Kafka into the archive. Skipped where nothing is missing.",
        timeout=timedelta(hours=6),
    ),
    Step(
        name=FINALIZE_PLAN.name,
        kind="python",
        help="Plan the same offsets again: every one of them must be archived now.",
        timeout=timedelta(minutes=30),
    ),
    Step(
        name=REBUILD.name,
        kind="spark",
        help="Rebuild the days from the archive on an audit branch, without duplicates. Its application also runs the "
        "stream's quality checks on them.",
        timeout=timedelta(hours=6),
    ),
    Step(
        name=AUDIT.name,
        kind="spark",
        help="Report what the checks found. A critical one that fails ends the run here, but for days that late "
        "records reopened: those keep their version. Cleared, the task runs the checks again, as defined now.",
        timeout=timedelta(hours=2),
    ),
    Step(
        name=APPROVE.name,
        kind="person",
        help="Wait for a person where checks of severity warning failed or records are lost, and the stream's "
        "`batch.approval` wants that. Skipped where nothing needs a person. No answer in `batch.approval_hours` counts "
        "as a rejection.",
        timeout=timedelta(minutes=10),
        leased=False,
    ),
    Step(
        name=PUBLISH.name,
        kind="spark",
        help="Replace the days of the published table in one atomic step. "
        "Refused where another run has published one of them since this run was planned.",
        timeout=timedelta(hours=2),
    ),
    Step(
        name=SEAL.name,
        kind="python",
        help="Write each day's proof: the ranges used, the counts, the quality verdict and the snapshot.",
        timeout=timedelta(minutes=30),
    ),
    Step(
        name=DELIVERY.name,
        kind="spark",
        help="Compare the live topic with the days that the run was asked for and has sealed, for each hour. Skipped "
        "in these cases: the speed layer has delivered nothing, or last ran before the first of these days began; the "
        "live topic no longer has the days; a person or a backfill asked for more than three days. A failure of this "
        "step does not fail the run: the report shows it.",
        timeout=timedelta(hours=2),
        leased=False,
    ),
    Step(
        name=REPORT.name,
        kind="python",
        help="Write the run's report, also of a run that failed or that a person marked failed, and let the stream's "
        "next run begin.",
        timeout=timedelta(minutes=30),
        always=True,
        leased=False,
    ),
)
LEASED = frozenset(step.name for step in STEPS if step.leased)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcile:
    """One stream's DAG. ``stream`` is None and ``error`` says why where its definition can't be used."""

    name: str
    stream: Stream | None
    error: str | None

    @property
    def dag_id(self) -> str:
        return dag_id(self.name)

    @property
    def description(self) -> str:
        if self.error is not None:
            return f"Broken: {self.error}"
        about = self.stream.description if self.stream else None
        return f"Rebuild, prove and publish days of stream {self.name}{f': {about}' if about else ''}"


def dag_id(stream_name: str) -> str:
    """The id of a stream's reconcile DAG."""
    return f"reconcile_{stream_name}"


def reconciles(folder: Path) -> tuple[Reconcile, ...]:
    """Every stream's DAG, by name. A broken definition affects only its own, and a misnamed file has none."""
    return tuple(_reconcile(name, folder) for name in stream_names(folder))


def _reconcile(name: str, folder: Path) -> Reconcile:
    try:
        return Reconcile(name=name, stream=load_stream(name, folder), error=None)
    except ConfigError as error:
        return Reconcile(name=name, stream=None, error=str(error))
