"""What Kafka has to say of offsets that no archived row stands for.

The evidence is what clients can see. A record that a read-uncommitted reader is given and a read-committed one is not
belongs to an aborted transaction. An offset that nobody is given a record of, although the log reaches over it, was
compacted if the topic is; else it is a transaction's marker, if there are transactions in the log. What retention took
can't be asked any more.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

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
_BEHIND = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSample:
    """Offsets by their number, with the first of them as ranges."""

    number: int = 0
    ranges: OffsetSet = ()

    def plus(self, other: "OffsetSample") -> "OffsetSample":
        """Both, as one."""
        return OffsetSample(
            number=self.number + other.number, ranges=tuple(sorted([*self.ranges, *other.ranges]))[:RANGES_MAX]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFindings:
    """Of the offsets asked for: records of ``aborted`` transactions; ``silent`` ones, where nobody is given a record;
    ``readable`` ones, which hold a committed record; and ``unknown`` ones, which Kafka does not hold any more.

    ``first`` is the lowest offset that was looked at, None where none was.
    """

    first: int | None = None
    aborted: int = 0
    silent: OffsetSample = OffsetSample()
    readable: OffsetSample = OffsetSample()
    unknown: OffsetSample = OffsetSample()

    def plus(self, other: "OffsetFindings") -> "OffsetFindings":
        """Both, as one; ``other`` is of higher offsets."""
        return OffsetFindings(
            first=other.first if self.first is None else self.first,
            aborted=self.aborted + other.aborted,
            silent=self.silent.plus(other.silent),
            readable=self.readable.plus(other.readable),
            unknown=self.unknown.plus(other.unknown),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GapCause:
    """What the silent offsets of a log are: those looked at from ``from_offset`` on, which was still held behind the
    last look. ``cause`` is None where there is no proof of either."""

    cause: str | None
    from_offset: int

    def evidence(self, told: OffsetFindings, known: Evidence | None = None) -> Evidence:
        """The verdict on offsets asked for; ``known`` is older evidence, of whose unexplained offsets it was asked."""
        held = told.first is not None and told.first >= self.from_offset
        cause = self.cause if held else None
        silent = told.silent.number
        left = told.readable.plus(told.unknown)
        if cause is None:
            left = left.plus(told.silent)
        return Evidence(
            transactional=told.aborted
            + (silent if cause == "transactional" else 0)
            + (known.transactional if known else 0),
            compacted=(silent if cause == "compacted" else 0) + (known.compacted if known else 0),
            unexplained=left.number,
            ranges=left.ranges,
        )


class OffsetClassifier:
    """Questions about one log, asked in offset order: each pass reads on where the last question ended."""

    def __init__(self, bootstrap: str, log: TopicPartition, progress: Callable[[int], None] | None = None) -> None:
        self._bootstrap, self._log = bootstrap, log
        self._progress = progress
        self._open = ExitStack()
        self._committed: LogReader | None = None
        self._moments: list[int] = []
        self._latest_ms = 0
        self._aborted = self._silent = False

    def __enter__(self) -> Self:
        """Raises ServiceError where Kafka does not tell where the log starts."""
        self._start, self._end = self._extent()
        self._all = self._reader(committed=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def classify(self, offsets: Iterable[OffsetRange]) -> OffsetFindings:
        """What Kafka tells of them; they are disjoint and in order. Raises ServiceError where it fails to."""
        told = OffsetFindings()
        for window, piece in _pieces(offsets):
            asked = np.concatenate([np.arange(item.start, item.end, dtype=np.int64) for item in piece])
            held = OffsetRange(start=self._start, end=self._end).intersect(window) if self._start < self._end else None
            if held is None:
                told = told.plus(OffsetFindings(unknown=_some(asked)))
                continue
            inside = (asked >= held.start) & (asked < held.end)
            told = told.plus(OffsetFindings(unknown=_some(asked[~inside]))).plus(self._look(asked[inside]))
        return told

    def gap_cause(self, *, transactional: bool = False) -> GapCause:
        """What the silent offsets are; ``transactional`` where it is known already that the log has transactions."""
        policy = _policy(self._bootstrap, self._log.topic) if self._silent else None
        proven = transactional or self._aborted or (policy == "delete" and self._has_markers())
        start, end = self._extent()
        if start == end:  # it was emptied, or is another log by now: its silence says nothing
            return GapCause(cause=None, from_offset=end)
        if policy is not None and "compact" in policy:
            return GapCause(cause="compacted", from_offset=start)
        return GapCause(cause="transactional" if proven and policy is not None else None, from_offset=start)

    def _look(self, asked: Ints) -> OffsetFindings:
        if not len(asked):
            return OffsetFindings()
        # The first time some records in front as well: behind their moment a marker is looked for.
        first = int(asked[0]) if self._latest_ms else max(self._start, int(asked[0]) - _BEFORE)
        window = OffsetRange(start=first, end=int(asked[-1]) + 1)
        offsets, stamps, seen = self._all.read(window)
        visible = np.isin(asked, offsets, assume_unique=True)
        aborted = visible.copy()
        if visible.any():
            first, last = int(asked[visible][0]), int(asked[visible][-1])
            aborted &= self._unseen(asked, OffsetRange(start=first, end=last + 1))
        silent = asked[~visible & (asked < seen)]
        if len(stamps):
            # Behind the first one, too: a stamp of a wrong clock in between outdoes all markers behind it.
            for at in dict.fromkeys(silent[[0, -1]].tolist() if len(silent) else []):
                before = stamps[: np.searchsorted(offsets, at)]
                self._moments.append(max(self._latest_ms, int(before.max(initial=0))) + 1)
            del self._moments[:-_MOMENTS_MAX]
            self._latest_ms = max(self._latest_ms, int(stamps.max()))
        self._aborted |= bool(aborted.any())
        self._silent |= bool(len(silent))
        return OffsetFindings(
            first=int(asked[0]),
            aborted=int(aborted.sum()),
            silent=_some(silent),
            readable=_some(asked[visible & ~aborted]),
            unknown=_some(asked[~visible & (asked >= seen)]),
        )

    def _has_markers(self) -> bool:
        """Whether the log has an entry that no client is given: only markers are such, and a search by time finds them.
        An aborted record is followed by one, too.

        The moments asked for are just behind the newest record before a silent offset: there the marker is the first,
        unless a record in front of it is stamped later still. Then the search goes on behind that one's moment.
        """
        moments = deque(dict.fromkeys(reversed([*self._moments, self._latest_ms + 1])))
        for _ in range(_SEARCHES_MAX):
            if not moments:
                break
            found = self._all.first_at(moments.popleft())
            if found is None or not self._start <= found < self._end:
                continue
            window = OffsetRange(start=found, end=min(found + _BEHIND, self._end))
            records, stamps, seen = self._all.read(window)
            if (seen > found and found not in records) or self._unseen(records, window).any():
                return True
            if len(stamps):
                moments.append(int(stamps.max()) + 1)
        return False

    def _unseen(self, offsets: Ints, within: OffsetRange) -> npt.NDArray[np.bool_]:
        """Which of the offsets no read-committed reader is given, as far as it is given any."""
        if self._committed is None:
            self._committed = self._reader(committed=True)
        committed, _, reached = self._committed.read(within)
        return ~np.isin(offsets, committed, assume_unique=True) & (offsets < reached)

    def _reader(self, *, committed: bool) -> LogReader:
        return self._open.enter_context(
            LogReader(self._bootstrap, self._log, committed=committed, progress=self._progress)
        )

    def _extent(self) -> tuple[int, int]:
        """What Kafka holds of this very log, up to the last stable offset; nothing of one that is gone."""
        if self._log not in logs_of(self._bootstrap, self._log.topic):
            return 0, 0
        (mark,) = watermarks(self._bootstrap, [self._log])
        return mark.log_start, mark.high_watermark


def _policy(bootstrap: str, topic: str) -> str | None:
    """The topic's cleanup.policy; None where Kafka does not tell: then nothing is concluded from silence."""
    try:
        return topic_config(bootstrap, topic)["cleanup.policy"]
    except ServiceError:
        return None


def _pieces(offsets: Iterable[OffsetRange]) -> Iterator[tuple[OffsetRange, list[OffsetRange]]]:
    """The ranges in groups that lie close together, and none wider than a piece; larger ranges are cut."""
    piece: list[OffsetRange] = []
    for whole in offsets:
        for start in range(whole.start, whole.end, CHUNK_OFFSETS):
            item = OffsetRange(start=start, end=min(start + CHUNK_OFFSETS, whole.end))
            far = piece and item.start - piece[-1].end > NEAR_OFFSETS
            if far or (piece and item.end - piece[0].start > CHUNK_OFFSETS):
                yield OffsetRange(start=piece[0].start, end=piece[-1].end), piece
                piece = []
            piece.append(item)
    if piece:
        yield OffsetRange(start=piece[0].start, end=piece[-1].end), piece


def _some(offsets: Ints) -> OffsetSample:
    """Ascending offsets by number and first ranges."""
    if not len(offsets):
        return OffsetSample()
    cuts = np.flatnonzero(np.diff(offsets) > 1)
    starts = offsets[np.append([0], cuts + 1)][:RANGES_MAX].tolist()
    ends = offsets[np.append(cuts, len(offsets) - 1)][:RANGES_MAX].tolist()
    ranges = tuple(OffsetRange(start=start, end=end + 1) for start, end in zip(starts, ends, strict=True))
    return OffsetSample(number=len(offsets), ranges=ranges)
