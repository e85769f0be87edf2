"""The demo's statements, checked without the code that they are about.

The expected rows are read from the source file with pandas in UTC, not with the code that made the events. The
published tables are read with pyiceberg, the output topics with a plain consumer.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as KafkaPartition
from pyiceberg.table import Table

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.core.offsets import count
from tidemark.core.plan import Plan
from tidemark.definitions.stream import Stream
from tidemark.demo.damage import Loss
from tidemark.demo.produce import Sent
from tidemark.demo.source import DAYS, ZONE, source_file
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.reconcile.results import RebuildResult, RefillRange
from tidemark.settings import Settings
from tidemark.tables.reader import load_table

COLUMNS = (
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "scheduled_at",
    "departed_at",
    "dep_delay_minutes",
    "arr_delay_minutes",
    "air_time_minutes",
    "distance_miles",
    "status",
)
LATE_MINUTES, VERY_LATE_MINUTES = 15, 60
READ_S = 1.0
Place = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement, whether it is true, and both sides of it."""

    claim: str
    holds: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTopic:
    """The source places of an output topic's records; ``records`` counts duplicates too."""

    records: int
    places: frozenset[Place]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """The tables' rows: the published ones with their day, and the source places of all rows."""

    rows: Counter[tuple[Any, ...]]
    places: tuple[Place, ...]
    quarantined: tuple[Place, ...]


def expected_rows() -> Counter[tuple[Any, ...]]:
    """Day and columns of every departure of the days, from the source file."""
    table = pd.read_csv(source_file(), low_memory=False)
    scheduled = pd.to_datetime(table["time_hour"], utc=True) + pd.to_timedelta(table["minute"], unit="min")
    departed = scheduled + pd.to_timedelta(table["dep_delay"], unit="min")
    moment = departed.where(departed.notna(), scheduled)
    day = moment.dt.tz_convert(str(ZONE)).dt.date
    status = pd.Series("on time", index=table.index)
    status[table["dep_delay"] > LATE_MINUTES] = "late"
    status[table["dep_delay"] > VERY_LATE_MINUTES] = "very late"
    status[departed.isna()] = "cancelled"
    minutes = {"dep_delay": "dep_delay_minutes", "arr_delay": "arr_delay_minutes", "air_time": "air_time_minutes"}
    frame = table.rename(columns=minutes).assign(
        day=day,
        scheduled_at=scheduled,
        departed_at=departed,
        distance_miles=table["distance"].astype(float),
        status=status,
    )
    found = frame.loc[frame["day"].isin(DAYS), ["day", *COLUMNS]].astype(object)
    rows = found.where(found.notna(), None).itertuples(index=False, name=None)
    return Counter(tuple(map(_plain, row)) for row in rows)


def published(settings: Settings, stream: Stream) -> TableRows:
    """The rows that readers of the tables see."""
    rows = _load(settings, stream.table).scan().to_arrow().to_pylist()
    quarantine = _load(settings, stream.quarantine_table).scan().to_arrow().to_pylist()
    return TableRows(
        rows=Counter((row["_day"], *(row[name] for name in COLUMNS)) for row in rows),
        places=tuple((row["_kafka_partition"], row["_offset"]) for row in rows),
        quarantined=tuple((row["_kafka_partition"], row["_offset"]) for row in quarantine),
    )


def read_topic(kafka: KafkaConnection, topic: str, check: Callable[[], None]) -> OutputTopic:
    """Every record of an output topic up to its current end; calls ``check`` while reading."""
    ends = {mark.log.partition: mark.high_watermark for mark in watermarks(kafka, describe_topic(kafka, topic))}
    consumer = Consumer(
        kafka.client(
            {
                "group.id": "tidemark-demo",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
    )
    records, places = 0, set()
    waiting = {partition for partition, end in ends.items() if end > 0}
    try:
        consumer.assign([KafkaPartition(topic, partition, 0) for partition in waiting])
        while waiting:
            check()
            for message in consumer.consume(num_messages=1000, timeout=READ_S):
                if message.error() is not None:
                    raise ServiceError("cannot read a topic", found=message.error(), where=topic)
                places.add(_source(message))
                records += 1
                # Neither is None in a message without an error.
                partition, offset = message.partition() or 0, message.offset() or 0
                if offset + 1 >= ends[partition]:
                    waiting.discard(partition)
    finally:
        consumer.close()
    return OutputTopic(records=records, places=frozenset(places))


def findings(
    *,
    sent: Sequence[Sent],
    expected: Counter[tuple[Any, ...]],
    found: TableRows,
    live: OutputTopic,
    dead: OutputTopic,
    loss: Loss,
    refill: Sequence[RefillRange],
    final: Plan,
    rebuilt: RebuildResult,
) -> tuple[Statement, ...]:
    """Every statement the demo makes, from what was sent, what readers find, and the run's results."""
    good = {(item.partition, item.offset) for item in sent if not item.event.malformed}
    bad = {(item.partition, item.offset) for item in sent if item.event.malformed}
    distinct, quarantined = set(found.places), set(found.quarantined)
    trimmed = sum(item.duplicates_trimmed for item in rebuilt.days)
    refilled = {(item.log.partition, item.range.start, item.range.end) for item in refill}
    lost = {(partition, gap.start, gap.end) for partition, ranges in loss.gaps.items() for gap in ranges}
    left = [gap for log in final.logs for gap in log.gaps]
    return (
        Statement(
            claim="records produced = distinct records published + quarantined",
            holds=len(sent) == len(distinct) + len(quarantined) and distinct == good and quarantined == bad,
            detail=f"{len(sent)} = {len(distinct)} + {len(quarantined)}",
        ),
        Statement(
            claim="no record is published twice",
            holds=len(found.places) == len(distinct) and len(found.quarantined) == len(quarantined),
            detail=f"{len(found.places) + len(found.quarantined)} rows, {len(distinct | quarantined)} places",
        ),
        Statement(claim="duplicates were trimmed", holds=trimmed > 0, detail=f"{trimmed} archived copies left out"),
        Statement(
            claim="the gap was refilled, exactly",
            holds=refilled == lost and bool(lost) and not left,
            detail=f"{loss.offsets} offsets lost, {sum(end - start for _, start, end in refilled)} refilled, "
            f"{len(left)} gaps left",
        ),
        Statement(
            claim="published rows = departures in the source file, counted independently",
            holds=found.rows.total() == expected.total() > 0,
            detail=f"{found.rows.total()} = {expected.total()}",
        ),
        values_statement(found, expected),
        *topic_statements(good, live, bad, dead),
    )


def values_statement(found: TableRows, expected: Counter[tuple[Any, ...]]) -> Statement:
    """Whether the published rows are those of the source file."""
    return Statement(
        claim="every published value equals the source file's",
        holds=found.rows == expected,
        detail=f"{(found.rows - expected).total()} rows too many, {(expected - found.rows).total()} missing",
    )


def topic_statements(
    good: set[Place], live: OutputTopic, bad: set[Place], dead: OutputTopic
) -> tuple[Statement, Statement]:
    """Whether the live topic has the good records, and the dead-letter topic the bad ones."""
    return (
        Statement(
            claim="the live topic has every good record",
            holds=live.places == good,
            detail=f"{len(live.places)} of {len(good)}, and {live.records - len(live.places)} duplicates",
        ),
        Statement(
            claim="the dead-letter topic has every malformed record",
            holds=dead.places == bad,
            detail=f"{len(dead.places)} of {len(bad)}, and {dead.records - len(dead.places)} duplicates",
        ),
    )


def gap_text(loss: Loss) -> str:
    """The lost ranges as text."""
    return "; ".join(
        f"partition {partition} {', '.join(map(str, ranges))} ({count(ranges)} records)"
        for partition, ranges in sorted(loss.gaps.items())
    )


def _source(message: Message) -> Place:
    """The place of an output record's source record."""
    headers: dict[str, Any] = dict(message.headers() or ())
    _topic, _topic_id, partition, offset = headers["tidemark.source"].decode().split(":")
    return int(partition), int(offset)


def _load(settings: Settings, name: str) -> Table:
    table = load_table(settings, name)
    if table is None:
        raise ServiceError("the catalog has no such table", found=name, where=f"catalog {settings.catalog}")
    return table


def _plain(value: Any) -> Any:
    """A pandas timestamp as a Python datetime."""
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value
