"""Values as the pages show them, made without a service."""

from datetime import UTC, date, datetime
from typing import Any

from tests.core.worlds import log, span
from tidemark.core.plan import Gap, LogPlan, Neighbours, Plan, Target
from tidemark.inspect.last_run import LastRun
from tidemark.inspect.problems import Problem
from tidemark.inspect.status_rows import StreamRow
from tidemark.inspect.tide import LogTide

DAY = date(2013, 1, 15)
NOW = datetime(2013, 1, 17, 12, tzinfo=UTC)
LOSS = (
    "the archive does not hold every offset of the run's targets: expected no gap, found"
    " flights-0 [2, 5) lost to retention: 3 offsets, of unknown time: no record is known on either side"
    " [run run-1 of stream flights]. To seal the days without the lost records, accept the loss"
)


def status(*kinds: str, run: LastRun | None = None, overdue: tuple[date, ...] = (), name: str = "flights") -> Any:
    """A stream with a problem of each kind."""
    return StreamRow(
        stream=name,
        layers=(),
        days=(),
        last_sealed=None,
        overdue=overdue,
        unproven=(),
        waiting=0,
        last_run=run,
        problems=tuple(Problem(kind=kind, text=f"{name}: something of {kind}", hint="do this") for kind in kinds),
        fine=None,
        running=None,
    )


def last_run(verdict: str = "failed", *sentences: str, days: tuple[date, ...] = (DAY,)) -> LastRun:
    return LastRun(
        name="run-1",
        verdict=verdict,
        title=f"{days[0]} failed at step finalize_plan" if verdict == "failed" else f"{days[0]}: a title",
        sentences=sentences or (LOSS, "Nothing was published."),
        days=days,
        ended_at=NOW,
        report="runs/flights/run-1/report.html",
    )


def plan_with_loss(*, neighbours: Neighbours | None = None, topic_deleted: bool = False, lost_to: int = 5) -> Plan:
    """Offsets from 2 to ``lost_to``, without it, are lost, and 7 to 9 were so before."""
    target = Target(log=log(), start=0, end=10, log_start=5, high_watermark=10)
    gaps = tuple(
        Gap(range=span(*ends), kind="lost", neighbours=neighbours, topic_deleted=topic_deleted)
        for ends in ((2, lost_to), (7, 10))
    )
    own = LogPlan(target=target, used=(), gaps=gaps, overlaps=(), holes=(), pending=None)
    return Plan(stream="flights", run="run-1", days=(), unchanged=(), logs=(own,), slices=())


def tide(partition: int, start: int, sealed: int | None, archived: int, end: int, left: float | None) -> LogTide:
    return LogTide(
        log=log(partition), log_start=start, sealed=sealed, archived=archived, high_watermark=end, hours_left=left
    )
