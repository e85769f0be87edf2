"""What proves each log, as the report has it."""

from collections.abc import Iterable
from datetime import tzinfo

from tidemark.core.loss_text import time_text
from tidemark.core.offsets import OffsetRange, count, subtract
from tidemark.core.plan import Gap, Hole, LogPlan, Neighbours
from tidemark.reconcile.report.outcomes import Outcomes
from tidemark.reconcile.report.values import (
    HoleCauses,
    HoleSpan,
    LogReport,
    LostSpan,
    OffsetCounts,
    OverlapSpan,
    Span,
    UsedSpan,
)
from tidemark.reconcile.results import PLAN, REFILL


def log_report(item: LogPlan, outcomes: Outcomes, zone: tzinfo) -> LogReport:
    """The findings of the plan for a log, with what the refill brought."""
    target = item.target
    refill, planned = outcomes.result(REFILL), outcomes.result(PLAN)
    refilled = [part.range for part in refill.ranges if part.log == target.log] if refill else []
    in_holes = [part.range for part in planned.refill if part.in_hole and part.log == target.log] if planned else []
    elsewhere = subtract(refilled, in_holes)
    lost = [gap for gap in item.gaps if gap.kind == "lost"]
    unfilled = [gap.range for gap in item.gaps if gap.kind == "refill"]
    pending = [item.pending] if item.pending else []
    holes = tuple(map(_hole, item.holes))
    return LogReport(
        topic=target.log.topic,
        topic_id=target.log.topic_id,
        partition=target.log.partition,
        start=target.start,
        end=target.end,
        log_start=target.log_start,
        high_watermark=target.high_watermark,
        deleted=target.deleted,
        used=tuple(
            UsedSpan(
                start=used.range.start,
                end=used.range.end,
                committed=_span(used.committed),
                writer=used.writer,
                batch=used.batch,
                last_batch=used.last_batch,
            )
            for used in item.used
        ),
        refilled=_spans(refilled),
        lost=tuple(_lost(gap, zone) for gap in lost),
        unfilled=_spans(unfilled),
        pending=_spans(pending),
        overlaps=tuple(
            OverlapSpan(start=part.range.start, end=part.range.end, copies=part.copies) for part in item.overlaps
        ),
        holes=holes,
        offsets=OffsetCounts(
            target=target.end - target.start,
            used=count(used.range for used in item.used),
            refilled=count(refilled),
            refilled_in_holes=count(subtract(refilled, elsewhere)),
            lost=count(gap.range for gap in lost),
            unfilled=count(unfilled),
            pending=count(pending),
            overlapping=count(part.range for part in item.overlaps),
            holes=sum(hole.missing for hole in holes),
        ),
        causes=HoleCauses(
            transactional=sum(hole.counts["transactional"] for hole in holes),
            compacted=sum(hole.counts["compacted"] for hole in holes),
            unexplained=sum(hole.counts["unexplained"] for hole in holes),
        ),
    )


def _hole(hole: Hole) -> HoleSpan:
    return HoleSpan(
        start=hole.range.start,
        end=hole.range.end,
        missing=sum(hole.counts.values()),
        cause=hole.cause,
        counts=hole.counts,
        unexplained=_spans(hole.evidence.ranges if hole.evidence else ()),
    )


def _lost(gap: Gap, zone: tzinfo) -> LostSpan:
    around = gap.neighbours or Neighbours()
    return LostSpan(
        start=gap.range.start,
        end=gap.range.end,
        topic_deleted=gap.topic_deleted,
        time=time_text(gap.neighbours, zone),
        before_us=around.before_us,
        after_us=around.after_us,
    )


def _span(item: OffsetRange) -> Span:
    return Span(start=item.start, end=item.end)


def _spans(items: Iterable[OffsetRange]) -> tuple[Span, ...]:
    return tuple(map(_span, items))
