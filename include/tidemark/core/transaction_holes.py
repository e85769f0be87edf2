"""Holes that are proven transactional: transaction markers, and records of aborted transactions.

No copy can have rows of these offsets. On a topic with transactions every batch has such holes. Adjacent ranges with
them are joined, so that plans and seals do not grow with the number of batches.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark.core.manifest import REFILL
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Evidence, Hole, Used
from tidemark.core.seal import Seal


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpan:
    """The adjacent ranges of a stream's batches ``batch`` to ``last_batch``, in which every hole is transactional.

    Batches of a stream share no offset, so the range has no other batch of it.
    """

    range: OffsetRange
    batch: int
    last_batch: int


Spans = Mapping[TopicPartition, Mapping[str, Sequence[BatchSpan]]]  # by log and writer, in offset order


def joined(used: Sequence[Used], holes: Sequence[Hole]) -> tuple[tuple[Used, ...], tuple[Hole, ...]]:
    """Join the used ranges (in offset order) that form a ``BatchSpan``, and their holes.

    Ranges that are used in part, were refilled, or have a hole of another cause are not joined. Sequences of
    complete ranges are not joined either.
    """
    by_range = {hole.range: hole for hole in holes}
    groups: list[list[Used]] = []
    joinable = False
    for item in used:
        hole = by_range.get(item.range)
        joinable, before = _is_whole(item) and (hole is None or hole.is_transactional), joinable
        if joinable and before and _follows(groups[-1][-1], item):
            groups[-1].append(item)
        else:
            groups.append([item])
    ranges: list[Used] = []
    found: list[Hole] = []
    for group in groups:
        own = [hole for item in group if (hole := by_range.get(item.range)) is not None]
        if len(group) == 1 or not own:
            ranges += group
            found += own
        else:
            first, last = group[0], group[-1]
            whole = OffsetRange(start=first.range.start, end=last.range.end)
            ranges.append(replace(first, range=whole, committed=whole, last_batch=last.last))
            missing = sum(hole.missing for hole in own)
            found.append(Hole(range=whole, missing=missing, cause="transactional", evidence=_evidence(missing)))
    return tuple(ranges), tuple(found)


def spans(seals: Iterable[Seal]) -> Spans:
    """The longest spans that the seals prove."""
    found: dict[TopicPartition, dict[str, set[tuple[int, int, int, int]]]] = {}
    for seal in seals:
        for log in seal.logs:
            proven = {hole.range for hole in log.holes if hole.is_transactional}
            writers = found.setdefault(log.log, {})
            for used in log.used if proven else ():
                if used.range in proven and _is_whole(used):
                    span = (used.range.start, used.range.end, used.batch, used.last)
                    writers.setdefault(used.writer, set()).add(span)
    return {
        log: {writer: tuple(_united(sorted(items))) for writer, items in writers.items()}
        for log, writers in found.items()
    }


def known(used: Used, hole: Hole, of_writers: Mapping[str, Sequence[BatchSpan]]) -> Evidence | None:
    """The evidence on a used range's hole in the spans of its log; None if there is none."""
    of_writer = of_writers.get(used.writer, ())
    at = bisect_right(of_writer, used.range.start, key=lambda item: item.range.start)
    if not at or not hole.exact:
        return None
    span = of_writer[at - 1]
    inside = used.committed.start >= span.range.start and used.committed.end <= span.range.end
    if not inside or not span.batch <= used.batch <= used.last <= span.last_batch:
        return None
    return _evidence(hole.missing)


def _united(items: Iterable[tuple[int, int, int, int]]) -> Iterator[BatchSpan]:
    """Join spans that touch or overlap. They are sorted tuples (start, end, first batch, last batch)."""
    last: tuple[int, int, int, int] | None = None
    for item in items:
        if last is not None and item[0] <= last[1]:
            last = (last[0], max(last[1], item[1]), min(last[2], item[2]), max(last[3], item[3]))
            continue
        if last is not None:
            yield _span(*last)
        last = item
    if last is not None:
        yield _span(*last)


def _span(start: int, end: int, first: int, last: int) -> BatchSpan:
    return BatchSpan(range=OffsetRange(start=start, end=end), batch=first, last_batch=last)


def _is_whole(used: Used) -> bool:
    return used.range == used.committed and not used.writer.startswith(REFILL)


def _follows(before: Used, item: Used) -> bool:
    return item.writer == before.writer and item.batch > before.last and item.range.start == before.range.end


def _evidence(missing: int) -> Evidence:
    return Evidence(transactional=missing, compacted=0, unexplained=0, ranges=())
