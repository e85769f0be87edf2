"""Evidence on a log's holes: what is known, what to ask Kafka, and the plan with the answers. No I/O."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, count, normalise
from tidemark.core.plan import Evidence, Hole, LogPlan, LogRange, Used
from tidemark.core.seal import Seal, SealedLog
from tidemark.core.transaction_holes import Spans, known, spans

RANGES_MAX = 200  # unexplained ranges that are named per log
# A copy of offsets: a writer's batch and its committed range. Its rows never change.
_Copy = tuple[TopicPartition, str, int, OffsetRange]
_Holes = Mapping[_Copy, Sequence[Hole]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEvidence:
    """Evidence of seals and of the run's earlier plan. Kafka is not asked again about ``final`` holes."""

    by_copy: _Holes
    final: _Holes
    transactional: Spans

    @classmethod
    def of(
        cls, seals: Iterable[Seal], earlier: Sequence[LogPlan] = (), refilled: Iterable[LogRange] = ()
    ) -> "KnownEvidence":
        """The evidence of seals and of the run's ``earlier`` plan.

        A hole of the earlier plan is final, unless a part of its log was ``refilled`` and the hole with it, or not all
        of its unexplained offsets are named.
        """
        sealed = tuple(seals)
        own = [(item.target.log, item) for item in earlier]
        parts: dict[TopicPartition, list[OffsetRange]] = {}
        for part in refilled:
            parts.setdefault(part.log, []).append(part.range)
        return cls(
            by_copy=_by_copy([*((item.log, item) for seal in sealed for item in seal.logs), *own]),
            final=_by_copy(
                (log, _untouched(item, normalise(parts[log])) if log in parts else item) for log, item in own
            ),
            transactional=spans(sealed),
        )

    def has_transactions(self, log: TopicPartition) -> bool:
        """Whether the log is known to have a transactional hole."""
        return any(
            hole.counts["transactional"] for copy, holes in self.by_copy.items() if copy[0] == log for hole in holes
        )

    def on(self, log: TopicPartition, used: Used, hole: Hole) -> Evidence | None:
        """The evidence on a used range's hole, if there is any."""
        return known(used, hole, self.transactional.get(log, {})) or _best(self.by_copy, log, used, hole)

    def is_final(self, log: TopicPartition, used: Used, hole: Hole) -> bool:
        """Whether the run's earlier plan has final evidence on the hole."""
        return _best(self.final, log, used, hole) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleQuestions:
    """The holes of one log to ask Kafka about, and the evidence on its holes so far."""

    log: TopicPartition
    uses: Mapping[int, Used]
    before: Mapping[OffsetRange, Evidence]
    asked: tuple[Hole, ...]

    def base(self, hole: Hole) -> Evidence | None:
        """Evidence that names every unexplained offset. None if Kafka must be asked about all offsets."""
        evidence = self.before.get(hole.range)
        return evidence if evidence is not None and count(evidence.ranges) == evidence.unexplained else None


def questions(item: LogPlan, evidence: KnownEvidence) -> HoleQuestions:
    """The holes to ask about: without evidence, or with unexplained offsets left."""
    log = item.target.log
    uses = {used.range.start: used for used in item.used}
    found = {hole.range: evidence.on(log, uses[hole.range.start], hole) for hole in item.holes}
    before = {span: one for span, one in found.items() if one is not None}
    return HoleQuestions(
        log=log,
        uses=uses,
        before=before,
        asked=tuple(
            hole
            for hole in item.holes
            if not evidence.is_final(log, uses[hole.range.start], hole)
            and ((one := before.get(hole.range)) is None or one.unexplained or count(one.ranges) != one.unexplained)
        ),
    )


def with_evidence(
    item: LogPlan, before: Mapping[OffsetRange, Evidence], answers: Mapping[OffsetRange, Evidence]
) -> LogPlan:
    """The log with the better evidence of both on its holes, because Kafka may have deleted records since."""
    found = dict(answers)
    for span, evidence in before.items():
        found[span] = min(evidence, found.get(span, evidence), key=lambda one: one.unexplained)
    return replace(item, holes=tuple(_with_evidence(item.holes, found)))


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
    """The log without holes that were refilled in part, or whose unexplained offsets are not all named."""
    ends = [part.end for part in refilled]

    def is_done(hole: Hole) -> bool:
        at = bisect_right(ends, hole.range.start)
        refilled_in = at < len(refilled) and refilled[at].start < hole.range.end
        found = hole.evidence
        return not refilled_in and found is not None and count(found.ranges) == found.unexplained

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


def _best(holes: _Holes, log: TopicPartition, used: Used, hole: Hole) -> Evidence | None:
    """The best evidence on the same part of the same copy, if there is any."""
    copies = holes.get((log, used.writer, used.batch, used.committed), ())
    same = [one.evidence for one in copies if one.range == hole.range and one.evidence is not None]
    return min(same, key=lambda evidence: (evidence.unexplained, -len(evidence.ranges)), default=None)
