"""What ``tidemark status --json`` prints: the values that its views show."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from tidemark.core.day_summary import summarise
from tidemark.core.layout import Layout
from tidemark.inspect.status_rows import LayerRow, StreamRow

if TYPE_CHECKING:  # it loads pyiceberg
    from tidemark.tables.versions import Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """One version of a day. ``current``: readers see it. ``expired``: it can be neither read nor restored. ``approval``
    says who approved it, when and why.
    """

    version: int
    current: bool
    expired: bool
    reason: str | None
    rolled_back_to: int | None
    sealed_at: datetime
    run: str
    report: str
    seal: str
    rows_read: int
    published: int
    quarantined: int
    duplicates_removed: int
    added: int | None
    removed: int | None
    changed: int | None
    checks: str
    approval: str | None
    lost: int
    unexplained: int
    refilled: int
    snapshot_id: int | None
    quarantine_snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayVersions:
    """The versions of one day. ``unsealed`` is the run whose rows readers see, if no seal proves them."""

    stream: str
    day: date
    unsealed: str | None
    versions: tuple[VersionRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusResult:
    """``fine`` is null if the command could not find out. Of the others, the part that was asked for is filled."""

    fine: bool | None
    streams: tuple[StreamRow, ...] = ()
    layer: LayerRow | None = None
    day: DayVersions | None = None


def day_versions_row(found: "Versions", layout: Layout) -> DayVersions:
    """A day's versions as they are printed."""
    rows = []
    for item in found.versions:
        seal, difference, summary = item.seal, item.seal.difference, summarise(item.seal)
        rows.append(
            VersionRow(
                version=seal.version,
                current=item.published,
                expired=item.expired,
                reason=seal.reason,
                rolled_back_to=seal.rolled_back_to,
                sealed_at=datetime.fromtimestamp(seal.sealed_at_us // 1_000_000, UTC),
                run=seal.run,
                report=layout.run_key(seal.run, "report.html"),
                seal=layout.seal_key(seal.day, seal.version),
                rows_read=seal.rows_read,
                published=seal.rows_published,
                quarantined=seal.rows_quarantined,
                duplicates_removed=seal.rows_removed,
                added=difference.added if difference else None,
                removed=difference.removed if difference else None,
                changed=difference.changed if difference else None,
                checks=seal.quality,
                approval=str(seal.approval) if seal.approval else None,
                lost=summary.lost,
                unexplained=summary.unexplained,
                refilled=seal.refilled_offsets,
                snapshot_id=item.snapshot_id,
                quarantine_snapshot_id=item.quarantine_snapshot_id,
            )
        )
    unsealed = found.unsealed.run if found.unsealed else None
    return DayVersions(stream=found.stream, day=found.day, unsealed=unsealed, versions=tuple(rows))
