"""Find the records of a day by their key.

Published tables have the transformation's columns, but not the source's key. So the archive is searched: three columns
of each object with rows of the day, without the values. A search ends at a number of records or after a time. Its
result then says where the next one continues. A damaged or missing object does not end a search: the result names it.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial, reduce
from time import monotonic
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.archive.ledger.ledger import read_archived
from tidemark.core.days import Span, day_spans
from tidemark.core.errors import ConflictError, FormatError, RequestError, ServiceError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import TopicPartition
from tidemark.core.seal import Seal
from tidemark.core.text import quoted
from tidemark.definitions.stream import load_stream
from tidemark.inspect.locate import Place, committed_batches
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.speed.headers import SOURCE_PATTERN
from tidemark.tables.seals import day_seals

KeyForm = Literal["text", "hex"]
RECORDS_MAX = 100
_COLUMNS = ("offset", "event_time", "key")
# All searches of a process share these, which bounds its memory and how busy its processor is.
_READERS = 4
_POOL = ThreadPoolExecutor(_READERS, thread_name_prefix="keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """A record with the key. ``in_version`` is None if its day is not sealed."""

    place: Place
    event_time: datetime
    in_version: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadObject:
    """A damaged or missing object with rows of the day. Its records may be missing from the result.

    - object: its key.
    - error: why it could not be read.
    """

    object: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecords:
    """The records of a key on a day, by topic, topic id, partition and offset; at most ``RECORDS_MAX``.

    ``seal`` is the day's newest. ``rows`` counts the day's rows that were searched, each copy, in ``objects`` objects.
    ``unread`` are further objects, of which not every row could be searched. ``newest_day`` is the archive's
    latest day. ``next`` is where the search continues: None if it has reached the end of the day. ``ended_by`` is why
    it stopped.
    """

    records: tuple[KeyRecord, ...]
    seal: Seal | None
    rows: int
    objects: int
    newest_day: date | None
    unread: tuple[UnreadObject, ...] = ()
    next: Place | None = None
    ended_by: Literal["records", "time"] | None = None


def parse_key(text: str, form: KeyForm) -> bytes:
    """The bytes of a key as a person gives it: its text in UTF-8, or its bytes in hexadecimal digits.

    Raises RequestError for text that is not in this form, and for an empty key.
    """
    try:
        key = text.encode() if form == "text" else bytes.fromhex(text)
    except ValueError as error:
        expected = "two hexadecimal digits for each byte, such as 6b31" if form == "hex" else "text in Unicode"
        raise RequestError("the key can't be understood", expected=expected, found=quoted(text)) from error
    if not key:
        raise RequestError("the key is empty", expected="at least one character", found="none")
    return key


def place_text(place: Place) -> str:
    """A place as people copy it: ``topic:topic id:partition:offset``, as in the header ``tidemark.source``."""
    log, offset = place
    return f"{log.topic}:{log.topic_id}:{log.partition}:{offset}"


def parse_place(text: str) -> Place:
    """The place that ``place_text`` wrote. Raises RequestError for another text."""
    found = re.fullmatch(SOURCE_PATTERN, text)
    if found is None:
        raise RequestError(
            "the place to continue from is not valid",
            expected="TOPIC:TOPIC_ID:PARTITION:OFFSET",
            found=quoted(text),
            hint="Copy what the last search printed after --from",
        )
    topic, topic_id, partition, offset = found.groups()
    return TopicPartition(topic=topic, topic_id=topic_id, partition=int(partition)), int(offset)


def find_key(
    settings: Settings, stream_name: str, day: date, key: bytes, *, start: Place | None = None, seconds: float
) -> KeyRecords:
    """Search the archive for the key's records of the day from ``start`` on, for about so many seconds.

    The time begins after the ledger has been read. Raises ServiceError if not one object could be read in that time,
    and what ``load_stream``, ``day_seals`` and ``read_archived`` raise.
    """
    stream = load_stream(stream_name, settings.streams_dir)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    seal = max(day_seals(store, layout, day), key=lambda item: item.version, default=None)
    history = read_archived(store, layout, stream).history()
    deadline = monotonic() + seconds
    files = history.files_of(day)
    if start is not None:
        files = [file for file in files if (file.log, file.last_offset) >= start]
    spans = day_spans(day, stream.zone)
    read = partial(_search, store, key=key, spans=spans, start=start, deadline=deadline)
    found: dict[Place, datetime] = {}
    unread: list[UnreadObject] = []
    rows = objects = 0
    stopped_at: Place | None = None
    for file, searched in zip(files, _in_order([partial(read, file) for file in files]), strict=True):
        first = file.log, file.first_offset
        if len(found) > RECORDS_MAX and first > sorted(found)[RECORDS_MAX]:
            break  # what follows is after the records to show
        if searched is None:
            stopped_at = first
            break
        found |= searched.found
        rows += searched.rows
        if searched.error is None:
            objects += 1
        else:
            unread.append(UnreadObject(object=file.key, error=str(searched.error)))
    if stopped_at is not None and stopped_at <= (start or (files[0].log, files[0].first_offset)):
        raise ServiceError(
            "the search took too long",
            expected=f"an object of {file.rows:,} rows within {seconds:g} s",
            found="a part of it",
            where=file.key,
            hint="Try again later, or run 'tidemark where', which has no time limit",
        )
    places = sorted(place for place in found if stopped_at is None or place < stopped_at)
    more = places[RECORDS_MAX] if len(places) > RECORDS_MAX else None
    return KeyRecords(
        records=tuple(
            KeyRecord(place=place, event_time=found[place], in_version=_is_in(seal, place))
            for place in places[:RECORDS_MAX]
        ),
        seal=seal,
        rows=rows,
        objects=objects,
        newest_day=max(filter(None, map(history.newest_day, history.extents())), default=None),
        unread=tuple(unread),
        next=more or stopped_at,
        ended_by="records" if more else "time" if stopped_at else None,
    )


def _is_in(seal: Seal | None, place: Place) -> bool | None:
    if seal is None:
        return None
    sealed = seal.log(place[0])
    return sealed is not None and sealed.use_of(place[1]) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """The key's first records of an object, at most one more than are shown, and the day's rows up to the last one.

    After ``error`` no further row of the object could be read.
    """

    found: dict[Place, datetime]
    rows: int
    error: TidemarkError | None = None


def _search(
    store: ObjectStore, file: DataFile, *, key: bytes, spans: Sequence[Span], start: Place | None, deadline: float
) -> _Searched | None:
    """The key's records in one object; None after the deadline."""
    if monotonic() > deadline:
        return None
    wanted, first = pa.scalar(key, pa.binary()), start[1] if start and start[0] == file.log else 0
    found: dict[Place, datetime] = {}
    rows = 0
    try:
        for batch in committed_batches(store, file, _COLUMNS):
            if monotonic() > deadline:
                return None
            of_day = batch.filter(
                pc.and_(_within(batch["event_time"], spans), pc.greater_equal(batch["offset"], first))
            )
            rows += of_day.num_rows
            own = of_day.filter(pc.equal(of_day["key"], wanted)).slice(0, RECORDS_MAX + 1 - len(found))
            found |= {
                (file.log, offset): moment
                for offset, moment in zip(own["offset"].to_pylist(), own["event_time"].to_pylist(), strict=True)
            }
            if len(found) > RECORDS_MAX:
                break
    except (FormatError, ConflictError) as error:
        return _Searched(found=found, rows=rows, error=error)
    return _Searched(found=found, rows=rows)


def _within(times: pa.Array, spans: Sequence[Span]) -> pa.Array:
    """Which of the times are in one of the spans."""
    inside = [
        pc.and_(
            pc.greater_equal(times, pa.scalar(first, times.type)),
            pc.less(times, pa.scalar(end, times.type)),
        )
        for first, end in spans
    ]
    return reduce(pc.or_, inside, pa.repeat(False, len(times)))


def _in_order(jobs: Iterable[Callable[[], _Searched | None]]) -> Iterator[_Searched | None]:
    """The results in the jobs' order. No more jobs wait in the pool than it has threads, for the sake of others."""
    waiting: deque[Future[_Searched | None]] = deque()
    for job in jobs:
        waiting.append(_POOL.submit(job))
        if len(waiting) >= _READERS:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
