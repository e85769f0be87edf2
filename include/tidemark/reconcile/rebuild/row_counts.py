"""How many rows a rebuild has read and written, and that none was lost or multiplied on the way."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date

from tidemark.core.errors import IncompleteError
from tidemark.core.offsets import TopicPartition, count
from tidemark.core.plan import Plan
from tidemark.reconcile.results import DayCounts, LogCounts, RebuildResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRead:
    """Rows that were read: per day and per log, each adding up to all of them."""

    days: Mapping[date, int]
    logs: Mapping[TopicPartition, int]


def day_counts(
    plan: Plan,
    read: RowsRead,
    published: Mapping[date | None, int],
    quarantined: Mapping[date | None, int],
    removed: Mapping[date, int],
) -> tuple[DayCounts, ...]:
    """The rows of each day of the plan; ``quarantined`` are all in the quarantine, with the ``removed`` duplicates."""
    return tuple(
        DayCounts(
            day=item.day,
            read=read.days[item.day],
            published=published.get(item.day, 0),
            quarantined=quarantined.get(item.day, 0) - removed.get(item.day, 0),
            duplicates_removed=removed.get(item.day, 0),
            duplicates_trimmed=item.archived_rows - read.days[item.day],
        )
        for item in plan.days
    )


def log_counts(plan: Plan, read: RowsRead) -> tuple[LogCounts, ...]:
    """The rows of each log, and the offsets of the ranges they came from."""
    used = {item.target.log: count(part.range for part in item.used) for item in plan.logs}
    return tuple(LogCounts(log=log, rows=rows, offsets=used.get(log, 0)) for log, rows in sorted(read.logs.items()))


def require_known_days(days: Collection[date], *written: Mapping[date | None, int]) -> None:
    """Raises IncompleteError for rows on a day that is not being rebuilt."""
    stray = sorted({str(day) for rows in written for day in rows if day not in days})
    if stray:
        raise IncompleteError(
            "rows came out on days that are not being rebuilt",
            expected=f"rows of {', '.join(map(str, days))}",
            found=f"rows of {', '.join(stray)}",
            hint="A transformation must leave event_time as it is; 'tidemark verify' shows whether an object has other"
            " rows than its manifest lists",
        )


def require_conserved(rebuilt: RebuildResult) -> None:
    """Raises IncompleteError, with its days, where rows were lost or multiplied on the way or in an object."""
    torn = [item for item in rebuilt.days if not item.conserved]
    if torn:
        raise IncompleteError(
            "rows are not conserved",
            expected=", ".join(f"{item.read} rows read" for item in torn),
            found=", ".join(
                f"{item.published} published + {item.quarantined} quarantined"
                f" + {item.duplicates_removed} removed as duplicates by key"
                for item in torn
            ),
            where=", ".join(str(item.day) for item in torn),
            hint="A transformation must return one row per row and mark those it does not want in 'reject';"
            " 'tidemark verify' shows whether an object has other rows than its manifest lists",
            days=tuple(item.day for item in torn),
        )
    for item in rebuilt.days:
        if item.duplicates_trimmed < 0:
            raise IncompleteError(
                "more rows were read than the manifests list",
                expected=f"at most {item.read + item.duplicates_trimmed}",
                found=item.read,
                where=str(item.day),
                hint="'tidemark verify' shows which object has other rows than its manifest lists",
                days=(item.day,),
            )
    for log in rebuilt.logs:
        if log.rows > log.offsets:
            raise IncompleteError(
                "more rows were read than the used ranges have offsets",
                expected=f"at most {log.offsets}",
                found=log.rows,
                where=str(log.log),
                hint="'tidemark verify' shows which object has an offset twice, or other rows than its manifest lists",
            )
