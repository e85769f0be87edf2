"""The steps of a reconcile run, and the result that each of them leaves for the steps after it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from tidemark.core import instruments
from tidemark.core.approval import Approval
from tidemark.core.delivery import DELIVERY
from tidemark.core.instruments import Figures
from tidemark.core.manifest_chain import BrokenLink
from tidemark.core.offsets import OffsetRange, TopicPartition, count
from tidemark.core.outcome import RunStep
from tidemark.core.plan import DayPlan, LastBatch, LogRange, MainSnapshots, Plan
from tidemark.core.seal import Difference
from tidemark.logs import add_log_context
from tidemark.reconcile.audit.checks import CheckOutcome
from tidemark.reconcile.audit.figures import DayFigures
from tidemark.reconcile.day_profile import DayProfile, RecoveredRows

if TYPE_CHECKING:  # a DAG takes the steps' names from here, and must not load an S3 client
    from tidemark.run import Run

# What to do about late records that are held back.
WAY_OUT = (
    "Each new run tries the late records again. Let the transformation reject bad records, correct the check, or"
    " restore the named object. To leave such old days as they are, lower batch.reopen_days."
)


def new_run_hint(stream: str, days: Collection[date]) -> str:
    """What to do where another run has moved one of the days meanwhile."""
    return (
        f"Start a new run of the days: trigger the DAG reconcile_{stream} with from_day {min(days)} and to_day"
        f" {max(days)}, and with force where nothing new was archived since they were sealed"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitResult:
    """Whether the archive reached the end of the days, and how long the run has waited for it."""

    ready: bool
    waited_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RefillRange:
    """Offsets to fetch from Kafka: a gap, or with ``in_hole`` a part of a range that was archived without them."""

    log: TopicPartition
    range: OffsetRange
    in_hole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleSearch:
    """The causes of offsets without a row, the offsets read in the search, and notes on what could not be found out."""

    transactional: int
    compacted: int
    unexplained: int
    offsets_read: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveState:
    """What a plan was made from: the number of manifests, broken links of their chains, each writer's last batch."""

    manifests: int
    broken_links: tuple[BrokenLink, ...]
    last_batches: tuple[LastBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The request and the first plan. ``holes`` is None where no day is to be rebuilt.

    ``scheduled``: the schedule named the requested days. ``loss_accepted_by`` accepted losses with the request. Records
    move between the ``reassigned`` days and those. ``unproven`` were published and not sealed. Publication is refused
    where another run moved a day since ``main``.
    """

    requested: tuple[date, ...]
    reassigned: tuple[date, ...] = ()
    force: bool
    scheduled: bool = False
    loss_accepted_by: str | None = None
    unproven: tuple[date, ...] = ()
    main: MainSnapshots
    plan: Plan
    archive: ArchiveState
    holes: HoleSearch | None
    refill: tuple[RefillRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefilledRange:
    """Offsets that batch ``batch`` of the run's refill has brought into the archive."""

    log: TopicPartition
    range: OffsetRange
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefillResult:
    """What the refill archived; ``lost`` is what retention took between plan and refill."""

    ranges: tuple[RefilledRange, ...]
    rows: int
    files: int
    lost: tuple[LogRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runway:
    """The time until Kafka may delete the first unarchived record of a log; None if its topic deletes none by age."""

    topic: str
    partition: int
    hours_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionNote:
    """What Kafka holds that is not archived, in a sentence and a line for each range that retention takes soon.

    ``runways`` are those of the logs where records wait. Fewer hours left than ``alarm_hours`` raise the alarm.
    """

    summary: str
    alarm: bool
    lines: tuple[str, ...]
    alarm_hours: float | None = None
    runways: tuple[Runway, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizeResult:
    """The plan that the run proves. ``planned_at`` is when step ``plan`` began: an ISO text in UTC.

    ``losses`` has a sentence for each loss that a person accepted with the request, or has to approve.
    """

    planned_at: str
    force: bool
    losses: tuple[str, ...] = ()
    plan: Plan
    archive: ArchiveState
    holes: HoleSearch | None
    retention: RetentionNote


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDay:
    """A day that late records reopened and that keeps its version, with what was wrong with its new rows."""

    day: date
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicatedBy:
    """The key that duplicates were removed by, none where it is empty, and which row of a key was kept."""

    key: tuple[str, ...]
    keep: Literal["first", "last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRows:
    """A table's audit branch: the snapshot it starts from, and the one with the run's rows."""

    base: int
    snapshot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCounts:
    """Rows of a day: ``read`` = ``published`` + ``quarantined`` + ``duplicates_removed`` (by key).

    ``duplicates_trimmed`` are further archived copies of the same offsets, which were not read.
    """

    day: date
    read: int
    published: int
    quarantined: int
    duplicates_removed: int
    duplicates_trimmed: int

    @property
    def conserved(self) -> bool:
        return self.read == self.published + self.quarantined + self.duplicates_removed


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCounts:
    """Rows of a log that were read, and offsets of the ranges they came from."""

    log: TopicPartition
    rows: int
    offsets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedValue:
    """A column whose value is another one in the new version; both fit for JSON."""

    column: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A published row that the new version changes, by its place in the source."""

    topic_id: str
    partition: int
    offset: int
    values: tuple[ChangedValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayDifference:
    """What a day's new version changes for readers, with some of the changed rows."""

    day: date
    rows: Difference
    examples: tuple[ChangedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildResult:
    """The rows on the audit branches. ``held`` are the days that could not be rebuilt and keep their version.

    ``plan`` and ``inputs`` are fingerprints (``tidemark.reconcile.fingerprints``). ``staged`` and ``quarantine`` are
    None where no day was rebuilt. A day that ``differences`` lacks has no earlier rows that can be read.
    """

    plan: str
    inputs: str
    deduplicated_by: DeduplicatedBy
    held: tuple[HeldDay, ...] = ()
    branch: str | None = None
    staged: StagedRows | None = None
    quarantine: StagedRows | None = None
    files: int = 0
    columns_changed: tuple[str, ...] = ()
    days: tuple[DayCounts, ...] = ()
    logs: tuple[LogCounts, ...] = ()
    profiles: tuple[DayProfile, ...] = ()
    differences: tuple[DayDifference, ...] = ()
    recovered: tuple[RecoveredRows, ...] = ()

    def difference(self, day: date) -> DayDifference | None:
        """What the day's new version changes; None for its first, or where it could not be found out."""
        return next((item for item in self.differences if item.day == day), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The checks of the rows in snapshot ``staged``, and the days they let readers see.

    ``rows_failed``: critical checks that did see the rows stop the run, so another audit of the same rows is pointless.
    Later days are compared with the ``figures`` of the rows. ``data_docs``: days with a page in the run's folder.
    """

    staged: int | None
    passed: bool
    rows_failed: bool = False
    held: tuple[HeldDay, ...]
    checks: tuple[CheckOutcome, ...] = ()
    figures: tuple[DayFigures, ...] = ()
    note: str | None = None
    data_docs: tuple[date, ...] = ()

    def passed_days(self, plan: Plan) -> tuple[DayPlan, ...]:
        """The days of a plan that a passed audit lets readers see."""
        held = {item.day for item in self.held}
        return tuple(item for item in plan.days if item.day not in held)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalFinding:
    """A failed warning or a loss that a person has to approve. ``day`` is None if it concerns every day of the run."""

    kind: Literal["warning", "loss"]
    day: date | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproveResult:
    """A person's answer on the ``findings`` of the rows in snapshot ``staged``. It is valid for no other rows."""

    decision: Literal["approved", "rejected", "rebuild"]
    approval: Approval
    findings: tuple[ApprovalFinding, ...]
    staged: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """The published days. ``already``: an earlier attempt had published them."""

    days: tuple[date, ...]
    snapshot_id: int | None = None
    quarantine_snapshot_id: int | None = None
    already: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedVersion:
    """A day's new version, and the key and SHA-256 of its seal."""

    day: date
    version: int
    key: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SealResult:
    """The seals that the run has written."""

    seals: tuple[SealedVersion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackResult:
    """The version that has the earlier rows; ``already``: the day's latest version had them before."""

    rolled_back_to: int
    already: bool
    sealed: SealedVersion
    rows_published: int
    rows_quarantined: int
    snapshot_id: int | None
    quarantine_snapshot_id: int | None


def _refill_figures(result: RefillResult) -> Figures:
    return {
        instruments.REFILLED_OFFSETS: count(item.range for item in result.ranges),
        instruments.REFILL_LOST: count(item.range for item in result.lost),
    }


def _plan_figures(result: FinalizeResult) -> Figures:
    return {instruments.LOST_OFFSETS: count(part for log in result.plan.logs for part in log.lost)}


def _rebuild_figures(result: RebuildResult) -> Figures:
    return {
        instruments.ROWS_READ: sum(item.read for item in result.days),
        instruments.ROWS_PUBLISHED: sum(item.published for item in result.days),
        instruments.ROWS_QUARANTINED: sum(item.quarantined for item in result.days),
        instruments.DUPLICATES_REMOVED: sum(item.duplicates_removed for item in result.days),
    }


def _audit_figures(result: AuditResult) -> Figures:
    return {
        instruments.DAYS_HELD_BACK: len(result.held),
        instruments.CHECKS_FAILED: sum(not item.passes for item in result.checks),
    }


WAIT = RunStep("wait", WaitResult)
PLAN = RunStep("plan", PlanResult)
REFILL = RunStep("refill", RefillResult, _refill_figures)
FINALIZE_PLAN = RunStep("finalize_plan", FinalizeResult, _plan_figures)
REBUILD = RunStep("rebuild", RebuildResult, _rebuild_figures)
AUDIT = RunStep("audit", AuditResult, _audit_figures)
APPROVE = RunStep("approve", ApproveResult)
PUBLISH = RunStep("publish", PublishResult, lambda result: {instruments.DAYS_PUBLISHED: len(result.days)})
SEAL = RunStep("seal", SealResult, lambda result: {instruments.DAYS_SEALED: len(result.seals)})
REPORT = RunStep("report", dict[str, Any])
ROLLBACK = RunStep("rollback", RollbackResult)
# In the order they run. A DAG, a report and a hint take the names from here.
STEPS: tuple[RunStep[Any], ...] = (WAIT, PLAN, REFILL, FINALIZE_PLAN, REBUILD, AUDIT, APPROVE, PUBLISH, SEAL, DELIVERY)
NOT_ENDED = frozenset({"failed", "unfinished", "waiting"})  # a report's verdicts on a run that has not done every step


def final_plan(run: "Run") -> Plan:
    """The plan that the run proves; raises IncompleteError where step ``finalize_plan`` has not succeeded."""
    plan = run.require(FINALIZE_PLAN).plan
    add_log_context(days=[item.day for item in plan.days])
    return plan


def held_text(held: Collection[HeldDay]) -> str:
    """What is held back and why; empty where nothing is."""
    found = "; ".join(item.because for item in held)
    return f"late records are held back, because their days can't be rebuilt or do not pass: {found}" if found else ""
