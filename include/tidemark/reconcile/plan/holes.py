"""Asks Kafka about a plan's holes, when a run is planned and when its plan is finalized.

No step asks again about a hole that an earlier seal has evidence on. Step ``finalize_plan`` does not ask again about
a hole of step ``plan``. So only new holes cost: manifests and offset columns of their ranges, and one or two passes
over these ranges in Kafka. ``tidemark.core.hole_evidence`` decides.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from tidemark.core.errors import FormatError, PositionError, ServiceError
from tidemark.core.hole_evidence import RANGES_MAX, HoleQuestions, KnownEvidence, questions, with_evidence
from tidemark.core.manifest import DataFile, parse_manifest
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, count, normalise
from tidemark.core.plan import Hole, LogPlan, LogRange, Plan, Used
from tidemark.kafka.offset_evidence import OffsetClassifier, OffsetFindings
from tidemark.objects.bits import OffsetBits
from tidemark.objects.columns import archived_offsets
from tidemark.reconcile.results import HoleSearch
from tidemark.run import Run

LIMIT_S = 900.0  # of a step that may take half an hour
_AT_ONCE = 64
_OFFSETS_AT_ONCE = 200_000_000  # a bit each
_THREADS = 8
_PROGRESS_S = 15.0

_logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class SearchLimit:
    """How long the search may take, and how far it is."""

    limit_s: float
    offsets: int = 0
    began: float = field(default_factory=time.monotonic)
    _logged: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        return time.monotonic() - self.began >= self.limit_s

    def seen(self, offsets: int) -> None:
        """Count offsets that were read, and log the sum now and then."""
        self.offsets += offsets
        if time.monotonic() - self._logged > _PROGRESS_S:
            self._logged = time.monotonic()
            _logger.info("holes: %s offsets of Kafka read in %.0f s", f"{self.offsets:,}", self._logged - self.began)


def classify_holes(
    run: Run, plan: Plan, evidence: KnownEvidence, *, limit_s: float = LIMIT_S
) -> tuple[Plan, HoleSearch, tuple[LogRange, ...]]:
    """The plan with evidence on its holes, an account of the search, and the ranges to refill.

    The ranges to refill are offsets at which Kafka has committed records that the archive lacks: at most 200 of a log.
    The search ends after ``limit_s``: holes that were not reached have no evidence, and the next run asks about them.
    An error of Kafka does not fail the run: its holes stay unexplained, and a note says why.
    """
    limit = SearchLimit(limit_s=limit_s)
    logs: list[LogPlan] = []
    notes: list[str] = []
    readable: list[LogRange] = []
    for item in plan.logs:
        log = item.target.log
        done, own_notes, found = _classify(run, item, evidence, limit) if item.holes else (item, (), ())
        logs.append(done)
        notes += [f"{log}: {note}" for note in own_notes]
        readable += [LogRange(log=log, range=part) for part in found]
    totals = {"transactional": 0, "compacted": 0, "unexplained": 0}
    for hole in (hole for item in logs for hole in item.holes):
        for cause, number in hole.counts.items():
            totals[cause] += number
    search = HoleSearch(**totals, offsets_read=limit.offsets, notes=tuple(notes))
    return replace(plan, logs=tuple(logs)), search, tuple(readable)


def _classify(
    run: Run, item: LogPlan, evidence: KnownEvidence, limit: SearchLimit
) -> tuple[LogPlan, Sequence[str], OffsetSet]:
    wanted = questions(item, evidence)
    notes: list[str] = []
    answers: dict[OffsetRange, OffsetFindings] = {}
    found = {}
    try:
        if wanted.asked:
            with OffsetClassifier(run.settings.kafka, wanted.log, limit.seen) as classifier:
                for hole, offsets in _with_offsets(run, wanted):
                    if limit.over:
                        notes.append(f"the search was stopped after {limit.limit_s:.0f} s; the next run continues it")
                        break
                    if isinstance(offsets, str):
                        notes.append(f"the archive no longer shows what was committed of {hole.range}: {offsets}")
                        continue
                    answers[hole.range] = classifier.classify(offsets)
                gap_cause = classifier.gap_cause(transactional=evidence.has_transactions(wanted.log))
            bases = {hole.range: wanted.base(hole) for hole in wanted.asked}
            found = {span: gap_cause.evidence(one, bases[span]) for span, one in answers.items()}
    except ServiceError as error:
        notes.append(str(error))
    number = sum(one.readable.number for one in answers.values())
    if number:
        notes.append(f"Kafka has a committed record at {number:,} offsets that the archive has none of")
    readable = normalise(part for one in answers.values() for part in one.readable.ranges)[:RANGES_MAX]
    return with_evidence(item, wanted.before, found), notes, readable


def _with_offsets(run: Run, wanted: HoleQuestions) -> Iterator[tuple[Hole, Iterable[OffsetRange] | str]]:
    """Each hole with the offsets to ask for, or why the archive no longer shows them.

    Several threads read manifests and objects, a chunk of holes at a time, while the last chunk is asked for.
    """

    def missing(hole: Hole) -> "OffsetBits | OffsetSet | str":
        base = wanted.base(hole)
        if base is not None:
            return normalise(base.ranges)
        try:
            files = _files(run, wanted.log, wanted.uses[hole.range.start])
            own = None if files is None else archived_offsets(run.store, files, hole.range)
        except (FormatError, PositionError) as error:  # the rebuild knows whose rows these are, and what to do
            return str(error)
        return "a manifest or an object is missing" if own is None else own

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="holes") as pool:
        for chunk in _chunks(wanted.asked):
            for hole, offsets in zip(chunk, pool.map(missing, chunk), strict=True):
                yield hole, offsets.missing() if isinstance(offsets, OffsetBits) else offsets


def _chunks(holes: Sequence[Hole]) -> Iterator[list[Hole]]:
    chunk: list[Hole] = []
    for hole in holes:
        if len(chunk) == _AT_ONCE or (chunk and count(item.range for item in [*chunk, hole]) > _OFFSETS_AT_ONCE):
            yield chunk
            chunk = []
        chunk.append(hole)
    if chunk:
        yield chunk


def _files(run: Run, log: TopicPartition, used: Used) -> tuple[DataFile, ...] | None:
    """The files of one batch's committed range; None where its manifest is missing."""
    if used.last_batch is not None:
        raise PositionError(
            "a hole of several batches at once can't be asked about: only a seal has evidence on it",
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
