"""The steps of a reconcile run, and the result that each of them leaves for the steps after it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from tidemark.core.manifest_chain import BrokenLink
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.outcome import RunStep
from tidemark.core.plan import DayPlan, LastBatch, LogRange, MainSnapshots, Plan
from tidemark.core.seal import Difference
from tidemark.reconcile.audit.checks import CheckOutcome

if TYPE_CHECKING:  # a DAG takes the steps' names from here, and must not load an S3 client
    from tidemark.run import Run

# What to do about late records that are held back.
WAY_OUT = (
    "Every new run tries them again until they pass: let the transformation reject what is bad, or mend the check or"
    " object that is named, or leave days so far back alone (batch.reopen_days)."
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
    """What a plan was made from: the number of manifests, each broken link in a writer's chain of them, and the last
    batch of each writer."""

    manifests: int
    broken_links: tuple[BrokenLink, ...]
    last_batches: tuple[LastBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The request and the first plan. ``holes`` is None where no day is to be rebuilt.

    ``scheduled``: the schedule named the requested days. ``unproven`` are the days that an earlier run had published
    and not sealed. Publication is refused where another run moved a day since ``main``.
    """

    requested: tuple[date, ...]
    force: bool
    scheduled: bool = False
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
class RetentionNote:
    """What Kafka holds that is not archived, in a sentence and a line for each range that retention takes soon."""

    summary: str
    alarm: bool
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizeResult:
    """The plan that the run proves. ``planned_at`` is when step ``plan`` began: an ISO text in UTC."""

    planned_at: str
    force: bool
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
    None where no day was rebuilt. A day with an earlier version that is not in ``differences`` has earlier
    rows that have expired or can't be read.
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
    differences: tuple[DayDifference, ...] = ()

    def difference(self, day: date) -> DayDifference | None:
        """What the day's new version changes; None for its first, or where it could not be found out."""
        return next((item for item in self.differences if item.day == day), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The checks of the rows in snapshot ``staged``, and the days they let readers see.

    ``rows_failed``: critical checks that did see the rows stop the run, so another audit of the same rows is pointless.
    A check that could not be made says nothing about them.
    """

    staged: int | None
    passed: bool
    rows_failed: bool = False
    held: tuple[HeldDay, ...]
    checks: tuple[CheckOutcome, ...] = ()
    note: str | None = None

    def passed_days(self, plan: Plan) -> tuple[DayPlan, ...]:
        """The days of a plan that a passed audit lets readers see."""
        held = {item.day for item in self.held}
        return tuple(item for item in plan.days if item.day not in held)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """The published days. ``already``: an earlier attempt had published them."""

    days: tuple[date, ...]
    snapshot_id: int | None = None
    quarantine_snapshot_id: int | None = None
    already: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedVersion:
    """A day's new version, and the key of its seal."""

    day: date
    version: int
    key: str


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


WAIT = RunStep("wait", WaitResult)
PLAN = RunStep("plan", PlanResult)
REFILL = RunStep("refill", RefillResult)
FINALIZE_PLAN = RunStep("finalize_plan", FinalizeResult)
REBUILD = RunStep("rebuild", RebuildResult)
AUDIT = RunStep("audit", AuditResult)
PUBLISH = RunStep("publish", PublishResult)
SEAL = RunStep("seal", SealResult)
REPORT = RunStep("report", dict[str, Any])
ROLLBACK = RunStep("rollback", RollbackResult)
# In the order they run. A DAG, a report and a hint take the names from here.
STEPS: tuple[RunStep[Any], ...] = (WAIT, PLAN, REFILL, FINALIZE_PLAN, REBUILD, AUDIT, PUBLISH, SEAL)


def final_plan(run: "Run") -> Plan:
    """The plan that the run proves; raises IncompleteError where step ``finalize_plan`` has not succeeded."""
    return run.require(FINALIZE_PLAN).plan


def held_text(held: Collection[HeldDay]) -> str:
    """What is held back and why; empty where nothing is."""
    found = "; ".join(item.because for item in held)
    return f"late records are held back, because their days can't be rebuilt or do not pass: {found}" if found else ""
