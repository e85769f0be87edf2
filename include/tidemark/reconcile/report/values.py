"""The report of a run as values. Their JSON is the ``result`` of ``report.json`` and has a published schema."""

from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from tidemark.core.delivery import DayDelivery
from tidemark.core.plan import LateDay
from tidemark.core.seal import Difference
from tidemark.reconcile.audit.history import HourBand
from tidemark.reconcile.day_profile import DayProfile, RecoveredRows
from tidemark.reconcile.report.checks import CheckRow
from tidemark.reconcile.results import ApprovalFinding, ChangedRow, RetentionNote

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the run's days are complete, in a title and a few sentences."""

    status: Literal[
        "complete",
        "complete with losses",
        "complete with holes",
        "days held back",
        "unchanged",
        "waiting",
        "unfinished",
        "failed",
    ]
    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayUse:
    """Whether readers may use a day as the run leaves it.

    ``limited``: they may, if what ``because`` names does not matter to them. ``version`` is the one that they see; None
    if there is none.
    """

    day: date
    answer: Literal["yes", "limited", "no"]
    because: str
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBefore:
    """The counts of an earlier day, in its version that was the latest when the run ended."""

    day: date
    version: int
    read: int
    published: int
    quarantined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsChanged:
    """Rows that the version changes against the one before, with some of the changed ones."""

    added: int
    removed: int
    changed: int
    examples: tuple[ChangedRow, ...]

    @classmethod
    def of(cls, rows: Difference, examples: tuple[ChangedRow, ...]) -> "RowsChanged":
        """Of a difference between two versions."""
        return cls(added=rows.added, removed=rows.removed, changed=rows.changed, examples=examples)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayReport:
    """A day that the run rebuilds as ``version``. Counts are None if the rebuild was not reached or left the day out.

    ``held`` says why readers keep the version that they have. ``weekdays`` are the same weekdays before, and ``band``
    is by those of them with a profile. ``seal`` and ``seal_sha256`` are the key and digest of the run's seal, and
    ``certificate`` is the key of its certificate. ``delivery`` compares the live topic; None if nothing was compared.
    ``recovered`` is None if the version before had rejected nothing, or its quarantine can't be read.
    """

    day: date
    version: int
    reason: Literal["requested", "scheduled", "late", "unproven"]
    archived: int
    read: int | None
    published: int | None
    quarantined: int | None
    duplicates_removed: int | None
    duplicates_trimmed: int | None
    conserved: bool | None
    difference: RowsChanged | None
    held: str | None
    seal: str | None
    seal_sha256: str | None
    certificate: str | None
    delivery: DayDelivery | None
    profile: DayProfile | None
    recovered: RecoveredRows | None
    before: DayBefore | None
    weekdays: tuple[DayBefore, ...]
    band: tuple[HourBand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What is missing: ``number`` offsets, rows or days, where, since when, and who has to do what.

    ``who`` is None if nobody has to act.
    """

    what: str
    where: str
    number: int
    since: str
    who: str | None
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets from ``start`` to before ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedSpan:
    """Offsets that the proof uses of a range that batch ``batch`` of ``writer`` committed."""

    start: int
    end: int
    committed: Span
    writer: str
    batch: int
    last_batch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSpan:
    """Lost offsets, with the timestamps of the records around them in µs, and those in words."""

    start: int
    end: int
    topic_deleted: bool
    time: str
    before_us: int | None
    after_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapSpan:
    """Offsets that ``copies`` committed ranges hold."""

    start: int
    end: int
    copies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleSpan:
    """A used range in which ``missing`` offsets have no record: ``counts`` by cause, and the unexplained offsets."""

    start: int
    end: int
    missing: int
    cause: Literal["unexplained", "transactional", "compacted"]
    counts: dict[str, int]
    unexplained: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCounts:
    """Offsets of a log by their state. ``refilled_in_holes`` is a part of ``refilled``."""

    target: int
    used: int
    refilled: int
    refilled_in_holes: int
    lost: int
    unfilled: int
    pending: int
    overlapping: int
    holes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleCauses:
    """Offsets without a record, by cause."""

    transactional: int
    compacted: int
    unexplained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """What proves one log from offset ``start`` to before ``end``."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    log_start: int
    high_watermark: int
    deleted: bool
    used: tuple[UsedSpan, ...]
    refilled: tuple[Span, ...]
    lost: tuple[LostSpan, ...]
    unfilled: tuple[Span, ...]
    pending: tuple[Span, ...]
    overlaps: tuple[OverlapSpan, ...]
    holes: tuple[HoleSpan, ...]
    offsets: OffsetCounts
    causes: HoleCauses


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """A check's result on ``day``, or on all days of the run if that is None.

    ``newly``: it fails, and passed on the sealed day before. ``success`` None is unknown; it ``passes`` all the same
    if there are too few days to compare with yet.
    """

    day: date | None
    expectation: str
    kwargs: dict[str, Any]
    severity: Literal["critical", "warning"]
    built_in: bool
    about: str
    success: bool | None
    observed: Any
    exception: str | None
    examples: tuple[Any, ...]
    passes: bool
    newly: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DayDocument:
    """A document of a day. ``name`` is its file's, beside the report."""

    day: date
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The checks. ``history`` has the results of the newest day's checks on the sealed days before, too.

    ``data_docs`` are Great Expectations' pages of the days.
    """

    passed: bool | None
    note: str | None
    checks: tuple[CheckReport, ...]
    history: tuple[CheckRow, ...]
    data_docs: tuple[DayDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalReport:
    """Who decided what on which findings. ``at`` is an ISO text in UTC."""

    decision: Literal["approved", "rejected", "rebuild"]
    by: str
    at: str
    words: str
    findings: tuple[ApprovalFinding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenChain:
    """A manifest whose ``previous`` is not the digest of the one before it, in words as ``finding``."""

    writer: str
    batch: int
    after: int | None
    expected: str | None
    found: str | None
    finding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """The snapshots with the published rows; None if nothing was published."""

    snapshot_id: int | None
    quarantine_snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """How a step ended, and the key of its outcome. ``started_at`` is an ISO text in UTC."""

    name: str
    status: Literal["ok", "failed", "earlier attempt", "not needed", "not reached"]
    seconds: float | None
    error: str | None
    started_at: str | None
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A reconcile run for people.

    ``ended_at`` is when the last step before the report ended: an ISO text in UTC, None if no step ran. ``missing`` is
    what nobody has yet made up for, ``todo`` what to do now, the most urgent first. ``logs`` is the proof. ``html_key``
    is the key of the page. ``not_compared`` is why the live topic was not compared with the table.
    """

    format: int
    stream: str
    topic: str
    run: str
    time_zone: str
    ended_at: str | None
    verdict: Verdict
    use: tuple[DayUse, ...]
    days: tuple[DayReport, ...]
    unchanged: tuple[date, ...]
    ignored: tuple[LateDay, ...]
    missing: tuple[Missing, ...]
    not_compared: str | None
    reopen_days: int | None
    todo: tuple[str, ...]
    logs: tuple[LogReport, ...]
    broken_links: tuple[BrokenChain, ...]
    retention: RetentionNote | None
    hole_notes: tuple[str, ...]
    quality: Quality
    approval: ApprovalReport | None
    steps: tuple[StepReport, ...]
    snapshots: Snapshots
    notes: tuple[str, ...]
    html_key: str
