"""Steps ``plan``, what a run refills and rebuilds, and ``finalize_plan``: that nothing is missing after the refill."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import Archived, read_and_compact
from tidemark.archive.retention import read_retention
from tidemark.core.committed import Committed
from tidemark.core.day_conflicts import DayConflict
from tidemark.core.days import date_ranges
from tidemark.core.errors import IncompleteError, ServiceError
from tidemark.core.hole_evidence import KnownEvidence
from tidemark.core.loss_text import loss_text, truncation_text
from tidemark.core.offsets import TopicPartition
from tidemark.core.plan import LastBatch, LogRange, Plan, Target
from tidemark.core.planner import plan_committed
from tidemark.core.seal import Seal, seen_days
from tidemark.core.seen import SeenDay
from tidemark.core.transaction_holes import spans
from tidemark.logs import add_log_context
from tidemark.reconcile.lineage import run_started
from tidemark.reconcile.plan.day_copies import conflict_error, day_conflicts, preference, to_rebuild
from tidemark.reconcile.plan.holes import classify_holes
from tidemark.reconcile.plan.losses import bound_losses, find_earlier_losses, new_losses, new_truncations
from tidemark.reconcile.plan.rewritten import require_same_records
from tidemark.reconcile.plan.targets import make_targets, raise_log_starts
from tidemark.reconcile.results import (
    FINALIZE_PLAN,
    PLAN,
    ArchiveState,
    FinalizeResult,
    HoleSearch,
    PlanResult,
    RefillRange,
    RetentionNote,
    Runway,
)
from tidemark.run import Run
from tidemark.tables.seals import latest_seals, unsealed_publications
from tidemark.tables.snapshots import main_snapshots, shown_days

_logger = logging.getLogger(__name__)


def plan_run(
    run: Run,
    days: Sequence[date],
    force: bool,
    *,
    scheduled: bool = False,
    loss_accepted_by: str | None = None,
    reassign_days: bool = False,
) -> Plan:
    """Step ``plan``: fix the targets and plan them.

    A day that an earlier run published, wholly or by half, and did not seal is planned too. The result also has the
    ranges to refill and every broken link in a writer's chain of manifests; neither stops the run. The refill takes the
    gaps and, in holes, the offsets at which Kafka has committed records (``in_hole``): after retention the archive
    would lack them for good. With ``reassign_days`` the run rebuilds all sealed days that records move to or from, too.

    Raises ConflictError if copies of the same offsets disagree about the day of a record, so that it would be in
    several sealed days or in none, and what ``read_archived``, ``require_same_records``, ``make_targets`` and
    ``plan_committed`` raise.
    """
    force = force or reassign_days
    with run.step(PLAN) as attempt:
        requested = tuple(sorted(set(days)))
        add_log_context(days=requested)
        run_started(run, requested)
        # Before anything is read: publication is refused where another run publishes one of the days after this.
        main = main_snapshots(run.settings, run.stream)
        archived = read_and_compact(run.store, run.layout, run.stream)
        seals = latest_seals(run.store, run.layout)
        planner = _Planner(run, archived.history(), requested, (), seals, force, scheduled, _unproven(run, seals))
        require_same_records(run, planner.history)
        targets = make_targets(run, requested, planner.history, seals)
        plan = planner.plan(targets)
        if (reaching := find_earlier_losses(run, plan, seals)) != targets:
            plan = planner.plan(reaching)
        planner, plan = _without_conflicts(planner, plan, reassign_days=reassign_days)
        holes: HoleSearch | None = None
        lacked: tuple[LogRange, ...] = ()
        if plan.days:
            plan, holes, lacked = classify_holes(run, plan, KnownEvidence.of(seals))
            for note in holes.notes:
                _logger.warning("holes: %s", note)
        refill = [
            *(RefillRange(log=gap.log, range=gap.range, in_hole=False) for gap in _unfilled(plan)),
            *(RefillRange(log=part.log, range=part.range, in_hole=True) for part in lacked),
        ]
        attempt.result = PlanResult(
            requested=requested,
            reassigned=planner.reassigned,
            force=force,
            scheduled=scheduled,
            loss_accepted_by=loss_accepted_by,
            unproven=planner.unproven,
            main=main,
            plan=plan,
            archive=_state(archived),
            holes=holes,
            refill=tuple(sorted(refill, key=lambda item: (item.log, item.range))),
        )
        return plan


def _unproven(run: Run, seals: Sequence[Seal]) -> tuple[date, ...]:
    """The days of which readers see what no seal proves."""
    shown = shown_days(run.settings, run.stream)
    found = unsealed_publications(run.store, run.layout, shown, known=seals)
    for day, seen in found.items():
        _logger.warning("%s is published and not proven: this run rebuilds and seals it; readers see %s", day, seen)
    return tuple(found)


def _without_conflicts(planner: "_Planner", plan: Plan, *, reassign_days: bool) -> tuple["_Planner", Plan]:
    """The plan in which each record is in one day, with the days that records move to or from if that is wanted."""
    while conflicts := planner.day_conflicts(plan):
        wanted = {*planner.reassigned, *to_rebuild(conflicts)} - {*planner.requested}
        if not reassign_days or wanted <= {*planner.reassigned}:
            raise conflict_error(planner.run, plan, conflicts)
        planner = replace(planner, reassigned=tuple(sorted(wanted)))
        _logger.warning("records move between days: this run rebuilds %s", date_ranges(planner.reassigned))
        plan = planner.plan([item.target for item in plan.logs])
    return planner, plan


def finalize_plan_run(run: Run) -> Plan:
    """Step ``finalize_plan``: plan the very same targets again, with what the refill and the stream archived since.

    Holes that are new since step ``plan``, or that the refill went into, get their evidence here. The next
    run refills what Kafka has in those.

    Raises IncompleteError, naming every range, where a gap is left or offsets are lost that nobody accepts and that no
    seal records; the plan is saved all the same. The stream (``batch.accept_loss``) or the request may accept them.
    With ``losses`` in ``batch.approval`` the run continues to step ``approve``.
    """
    with run.step(FINALIZE_PLAN) as attempt:
        planned = run.require(PLAN)
        planned_at = run.outcome(PLAN)
        assert planned_at is not None
        seals = latest_seals(run.store, run.layout)
        archived = read_and_compact(run.store, run.layout, run.stream)
        planner = _Planner(
            run,
            archived.history(),
            planned.requested,
            planned.reassigned,
            seals,
            planned.force,
            planned.scheduled,
            planned.unproven,
        )
        targets = [item.target for item in planned.plan.logs]
        plan = planner.plan(targets)
        if _unfilled(plan):  # retention may have taken them since they were planned: then they are lost
            plan = planner.plan(raise_log_starts(run.settings.kafka, targets))
        if conflicts := planner.day_conflicts(plan):
            raise conflict_error(run, plan, conflicts)
        result = attempt.result = FinalizeResult(
            planned_at=planned_at.started_at,
            force=planned.force,
            plan=plan,
            archive=_state(archived),
            holes=None,
            retention=_retention(run, planner.history),
        )
        losses = [] if run.stream.batch.accept_loss else _lost(run, plan, seals)
        asked = planned.loss_accepted_by is not None or "losses" in run.stream.batch.approval
        _require_whole(run, plan, [] if asked else losses, truncated=bool(new_truncations(plan, seals)))
        result = attempt.result = replace(result, losses=tuple(losses))
        if plan.days:
            refilled = [LogRange(log=item.log, range=item.range) for item in planned.refill if item.in_hole]
            evidence = KnownEvidence.of(seals, planned.plan.logs, refilled)
            plan, holes, _ = classify_holes(run, plan, evidence)
            attempt.result = replace(result, plan=plan, holes=holes)
        return plan


@dataclass(frozen=True)
class _Planner:
    """The inputs of a run's plans that do not change with its targets. ``known`` has committed ranges, once needed."""

    run: Run
    history: History
    requested: Sequence[date]
    reassigned: tuple[date, ...]
    seals: Sequence[Seal]
    force: bool
    scheduled: bool
    unproven: tuple[date, ...]
    known: dict[object, dict[TopicPartition, list[Committed]]] = field(default_factory=dict)

    def plan(self, targets: Sequence[Target]) -> Plan:
        stream = self.run.stream
        seen = seen_days(self.seals, stream=stream.name, time_zone=stream.time_zone)
        back = stream.batch.reopen_days
        plan = plan_committed(
            stream=stream.name,
            run=self.run.name,
            requested=self.days,
            targets=targets,
            committed=self.committed(targets, seen),
            prefer=preference(self.run, self.seals),
            seen=seen,
            force=self.force,
            scheduled=self.scheduled,
            unproven=self.unproven,
            reopen_from=None if back is None else max(self.requested) - timedelta(days=back),
        )
        return bound_losses(self.run, plan)

    @property
    def days(self) -> tuple[date, ...]:
        """What a person or the schedule named, and the days that are rebuilt with them."""
        return tuple(sorted({*self.requested, *self.reassigned}))

    def committed(
        self, targets: Sequence[Target], seen: Mapping[date, SeenDay]
    ) -> dict[TopicPartition, list[Committed]]:
        key = tuple(targets), self.days
        if key not in self.known:
            self.known[key] = self.history.committed(
                targets,
                self.days,
                seen,
                transactional=spans(self.seals),
                force=self.force,
                unproven=self.unproven,
            )
        return self.known[key]

    def day_conflicts(self, plan: Plan) -> tuple[DayConflict, ...]:
        """The records that would be in several sealed days, or in none."""
        if not plan.days or not self.history.has_other_settings(self.run.stream.day_settings):
            return ()
        stream, targets = self.run.stream, [item.target for item in plan.logs]
        committed = self.committed(targets, seen_days(self.seals, stream=stream.name, time_zone=stream.time_zone))
        return day_conflicts(self.run, plan, self.history, committed, self.seals, force=self.force)


def _state(archived: Archived) -> ArchiveState:
    return ArchiveState(
        manifests=archived.manifests,
        broken_links=archived.broken_links,
        last_batches=tuple(
            LastBatch(writer=writer, batch=item.batch) for writer, item in sorted(archived.positions.items())
        ),
    )


def _unfilled(plan: Plan) -> list[LogRange]:
    """The gaps that Kafka can fill, by log and position."""
    return [
        LogRange(log=item.target.log, range=gap.range)
        for item in plan.logs
        for gap in item.gaps
        if gap.kind == "refill"
    ]


def _retention(run: Run, history: History) -> RetentionNote:
    """What Kafka holds after the run's end, for the report; an error of Kafka does not end the run."""
    try:
        found = read_retention(run.settings.kafka, run.stream, history.first_missing, datetime.now(UTC))
    except ServiceError as error:
        return RetentionNote(summary=f"unknown: {error}", alarm=False, lines=())
    for line in found.lines():
        _logger.warning("retention: %s", line)
    return RetentionNote(
        summary=found.summary,
        alarm=bool(found.late),
        lines=tuple(found.lines()),
        alarm_hours=float(found.alarm_hours),
        runways=tuple(
            Runway(
                topic=item.log.topic,
                partition=item.log.partition,
                hours_left=None if item.hours_left is None else round(float(item.hours_left), 2),
            )
            for item in found.waiting
        ),
    )


def _require_whole(run: Run, plan: Plan, lost: Sequence[str], *, truncated: bool) -> None:
    """No gap may be left, and nothing may be lost that nobody accepts."""
    unfilled = [f"{gap} not refilled" for gap in _unfilled(plan)]
    if not unfilled and not lost:
        return
    accept = (
        "To seal the days without the lost records, run them again and accept the loss: 'Accept losses' in the form of"
        f" reconcile_{run.stream.name}, or 'tidemark reconcile' with --accept-loss. A loss that a seal records stops no"
        " later run"
    )
    if truncated:
        accept = (
            "A broker that was just restarted may need a moment: run the days again first. An unclean leader election"
            f" or a lost disk removes records from a log's end permanently. {accept}"
        )
    raise IncompleteError(
        "the archive does not hold every offset of the run's targets",
        expected="no gap",
        found="; ".join([*lost, *unfilled]),
        where=f"run {run.name} of stream {run.stream.name}",
        hint=accept if lost else "Run step 'refill' again",
    )


def _lost(run: Run, plan: Plan, seals: Sequence[Seal]) -> list[str]:
    """A sentence for each loss that no seal records."""
    found = []
    for item in plan.logs:
        new = new_losses(item, seals)
        found += [
            loss_text(item.target.log, gap, run.stream.zone)
            for gap in item.gaps
            if gap.kind == "lost" and any(gap.range.intersect(span) for span in new)
        ]
    return [*found, *map(truncation_text, new_truncations(plan, seals))]
