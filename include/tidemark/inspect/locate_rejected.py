"""Search a day's quarantine by reason: how often each one occurs, and the first records of it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.core.errors import ConflictError, RequestError
from tidemark.core.layout import Layout
from tidemark.core.seal import Seal
from tidemark.core.text import cut
from tidemark.definitions.stream import Stream, load_stream
from tidemark.inspect.locate_key import RECORDS_MAX
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.catalogs import QUESTION
from tidemark.tables.reader import KEPT, load_table, pyiceberg_errors
from tidemark.tables.seals import day_seals
from tidemark.tables.snapshots import quarantined_at

REASONS_MAX = 20
_REASON_CHARACTERS = 300
_ORDER = [("_topic_id", "ascending"), ("_kafka_partition", "ascending"), ("_offset", "ascending")]
_COLUMNS = (*(name for name, _ in _ORDER), "_event_time", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """A reason.

    - reason: the text, its first 300 characters.
    - rows: number of records that were rejected for it.
    """

    reason: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedPlace:
    """A rejected record.

    - topic_id: id of its topic.
    - partition: its partition.
    - offset: its offset.
    - event_time: its event time.
    - reason: why it was rejected, the first 300 characters.
    """

    topic_id: str
    partition: int
    offset: int
    event_time: datetime | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRecords:
    """The rejected records of a day, in its newest version.

    - stream: name of the stream.
    - day: the day.
    - version: its newest version.
    - rejected: number of its rejected records, with any reason.
    - rows: number of those whose reason has the text that was searched for. Without such a text, all of them.
    - reasons: the 20 most frequent reasons of these.
    - reasons_found: number of their reasons.
    - records: the first 100 of them, by topic id, partition and offset.
    """

    stream: str
    day: date
    version: int
    rejected: int
    rows: int
    reasons: tuple[ReasonCount, ...]
    reasons_found: int
    records: tuple[RejectedPlace, ...]


def find_rejected(settings: Settings, stream_name: str, day: date, text: str | None = None) -> RejectedRecords:
    """Search the day's quarantine for reasons that have the text, in any case.

    Raises RequestError for an unknown stream or a day that is not sealed, ConflictError if the rows have expired, and
    what ``pyiceberg_errors`` raises.
    """
    stream = load_stream(stream_name, settings.streams_dir)
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    seals = day_seals(ObjectStore(settings), layout, day)
    if not seals:
        raise RequestError(
            "the day is not sealed",
            expected=f"an object below {layout.seal_prefix}{day}/",
            found="none",
            where=f"stream {stream.name}",
            hint="A reconcile run seals it. Before that, only the run's report shows what was rejected",
        )
    seal = seals[-1]
    counts: Counter[str] = Counter()
    first: pa.Table | None = None
    for batch in _rejected(settings, stream, seal) if seal.rows_quarantined else ():
        found = batch.filter(pc.match_substring(batch["reason"], text, ignore_case=True)) if text else batch
        for item in pc.value_counts(found["reason"]).to_pylist():
            counts[cut(item["values"], _REASON_CHARACTERS)] += item["counts"]
        first = found if first is None else pa.concat_tables([first, found])
        first = first.sort_by(_ORDER).slice(0, RECORDS_MAX)
    return RejectedRecords(
        stream=stream.name,
        day=day,
        version=seal.version,
        rejected=seal.rows_quarantined,
        rows=counts.total(),
        reasons=tuple(
            ReasonCount(reason=reason, rows=rows)
            for reason, rows in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:REASONS_MAX]
        ),
        reasons_found=len(counts),
        records=tuple(map(_record, first.to_pylist() if first is not None else ())),
    )


def _rejected(settings: Settings, stream: Stream, seal: Seal) -> Iterator[pa.Table]:
    """The version's rejected rows in batches, whose memory has a bound."""
    table = load_table(settings, stream.quarantine_table, QUESTION)
    snapshot = quarantined_at(table, seal)
    if table is None or snapshot is None or table.snapshot_by_id(snapshot) is None:
        raise ConflictError(
            "the quarantined rows of the version have expired",
            expected=f"snapshot {seal.quarantine_snapshot_id}",
            found="no such snapshot",
            where=f"table {stream.quarantine_table}",
            hint="A run with force rebuilds the day from the archive",
        )
    scan = table.scan(row_filter=f"_day = '{seal.day}' AND {KEPT[-1]} IS NULL", snapshot_id=snapshot)
    with pyiceberg_errors(stream.quarantine_table):
        for batch in scan.select(*_COLUMNS).to_arrow_batch_reader():
            yield pa.Table.from_batches([batch])


def _record(row: dict[str, Any]) -> RejectedPlace:
    return RejectedPlace(
        topic_id=row["_topic_id"],
        partition=row["_kafka_partition"],
        offset=row["_offset"],
        event_time=row["_event_time"],
        reason=cut(row["reason"], _REASON_CHARACTERS),
    )
