"""Evidence on a plan's holes, gathered when a run is planned and settled: from Kafka, and from earlier looks.

A hole that an earlier seal has evidence on is not looked at again, be it for itself or as part of a span that is
settled, nor one by step ``settled`` that step ``plan`` has looked at. So the cost is that of what is new: manifests and
offset columns of the ranges with new holes, and one or two passes over these ranges in Kafka.
"""

import logging
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tidemark.core.errors import FormatError, PositionError, ServiceError
from tidemark.core.manifest import DataFile, parse_manifest
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, count, normalise
from tidemark.core.plan import Evidence, Hole, LogPlan, Plan, Used
from tidemark.core.seal import Seal, SealedLog
from tidemark.core.transaction_holes import Spans, known, spans
from tidemark.kafka.offset_evidence import RANGES_MAX, Inquiry, Told
from tidemark.objects.bits import OffsetBits
from tidemark.objects.columns import archived_offsets
from tidemark.run import Run

LIMIT_S = 900.0  # of a step that may take half an hour
_AT_ONCE = 64
_OFFSETS_AT_ONCE = 200_000_000  # a bit each
_THREADS = 8
_PROGRESS_S = 15.0

_logger = logging.getLogger(__name__)
# A copy of offsets: a writer's batch and its committed range. Its rows never change.
_Copy = tuple[TopicPartition, str, int, OffsetRange]
_Holes = Mapping[_Copy, Sequence[Hole]]
LogRanges = tuple[tuple[TopicPartition, OffsetRange], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Earlier:
    """What seals, and the run's own earlier steps, have evidence on."""

    by_copy: _Holes
    settled: Spans

    def on(self, log: TopicPartition, used: Used, hole: Hole) -> Evidence | None:
        """The evidence on a used range's hole; None where there is none yet."""
        return known(used, hole, self.settled.get(log, {})) or _known(_copies(self.by_copy, log, used), hole)


@dataclass(slots=True, kw_only=True)
class SearchLimit:
    """How long may be looked, and how far it is."""

    limit_s: float
    offsets: int = 0
    began: float = field(default_factory=time.monotonic)
    _told: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        return time.monotonic() - self.began >= self.limit_s

    def seen(self, offsets: int) -> None:
        """Count offsets that were read, and log the sum now and then."""
        self.offsets += offsets
        if time.monotonic() - self._told > _PROGRESS_S:
            self._told = time.monotonic()
            _logger.info("holes: %s offsets of Kafka read in %.0f s", f"{self.offsets:,}", self._told - self.began)


def classify_holes(
    run: Run,
    plan: Plan,
    seals: Iterable[Seal],
    *,
    looked: Sequence[LogPlan] = (),
    refilled: LogRanges = (),
    limit_s: float = LIMIT_S,
) -> tuple[Plan, dict[str, Any], LogRanges]:
    """The plan with evidence on its holes; what to save of the look: totals per cause, offsets read, notes; and the
    ranges at which Kafka gives committed records that the archive lacks, the first 200 of a log.

    ``looked`` is what the run has found before: such a hole is not looked at again, but in a log of which some were
    ``refilled``, where part of it was, or where not all of its unexplained offsets are named. It ends after
    ``limit_s``: holes that were not reached have no evidence and are the next look's. What Kafka fails to tell does not
    fail the run: its holes stay unexplained, and a note says why.
    """
    watch = SearchLimit(limit_s=limit_s)
    own = [(item.target.log, item) for item in looked]
    sealed = tuple(seals)
    by_copy = _by_copy([*((item.log, item) for seal in sealed for item in seal.logs), *own])
    earlier = _Earlier(by_copy=by_copy, settled=spans(sealed))
    parts: dict[TopicPartition, list[OffsetRange]] = {}
    for log, part in refilled:
        parts.setdefault(log, []).append(part)
    final = _by_copy((log, _untouched(item, normalise(parts[log])) if log in parts else item) for log, item in own)
    logs, notes = [], []
    readable: list[tuple[TopicPartition, OffsetRange]] = []
    for item in plan.logs:
        done, own_notes, given = _classify(run, item, earlier, final, watch) if item.holes else (item, (), ())
        logs.append(done)
        notes += [f"{item.target.log}: {note}" for note in own_notes]
        readable += [(item.target.log, part) for part in given]
    totals = {"transactional": 0, "compacted": 0, "unexplained": 0}
    for hole in (hole for item in logs for hole in item.holes):
        for cause, number in hole.counts.items():
            totals[cause] += number
    told = {**totals, "offsets_read": watch.offsets, "notes": notes}
    return replace(plan, logs=tuple(logs)), told, tuple(readable)


def _classify(
    run: Run, item: LogPlan, earlier: _Earlier, final: _Holes, watch: SearchLimit
) -> tuple[LogPlan, Sequence[str], OffsetSet]:
    log = item.target.log
    notes: list[str] = []
    uses = {used.range.start: used for used in item.used}
    told_before = {hole.range: earlier.on(log, uses[hole.range.start], hole) for hole in item.holes}
    before = {span: evidence for span, evidence in told_before.items() if evidence is not None}
    # Where a seal does not name every unexplained offset, all of the hole's have to be asked for again.
    found = {span: one for span, one in before.items() if count(one.ranges) == one.unexplained}
    done = {hole.range for hole in item.holes if _known(_copies(final, log, uses[hole.range.start]), hole) is not None}
    asked = [
        hole
        for hole in item.holes
        if hole.range not in done and ((one := found.get(hole.range)) is None or one.unexplained)
    ]
    transactional = any(
        hole.counts["transactional"] for copy, holes in earlier.by_copy.items() if copy[0] == log for hole in holes
    )
    told: dict[OffsetRange, Told] = {}
    try:
        if asked:
            with Inquiry(run.settings.kafka_bootstrap, log, watch.seen) as inquiry:
                for hole, offsets in _asked(run, log, asked, uses, found):
                    if watch.over:
                        notes.append(f"looking at holes was stopped after {watch.limit_s:.0f} s; the next run goes on")
                        break
                    if isinstance(offsets, str):
                        notes.append(f"the archive no longer tells what was committed of {hole.range}: {offsets}")
                        continue
                    told[hole.range] = inquiry.ask(offsets)
                nature = inquiry.nature(transactional=transactional)
            found |= {span: nature.evidence(one, found.get(span)) for span, one in told.items()}
    except ServiceError as error:
        notes.append(str(error))
    readable = sum(one.readable.number for one in told.values())
    if readable:
        notes.append(f"Kafka gives a committed record at {readable:,} offsets that the archive has none of")
    for span, evidence in before.items():  # what was proven once stays so, whatever Kafka has forgotten since
        found[span] = min(evidence, found.get(span, evidence), key=lambda one: one.unexplained)
    named = normalise(part for one in told.values() for part in one.readable.ranges)[:RANGES_MAX]
    return replace(item, holes=tuple(_with_evidence(item.holes, found))), notes, named


def _with_evidence(holes: Iterable[Hole], found: Mapping[OffsetRange, Evidence]) -> Iterator[Hole]:
    named = 0
    for hole in holes:
        evidence = found.get(hole.range)
        if evidence is None:
            yield hole
            continue
        ranges = evidence.ranges[: RANGES_MAX - named]
        named += len(ranges)
        yield replace(hole, cause=_cause(evidence), evidence=replace(evidence, ranges=ranges))


def _cause(evidence: Evidence) -> Literal["unexplained", "transactional", "compacted"]:
    if evidence.unexplained:
        return "unexplained"
    return "compacted" if evidence.compacted else "transactional"


def _untouched(item: LogPlan, refilled: OffsetSet) -> LogPlan:
    """The log without the holes that were refilled in part, or that may hold more to refill than was named."""
    ends = [part.end for part in refilled]

    def is_done(hole: Hole) -> bool:
        at = bisect_right(ends, hole.range.start)
        refilled_in = at < len(refilled) and refilled[at].start < hole.range.end
        told = hole.evidence
        return not refilled_in and told is not None and count(told.ranges) == told.unexplained

    return replace(item, holes=tuple(hole for hole in item.holes if is_done(hole)))


def _by_copy(logs: Iterable[tuple[TopicPartition, SealedLog | LogPlan]]) -> dict[_Copy, list[Hole]]:
    """The holes that seals and plans have evidence on, by copy."""
    found: dict[_Copy, list[Hole]] = {}
    for log, item in logs:
        uses = {used.range.start: used for used in item.used} if item.holes else {}
        for hole in item.holes:
            used = uses.get(hole.range.start)
            if hole.evidence is not None and used is not None:
                found.setdefault((log, used.writer, used.batch, used.committed), []).append(hole)
    return found


def _copies(holes: _Holes, log: TopicPartition, used: Used) -> Sequence[Hole]:
    return holes.get((log, used.writer, used.batch, used.committed), ())


def _known(copies: Sequence[Hole], hole: Hole) -> Evidence | None:
    """The best evidence of earlier looks on the very same part of the same copy; None where there is none."""
    same = [one.evidence for one in copies if one.range == hole.range and one.evidence is not None]
    return min(same, key=lambda evidence: (evidence.unexplained, -len(evidence.ranges)), default=None)


def _asked(
    run: Run,
    log: TopicPartition,
    holes: Sequence[Hole],
    uses: Mapping[int, Used],
    found: Mapping[OffsetRange, Evidence],
) -> Iterator[tuple[Hole, Iterable[OffsetRange] | str]]:
    """Each hole with the offsets to ask for, or why the archive no longer tells them.

    Manifests and objects are read some at a time, by several threads, while the last ones are asked for.
    """

    def missing(hole: Hole) -> "OffsetBits | OffsetSet | str":
        if hole.range in found:
            return normalise(found[hole.range].ranges)
        try:
            files = _files(run, log, uses[hole.range.start])
            own = None if files is None else archived_offsets(run.store, files, hole.range)
        except (FormatError, PositionError) as error:  # the rebuild knows whose rows these are, and what to do
            return str(error)
        return "a manifest or an object is gone" if own is None else own

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="holes") as pool:
        for some in _batches(holes):
            for hole, offsets in zip(some, pool.map(missing, some), strict=True):
                yield hole, offsets.missing() if isinstance(offsets, OffsetBits) else offsets


def _batches(holes: Sequence[Hole]) -> Iterator[list[Hole]]:
    some: list[Hole] = []
    for hole in holes:
        if len(some) == _AT_ONCE or (some and count(item.range for item in [*some, hole]) > _OFFSETS_AT_ONCE):
            yield some
            some = []
        some.append(hole)
    if some:
        yield some


def _files(run: Run, log: TopicPartition, used: Used) -> tuple[DataFile, ...] | None:
    """The files of a committed range, which is one batch's because its holes are not settled; None where its manifest
    is gone."""
    if used.last_batch is not None:
        raise PositionError(
            "holes of several batches at once are told by a seal, and by nothing else",
            expected=f"batch {used.batch}",
            found=f"batches {used.batch} to {used.last_batch}",
            where=f"{log}, offsets {used.range}",
        )
    key = run.layout.manifest_key(used.writer, used.batch)
    body = run.store.get(key)
    if body is None:
        return None
    files = parse_manifest(body, where=key).files
    return tuple(file for file in files if (file.log, file.range) == (log, used.committed))
