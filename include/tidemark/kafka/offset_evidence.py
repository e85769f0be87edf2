"""Classify offsets that have no archived row.

The evidence is what clients can read. A record that a read-uncommitted reader gets and a read-committed one does not
belongs to an aborted transaction. An offset inside the log without any record was compacted if the topic is compacted;
else it is a transaction marker if the log has transactions. Offsets that retention deleted can't be classified.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.core.hole_evidence import RANGES_MAX
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition
from tidemark.core.plan import Evidence
from tidemark.kafka.log_reader import NEAR_OFFSETS, Ints, LogReader
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import logs_of, topic_config

CHUNK_OFFSETS = 4_000_000  # read at once: 16 bytes each
_MOMENTS_MAX = 16
_SEARCHES_MAX = 48
_BEFORE = 100
_AFTER = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSample:
    """The number of some offsets, and the first of them as ranges."""

    number: int = 0
    ranges: OffsetSet = ()

    def plus(self, other: "OffsetSample") -> "OffsetSample":
        return OffsetSample(
            number=self.number + other.number, ranges=tuple(sorted([*self.ranges, *other.ranges]))[:RANGES_MAX]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFindings:
    """What was found at the requested offsets.

    ``aborted`` counts records of aborted transactions. ``silent`` offsets have no record for any reader. ``readable``
    ones have a committed record. ``unknown`` ones are no longer in Kafka. ``first`` is the lowest offset that was
    checked, None if none was.
    """

    first: int | None = None
    aborted: int = 0
    silent: OffsetSample = OffsetSample()
    readable: OffsetSample = OffsetSample()
    unknown: OffsetSample = OffsetSample()

    def plus(self, other: "OffsetFindings") -> "OffsetFindings":
        """Both, as one; ``other`` has higher offsets."""
        return OffsetFindings(
            first=other.first if self.first is None else self.first,
            aborted=self.aborted + other.aborted,
            silent=self.silent.plus(other.silent),
            readable=self.readable.plus(other.readable),
            unknown=self.unknown.plus(other.unknown),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GapCause:
    """The cause of a log's silent offsets, from ``from_offset`` on, which Kafka still held after the last check.

    ``cause`` is None without proof.
    """

    cause: str | None
    from_offset: int

    def evidence(self, findings: OffsetFindings, known: Evidence | None = None) -> Evidence:
        """The evidence on the requested offsets; they are the unexplained ones of the older evidence ``known``."""
        held = findings.first is not None and findings.first >= self.from_offset
        cause = self.cause if held else None
        silent = findings.silent.number
        left = findings.readable.plus(findings.unknown)
        if cause is None:
            left = left.plus(findings.silent)
        return Evidence(
            transactional=findings.aborted
            + (silent if cause == "transactional" else 0)
            + (known.transactional if known else 0),
            compacted=(silent if cause == "compacted" else 0) + (known.compacted if known else 0),
            unexplained=left.number,
            ranges=left.ranges,
        )


class OffsetClassifier:
    """Classifies offsets of one log. Requests come in offset order, and each continues where the last one ended."""

    def __init__(
        self, kafka: KafkaConnection, log: TopicPartition, progress: Callable[[int], None] | None = None
    ) -> None:
        self._kafka, self._log = kafka, log
        self._progress = progress
        self._open = ExitStack()
        self._committed: LogReader | None = None
        self._moments: list[int] = []
        self._latest_ms = 0
        self._aborted = self._silent = False

    def __enter__(self) -> Self:
        self._start, self._end = self._extent()
        self._all = self._reader(committed=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def classify(self, offsets: Iterable[OffsetRange]) -> OffsetFindings:
        """What Kafka has at these disjoint ranges in offset order."""
        findings = OffsetFindings()
        for window, chunk in _chunks(offsets):
            asked = np.concatenate([np.arange(item.start, item.end, dtype=np.int64) for item in chunk])
            held = OffsetRange(start=self._start, end=self._end).intersect(window) if self._start < self._end else None
            if held is None:
                findings = findings.plus(OffsetFindings(unknown=_sample(asked)))
                continue
            inside = (asked >= held.start) & (asked < held.end)
            outside = OffsetFindings(unknown=_sample(asked[~inside]))
            findings = findings.plus(outside).plus(self._check(asked[inside]))
        return findings

    def gap_cause(self, *, transactional: bool = False) -> GapCause:
        """The cause of the silent offsets; ``transactional`` if the log is known to have transactions."""
        policy = _policy(self._kafka, self._log.topic) if self._silent else None
        proven = transactional or self._aborted or (policy == "delete" and self._has_markers())
        start, end = self._extent()
        if start == end:  # the log was emptied or recreated: silent offsets prove nothing
            return GapCause(cause=None, from_offset=end)
        if policy is not None and "compact" in policy:
            return GapCause(cause="compacted", from_offset=start)
        return GapCause(cause="transactional" if proven and policy is not None else None, from_offset=start)

    def _check(self, asked: Ints) -> OffsetFindings:
        if not len(asked):
            return OffsetFindings()
        # The first time some records before, too: the search for a marker starts after their timestamps.
        first = int(asked[0]) if self._latest_ms else max(self._start, int(asked[0]) - _BEFORE)
        window = OffsetRange(start=first, end=int(asked[-1]) + 1)
        offsets, timestamps, seen = self._all.read(window)
        visible = np.isin(asked, offsets, assume_unique=True)
        aborted = visible.copy()
        if visible.any():
            first, last = int(asked[visible][0]), int(asked[visible][-1])
            aborted &= self._unseen(asked, OffsetRange(start=first, end=last + 1))
        silent = asked[~visible & (asked < seen)]
        if len(timestamps):
            # After the first silent offset, too: a later record with a wrong clock would hide all markers after it.
            for at in dict.fromkeys(silent[[0, -1]].tolist() if len(silent) else []):
                before = timestamps[: np.searchsorted(offsets, at)]
                self._moments.append(max(self._latest_ms, int(before.max(initial=0))) + 1)
            del self._moments[:-_MOMENTS_MAX]
            self._latest_ms = max(self._latest_ms, int(timestamps.max()))
        self._aborted |= bool(aborted.any())
        self._silent |= bool(len(silent))
        return OffsetFindings(
            first=int(asked[0]),
            aborted=int(aborted.sum()),
            silent=_sample(silent),
            readable=_sample(asked[visible & ~aborted]),
            unknown=_sample(asked[~visible & (asked >= seen)]),
        )

    def _has_markers(self) -> bool:
        """Whether the log has a transaction marker: a search by time finds markers, which no client gets.

        An aborted record counts too, because a marker follows it. The search starts just after the newest timestamp
        before a silent offset: the marker is the first entry there, unless an earlier record has a later timestamp.
        Then the search continues after that timestamp.
        """
        moments = deque(dict.fromkeys(reversed([*self._moments, self._latest_ms + 1])))
        for _ in range(_SEARCHES_MAX):
            if not moments:
                break
            found = self._all.first_at(moments.popleft())
            if found is None or not self._start <= found < self._end:
                continue
            window = OffsetRange(start=found, end=min(found + _AFTER, self._end))
            records, timestamps, seen = self._all.read(window)
            if (seen > found and found not in records) or self._unseen(records, window).any():
                return True
            if len(timestamps):
                moments.append(int(timestamps.max()) + 1)
        return False

    def _unseen(self, offsets: Ints, within: OffsetRange) -> npt.NDArray[np.bool_]:
        """Which of the offsets a read-committed reader does not get, as far as it can read."""
        if self._committed is None:
            self._committed = self._reader(committed=True)
        committed, _, reached = self._committed.read(within)
        return ~np.isin(offsets, committed, assume_unique=True) & (offsets < reached)

    def _reader(self, *, committed: bool) -> LogReader:
        return self._open.enter_context(LogReader(self._kafka, self._log, committed=committed, progress=self._progress))

    def _extent(self) -> tuple[int, int]:
        """What Kafka holds of this log, up to the last stable offset; nothing if the log was deleted or recreated."""
        if self._log not in logs_of(self._kafka, self._log.topic):
            return 0, 0
        (mark,) = watermarks(self._kafka, [self._log])
        return mark.log_start, mark.high_watermark


def _policy(kafka: KafkaConnection, topic: str) -> str | None:
    """The topic's cleanup.policy; None if Kafka does not answer: then silent offsets prove nothing."""
    try:
        return topic_config(kafka, topic)["cleanup.policy"]
    except ServiceError:
        return None


def _chunks(offsets: Iterable[OffsetRange]) -> Iterator[tuple[OffsetRange, list[OffsetRange]]]:
    """The ranges in groups of close ones, at most CHUNK_OFFSETS wide; larger ranges are split."""
    chunk: list[OffsetRange] = []
    for whole in offsets:
        for start in range(whole.start, whole.end, CHUNK_OFFSETS):
            item = OffsetRange(start=start, end=min(start + CHUNK_OFFSETS, whole.end))
            far = chunk and item.start - chunk[-1].end > NEAR_OFFSETS
            if far or (chunk and item.end - chunk[0].start > CHUNK_OFFSETS):
                yield OffsetRange(start=chunk[0].start, end=chunk[-1].end), chunk
                chunk = []
            chunk.append(item)
    if chunk:
        yield OffsetRange(start=chunk[0].start, end=chunk[-1].end), chunk


def _sample(offsets: Ints) -> OffsetSample:
    """The number and the first ranges of ascending offsets."""
    if not len(offsets):
        return OffsetSample()
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    starts = offsets[np.append([0], breaks + 1)][:RANGES_MAX].tolist()
    ends = offsets[np.append(breaks, len(offsets) - 1)][:RANGES_MAX].tolist()
    ranges = tuple(OffsetRange(start=start, end=end + 1) for start, end in zip(starts, ends, strict=True))
    return OffsetSample(number=len(offsets), ranges=ranges)
