"""A transactional topic: seals and plans with joined ranges, against seals and plans with single batches (pure)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.archive.test_history import planned
from tests.core.worlds import DAYS, World, log, manifest_of, plan_of, seal_of, span
from tidemark.archive.ledger.segment import Tables
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import Evidence, Hole, LogPlan, Target, Used
from tidemark.core.seal import Seal, SealedLog
from tidemark.core.transaction_holes import joined, known, spans
from tidemark.verify.claims import doubtful, proven_by_seal

pytestmark = pytest.mark.conformance(11)

COMPLETE, MARKER, DOUBT = "complete", "marker", "doubt"  # a doubt is a missing offset that Kafka can't explain


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of the stream; its first offset has no row, unless it is complete."""

    number: int
    range: OffsetRange
    kind: str


@dataclass(kw_only=True)
class Life:
    """Runs one after the other, each planned on what the ones before have sealed. ``asked`` counts questions to Kafka,
    by the offset that is asked for."""

    batches: Sequence[Batch]
    truth: tuple[date | None, ...]
    manifests: tuple[Manifest, ...]
    as_one: bool
    seals: list[Seal] = field(default_factory=list)
    asked: Counter[int] = field(default_factory=Counter)

    def run(self, day: date, end: int, *, unavailable: bool) -> tuple[Any, ...]:
        """Plan, classify holes, seal; returns the parts of the plan that must not depend on the joining of ranges."""
        world = World(
            truths={log(): self.truth},
            manifests=self.manifests,
            targets=(Target(log=log(), start=0, end=end, log_start=0, high_watermark=end),),
            seals=tuple(self.seals),
            requested=(day,),
            force=False,
        )
        plan = planned(world, [Tables.build(self.manifests)]) if self.as_one else plan_of(world)
        (found,) = plan.logs
        uses = {used.range: used for used in found.used}
        holes = tuple(self._looked_at(hole, uses[hole.range], unavailable=unavailable) for hole in found.holes)
        found = replace(found, holes=holes)
        for used in found.used:  # the times around a loss are those of the first and the last of several batches
            if used.last_batch is not None:
                assert self._has_rows(used.batch)
                assert self._has_rows(used.last_batch)
        for item in plan.days:
            self.seals.append(seal_of(item.day, [self._sealed(found)], version=item.version))
        causes: Counter[str] = Counter()
        for hole in holes:
            causes.update(hole.counts)
        return plan.days, plan.unchanged, plan.slices, found.gaps, +causes

    def _has_rows(self, batch: int) -> bool:
        span = self.batches[batch].range
        return any(day is not None for day in self.truth[span.start : span.end])

    def _looked_at(self, hole: Hole, used: Used, *, unavailable: bool) -> Hole:
        evidence = known(used, hole, spans(self.seals).get(log(), {})) or self._sealed_before(hole, used)
        if evidence is None:
            assert used.last_batch is None, "nobody can ask for holes of several batches at once"
            if unavailable:
                return hole
            missing = [offset for offset in range(hole.range.start, hole.range.end) if self.truth[offset] is None]
            self.asked.update(missing)
            doubt = self.batches[used.batch].kind == DOUBT
            evidence = Evidence(
                transactional=0 if doubt else len(missing),
                compacted=0,
                unexplained=len(missing) if doubt else 0,
                ranges=tuple(span(offset, offset + 1) for offset in missing) if doubt else (),
            )
        return replace(hole, cause="unexplained" if evidence.unexplained else "transactional", evidence=evidence)

    def _sealed_before(self, hole: Hole, used: Used) -> Evidence | None:
        """The evidence on the same part of the same batch."""
        for seal in self.seals:
            for item in seal.logs:
                for other in item.used:
                    if (other.batch, other.range, other.last_batch) == (used.batch, used.range, used.last_batch):
                        found = next((one.evidence for one in item.holes if one.range == hole.range), None)
                        if found is not None:
                            return found
        return None

    def _sealed(self, found: LogPlan) -> SealedLog:
        used, holes = joined(found.used, found.holes) if self.as_one else (found.used, found.holes)
        target = found.target
        return SealedLog(log=target.log, start=target.start, end=target.end, used=used, gaps=(), holes=holes)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Batch], tuple[date | None, ...], list[tuple[int, bool]]]:
    """Adjacent batches, the day of each row, where runs end, and whether Kafka is unavailable then."""
    truth: list[date | None] = []
    batches = []
    for number in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from((COMPLETE, MARKER, MARKER, MARKER, DOUBT)))
        start = len(truth)
        truth += draw(st.lists(st.sampled_from(DAYS), min_size=1, max_size=4))
        if kind != COMPLETE:
            truth[start] = None
        batches.append(Batch(number=number, range=span(start, len(truth)), kind=kind))
    runs = draw(st.lists(st.tuples(st.integers(1, len(truth)), st.booleans()), min_size=1, max_size=5))
    return batches, tuple(truth), sorted(runs)


@settings(max_examples=400)
@given(streams())
def test_joined_holes_change_nothing_else_and_kafka_is_asked_once(
    stream: tuple[list[Batch], tuple[date | None, ...], list[tuple[int, bool]]],
) -> None:
    batches, truth, runs = stream
    manifests = tuple(
        manifest_of("stream", item.number, {log(): item.range}, {log(): truth}, "whole") for item in batches
    )
    lives = [Life(batches=batches, truth=truth, manifests=manifests, as_one=as_one) for as_one in (True, False)]
    for number, (end, unavailable) in enumerate(runs):
        day = DAYS[number % len(DAYS)]
        assert lives[0].run(day, end, unavailable=unavailable) == lives[1].run(day, end, unavailable=unavailable)
    assert lives[0].asked == lives[1].asked

    last = lives[0].seals[-1].logs[0] if lives[0].seals else None
    if last is not None and all(hole.evidence is not None for hole in last.holes):
        inside = [item for item in batches if item.range.start < last.end]
        joinable = [item.kind != DOUBT and item.range.end <= last.end for item in inside]
        assert len(last.used) == sum(len(list(group)) if not key else 1 for key, group in groupby(joinable))


def test_refilled_ranges_and_ranges_that_touch_a_span_are_not_joined() -> None:
    def used(start: int, writer: str, batch: int) -> Used:
        return Used(range=span(start, start + 10), committed=span(start, start + 10), writer=writer, batch=batch)

    def hole(start: int, **counts: int) -> Hole:
        found = {"transactional": 0, "compacted": 0, "unexplained": 0, **counts}
        return Hole(
            range=span(start, start + 10), missing=1, cause="transactional", evidence=Evidence(**found, ranges=())
        )

    uses = [used(0, "refill-run", 0), used(10, "refill-run", 1), used(20, "a", 4), used(30, "a", 6), used(40, "b", 7)]
    holes = [hole(start, transactional=1) for start in range(0, 50, 10)]
    ranges, found = joined(uses, holes)
    one = Used(range=span(20, 40), committed=span(20, 40), writer="a", batch=4, last_batch=6)
    assert ranges == (*uses[:2], one, uses[4])
    assert [(item.range, item.missing, item.counts["transactional"]) for item in found[2:]] == [
        (span(20, 40), 2, 2),
        (span(40, 50), 1, 1),
    ]
    proven = spans([seal_of(DAYS[0], [SealedLog(log=log(), start=0, end=50, used=ranges, gaps=(), holes=found)])])[
        log()
    ]
    assert known(used(30, "a", 6), hole(30), proven) == Evidence(transactional=1, compacted=0, unexplained=0, ranges=())
    for item in (used(0, "refill-run", 0), used(40, "a", 8), used(30, "a", 7), used(35, "a", 6), used(20, "b", 4)):
        assert known(item, replace(hole(0), range=item.range), proven) is None


def test_a_seals_evidence_covers_only_the_offsets_that_it_counts() -> None:
    evidence = Evidence(transactional=2, compacted=0, unexplained=0, ranges=())
    hole = Hole(range=span(0, 100), missing=2, cause="transactional", evidence=evidence)
    one = Used(range=span(0, 100), committed=span(0, 100), writer="a", batch=0, last_batch=9)
    sealed = SealedLog(log=log(), start=0, end=100, used=(one,), gaps=(), holes=(hole,))
    assert proven_by_seal(sealed, (span(50, 52), span(100, 101))) == (span(50, 52),)
    assert proven_by_seal(sealed, (span(10, 11), span(50, 52))) == ()
    assert proven_by_seal(sealed, (span(98, 103),)) == (span(98, 100),)
    assert (doubtful(sealed), doubtful(replace(sealed, holes=(replace(hole, evidence=None),)))) == ((), (span(0, 100),))


@pytest.mark.parametrize("cause", ["compacted", "unexplained"])
def test_no_other_cause_is_transactional(cause: str) -> None:
    found = {"transactional": 2, "compacted": 0, "unexplained": 0, cause: 1}
    hole = Hole(range=span(0, 10), missing=3, cause="unexplained", evidence=Evidence(**found, ranges=()))
    assert not hole.is_transactional
    assert not replace(hole, evidence=None).is_transactional
    transactional = replace(hole, evidence=Evidence(transactional=3, compacted=0, unexplained=0, ranges=()))
    assert transactional.is_transactional
    # The objects have another number of rows than the manifest.
    assert not replace(transactional, missing=4).is_transactional
