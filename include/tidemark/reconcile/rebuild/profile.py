"""Profiles of the days that a rebuild has written to its audit branches.

Two columns of the rows are read, and the reasons of the rejected ones. Only groups leave Spark: at most 97 of a day's
rows, and the most frequent reasons.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from tidemark.core.masking import MASK
from tidemark.core.text import excerpt
from tidemark.definitions.sections import FieldTime
from tidemark.definitions.stream import Stream
from tidemark.reconcile.day_profile import (
    EXAMPLES_MAX,
    LATE_BOUNDS_S,
    REASONS_MAX,
    DayProfile,
    HourRows,
    LateRows,
    RejectedRecord,
    RejectionReason,
)
from tidemark.tables.columns import DAY
from tidemark.tables.deduplicate import PLACE

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Every offset of a zone is a multiple of it since 1972.
_QUARTER = timedelta(minutes=15)
_QUARTER_US = _QUARTER // timedelta(microseconds=1)
_SECOND_US = 1_000_000
REASON_CHARACTERS = 300
_VALUE_CHARACTERS = 200


@dataclass(slots=True, kw_only=True)
class _Sums:
    """What is added up over the groups of one day."""

    published: Counter[int] = field(default_factory=Counter)
    quarantined: Counter[int] = field(default_factory=Counter)
    within: Counter[int] = field(default_factory=Counter)
    latest_us: int | None = None
    newest_us: int | None = None


def day_profiles(
    published: DataFrame, quarantine: DataFrame | None, days: Sequence[date], stream: Stream
) -> tuple[DayProfile, ...]:
    """The profile of each day; ``quarantine`` is None if it has no row of them."""
    late = isinstance(stream.event_time, FieldTime)
    sums: dict[date, _Sums] = {day: _Sums() for day in days}
    for group in _groups(published, days, late=late):
        own = sums[group[DAY]]
        _add(own, group, own.published, stream.zone, late=late)
        own.newest_us = group["newest"] if own.newest_us is None else max(own.newest_us, group["newest"])
    reasons: Mapping[date, list[RejectionReason]] = {}
    found: Mapping[date, int] = {}
    if quarantine is not None:
        for group in _groups(quarantine, days, late=late):
            _add(sums[group[DAY]], group, sums[group[DAY]].quarantined, stream.zone, late=late)
        rejected = quarantine.where(F.col(DAY).isin(list(days)) & F.col("kept_offset").isNull())
        reasons, found = _reasons(rejected, personal=stream.has_personal)
    return tuple(
        DayProfile(
            day=day,
            hours=_hours(sums[day]),
            newest_us=sums[day].newest_us,
            late=tuple(LateRows(within_s=bound, rows=sums[day].within[bound]) for bound in LATE_BOUNDS_S)
            if late
            else (),
            latest_s=None if (latest := sums[day].latest_us) is None else max(0, -(-latest // _SECOND_US)),
            reasons=tuple(reasons.get(day, ())),
            reasons_found=found.get(day, 0),
        )
        for day in days
    )


def _groups(rows: DataFrame, days: Sequence[date], *, late: bool) -> list[Row]:
    """Rows per day and quarter of an hour. By integers: Java's calendar costs more than all else here."""
    moment = F.unix_micros("_event_time")
    quarter = F.call_function("div", moment - F.pmod(moment, F.lit(_QUARTER_US)), F.lit(_QUARTER_US))
    counts = [F.count("*").alias("rows"), F.max(moment).alias("newest")]
    if late:
        after = F.unix_micros("_timestamp") - moment
        counts += [F.count_if(after <= bound * _SECOND_US).alias(f"within_{bound}") for bound in LATE_BOUNDS_S]
        counts.append(F.max(after).alias("latest"))
    return rows.where(F.col(DAY).isin(list(days))).groupBy(DAY, quarter.alias("quarter")).agg(*counts).collect()


def _add(sums: _Sums, group: Row, hours: Counter[int], zone: tzinfo, *, late: bool) -> None:
    """Add a group to the sums of its day, and its rows to one of their ``hours``."""
    hours[(_EPOCH + group["quarter"] * _QUARTER).astimezone(zone).hour] += group["rows"]
    if late:
        sums.within.update({bound: group[f"within_{bound}"] for bound in LATE_BOUNDS_S})
        seen = [item for item in (sums.latest_us, group["latest"]) if item is not None]
        sums.latest_us = max(seen, default=None)


def _hours(sums: _Sums) -> tuple[HourRows, ...]:
    hours = sorted(sums.published.keys() | sums.quarantined.keys())
    return tuple(
        HourRows(hour=hour, published=sums.published[hour], quarantined=sums.quarantined[hour]) for hour in hours
    )


def _reasons(rejected: DataFrame, *, personal: bool) -> tuple[Mapping[date, list[RejectionReason]], Mapping[date, int]]:
    """The most frequent reasons of each day with their first records, and the number of all reasons."""
    named = rejected.withColumn("reason", F.substring("reason", 1, REASON_CHARACTERS))
    of_day = Window.partitionBy(DAY)
    counted = named.groupBy(DAY, "reason").count()
    counted = counted.withColumn("found", F.count("*").over(of_day))
    rank = F.row_number().over(of_day.orderBy(F.desc("count"), "reason"))
    top = counted.withColumn("rank", rank).where(F.col("rank") <= REASONS_MAX).toArrow()
    frequent = sorted(top.to_pylist(), key=lambda row: (row[DAY], row["rank"]))
    if not frequent:
        return {}, {}
    wanted = rejected.sparkSession.createDataFrame(top.select([DAY, "reason"]))
    number = F.row_number().over(Window.partitionBy(DAY, "reason").orderBy(*PLACE))
    first = named.join(F.broadcast(wanted), on=[DAY, "reason"], how="left_semi").withColumn("number", number)
    examples: dict[tuple[date, str], list[RejectedRecord]] = defaultdict(list)
    start = F.substring("value", 1, 4 * _VALUE_CHARACTERS).alias("start")
    for row in first.where(F.col("number") <= EXAMPLES_MAX).select(DAY, "reason", *PLACE, start).collect():
        examples[row[DAY], row["reason"]].append(rejected_record(row, personal=personal))
    reasons: dict[date, list[RejectionReason]] = defaultdict(list)
    for row in frequent:
        own = sorted(examples[row[DAY], row["reason"]], key=lambda item: (item.topic_id, item.partition, item.offset))
        reasons[row[DAY]].append(RejectionReason(reason=row["reason"], rows=row["count"], examples=tuple(own)))
    return reasons, {row[DAY]: row["found"] for row in frequent}


def rejected_record(row: Row, *, personal: bool) -> RejectedRecord:
    """An example of a rejected record. It is the only place where a part of such a value leaves the tables.

    Of a stream with personal data no part of it does: any may be in it.
    """
    topic_id, partition, offset = (row[name] for name in PLACE)
    start = row["start"]
    if start is not None:
        start = MASK if personal else excerpt(bytes(start).decode("utf-8", "replace"), _VALUE_CHARACTERS)
    return RejectedRecord(topic_id=topic_id, partition=partition, offset=offset, value=start)
