"""Summaries of seals: what a list of days shows of each version. One object per month has them, and proves nothing."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Literal
from zoneinfo import ZoneInfo

from tidemark.core.codec import decode, encode, require_format
from tidemark.core.errors import FormatError
from tidemark.core.manifest import canonical_json
from tidemark.core.offsets import count
from tidemark.core.plan import Gap, Reason
from tidemark.core.seal import Difference, Seal

FORMAT = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySummary:
    """One version of a day, as its seal says.

    ``lost`` and ``unexplained`` count offsets of whole logs, as a seal does. ``lost_of_day`` counts only the lost
    offsets that may be of this day by the timestamps of the records around them. With one such record known, its day
    decides.
    ``approved_by`` is the person who approved the version, None if nobody had to.
    """

    day: date
    version: int
    run: str
    sealed_at_us: int
    reason: Reason | None
    quality: Literal["passed", "warnings", "unchecked"]
    rows_read: int
    published: int
    quarantined: int
    removed: int
    lost: int
    lost_of_day: int
    unexplained: int
    refilled: int
    difference: Difference | None
    rolled_back_to: int | None
    approved_by: str | None
    snapshot_id: int | None

    @property
    def sealed_at(self) -> datetime:
        """When the seal was written, in UTC."""
        return _EPOCH + timedelta(microseconds=self.sealed_at_us)


def summarise(seal: Seal) -> DaySummary:
    """The summary of a seal."""
    gaps = [gap for item in seal.logs for gap in item.gaps]
    zone = ZoneInfo(seal.time_zone)
    return DaySummary(
        day=seal.day,
        version=seal.version,
        run=seal.run,
        sealed_at_us=seal.sealed_at_us,
        reason=seal.reason,
        quality=seal.quality,
        rows_read=seal.rows_read,
        published=seal.rows_published,
        quarantined=seal.rows_quarantined,
        removed=seal.rows_removed,
        lost=count([*(gap.range for gap in gaps), *(lost.range for lost in seal.truncated)]),
        lost_of_day=count(gap.range for gap in gaps if may_be_of(gap, seal.day, zone)),
        unexplained=sum(hole.counts["unexplained"] for item in seal.logs for hole in item.holes),
        refilled=seal.refilled_offsets,
        difference=seal.difference,
        rolled_back_to=seal.rolled_back_to,
        approved_by=seal.approval.by if seal.approval else None,
        snapshot_id=seal.snapshot_id,
    )


def may_be_of(gap: Gap, day: date, zone: tzinfo) -> bool:
    """Whether lost offsets may be of the day, by the timestamps of the records around them."""
    found = gap.neighbours
    before, after = (_day(found.before_us, zone), _day(found.after_us, zone)) if found else (None, None)
    days = [item for item in (before, after) if item is not None]
    return bool(days) and min(days) <= day <= max(days)


def _day(time_us: int | None, zone: tzinfo) -> date | None:
    try:
        return None if time_us is None else (_EPOCH + timedelta(microseconds=time_us)).astimezone(zone).date()
    except OverflowError:  # a timestamp in a wrong unit
        return None


def latest_summaries(summaries: Iterable[DaySummary]) -> dict[date, DaySummary]:
    """The highest version of each day, in the order of the days."""
    return {item.day: item for item in sorted(summaries, key=lambda item: (item.day, item.version))}


def month_json(summaries: Iterable[DaySummary]) -> bytes:
    """Canonical bytes of a month's summaries; ``parse_month`` reads them back."""
    return canonical_json({"format": FORMAT, "days": [encode(item) for item in summaries]})


def parse_month(body: bytes, *, where: str) -> tuple[DaySummary, ...]:
    """The summaries in ``body``. Raises FormatError, with ``where``, for anything else."""
    try:
        raw: Any = json.loads(body)
        form, days = raw["format"], raw["days"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "a month's summaries do not parse",
            expected=f"format {FORMAT}",
            found=repr(error),
            where=where,
            hint="Delete the object: the next run writes it again from the seals",
        ) from error
    require_format("unknown format of a month's summaries", form, known=FORMAT, where=where)
    return decode(tuple[DaySummary, ...], days, where=where)
