"""Steps ``plan`` and ``settled``: what a run refills and rebuilds; then, after the refill, that nothing is missing."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import Archived, read_and_compact
from tidemark.archive.retention import read_retention
from tidemark.core.codec import encode
from tidemark.core.errors import IncompleteError, ServiceError
from tidemark.core.loss_text import loss_text
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Plan, Target
from tidemark.core.planner import plan_committed
from tidemark.core.seal import Seal, seen_days
from tidemark.core.transaction_holes import spans
from tidemark.reconcile.plan.holes import LogRanges, classify_holes
from tidemark.reconcile.plan.losses import bound_losses, new_losses, reach_back
from tidemark.reconcile.plan.targets import make_targets, raise_log_starts
from tidemark.run import Run
from tidemark.tables.seals import latest_seals
from tidemark.tables.snapshots import main_snapshots

_logger = logging.getLogger(__name__)


def plan_run(run: Run, days: Sequence[date], force: bool) -> Plan:
    """Step ``plan``: fix the targets and plan them.

    The result also lists the ranges to refill and every broken link in a writer's chain of manifests; neither stops
    the run. To refill are the gaps, and of holes what Kafka gives committed records at (``in_hole``): the archive may
    lack those for good once retention has passed. Raises what ``read_archived``, ``make_targets`` and
    ``plan_committed`` raise.
    """
    with run.step("plan") as out:
        requested = sorted(set(days))
        out |= {"requested": [day.isoformat() for day in requested], "force": force}
        # Before anything is read: publication is refused where another run publishes one of the days after this.
        out["main"] = main_snapshots(run.settings, run.stream)
        archived = read_and_compact(run.store, run.layout, run.stream)
        seals = latest_seals(run.store, run.layout)
        history = archived.history()
        targets = make_targets(run.stream, run.settings, requested, history, seals)
        planned = partial(_plan, run, out, archived, history=history, requested=requested, seals=seals, force=force)
        plan = planned(targets=targets)
        if (reaching := reach_back(run, plan, seals)) != targets:
            plan = planned(targets=reaching)
        lacked: LogRanges = ()
        if plan.days:
            plan, out["holes"], lacked = classify_holes(run, plan, seals)
            out["plan"] = encode(plan)
            for note in out["holes"]["notes"]:
                _logger.warning("holes: %s", note)
        ranges = sorted([*((*gap, False) for gap in _unfilled(plan)), *((*part, True) for part in lacked)])
        out["refill"] = [
            {**encode(log), "start": part.start, "end": part.end, "in_hole": in_hole} for log, part, in_hole in ranges
        ]
        return plan


def settle_run(run: Run) -> Plan:
    """Step ``settled``: plan the very same targets again, with what the refill and the stream archived since.

    Holes that are new since step ``plan``, or that the refill went into, get their evidence here (``classify_holes``).
    What Kafka gives of those is the next run's to refill.

    Raises IncompleteError, naming every range, where a gap is left or offsets are lost that the stream does not
    accept to lose (``batch.accept_loss``) and no seal has told of; the plan is saved all the same.
    """
    with run.step("settled") as out:
        planned = run.require("plan")
        out |= {"requested": planned["requested"], "force": planned["force"], "planned_at": planned["started_at"]}
        out["main"] = planned["main"]
        requested = [date.fromisoformat(day) for day in planned["requested"]]
        seals = latest_seals(run.store, run.layout)
        first = run.plan("plan")
        targets = [item.target for item in first.logs]
        archived = read_and_compact(run.store, run.layout, run.stream)
        history = archived.history()
        out["retention"] = _retention(run, history)
        settle = partial(
            _plan, run, out, archived, history=history, requested=requested, seals=seals, force=planned["force"]
        )
        plan = settle(targets=targets)
        if _unfilled(plan):  # retention may have taken them since they were planned: then they are lost
            plan = settle(targets=raise_log_starts(run.settings.kafka_bootstrap, targets))
        _require_whole(run, plan, seals)
        if plan.days:
            refilled = _ranges(item for item in planned["refill"] if item["in_hole"])
            plan, out["holes"], _ = classify_holes(run, plan, seals, looked=first.logs, refilled=refilled)
            out["plan"] = encode(plan)
        return plan


def refill_ranges(run: Run) -> LogRanges:
    """The ranges to fetch from Kafka, by log and position, as step ``plan`` has saved them."""
    return _ranges(run.require("plan")["refill"])


def _ranges(items: Iterable[Mapping[str, Any]]) -> LogRanges:
    return tuple(
        (
            TopicPartition(topic=item["topic"], topic_id=item["topic_id"], partition=item["partition"]),
            OffsetRange(start=item["start"], end=item["end"]),
        )
        for item in items
    )


def _unfilled(plan: Plan) -> LogRanges:
    """The gaps that Kafka can fill, by log and position."""
    return tuple((item.target.log, gap.range) for item in plan.logs for gap in item.gaps if gap.kind == "refill")


def _plan(
    run: Run,
    out: dict[str, Any],
    archived: Archived,
    *,
    history: History,
    requested: Sequence[date],
    targets: Sequence[Target],
    seals: Sequence[Seal],
    force: bool,
) -> Plan:
    back = run.stream.batch.reopen_days
    seen = seen_days(seals, stream=run.stream.name, time_zone=run.stream.time_zone)
    plan = plan_committed(
        stream=run.stream.name,
        run=run.name,
        requested=requested,
        targets=targets,
        committed=history.committed(targets, requested, seen, transactional=spans(seals), force=force),
        seen=seen,
        force=force,
        reopen_from=None if back is None else max(requested) - timedelta(days=back),
    )
    plan = bound_losses(run, plan)
    out |= {
        "plan": encode(plan),
        "manifests": archived.manifests,
        "broken_chains": [{**encode(link), "finding": str(link)} for link in archived.broken_links],
    }
    return plan


def _retention(run: Run, history: History) -> dict[str, Any]:
    """What waits in Kafka behind the run, for the report; that it can't be told does not end the run."""
    try:
        found = read_retention(run.settings.kafka_bootstrap, run.stream, history, datetime.now(UTC))
    except ServiceError as error:
        return {"told": f"unknown: {error}", "alarm": False, "lines": []}
    for line in found.lines():
        _logger.warning("retention: %s", line)
    return {"told": found.told, "alarm": bool(found.late), "lines": list(found.lines())}


def _require_whole(run: Run, plan: Plan, seals: Sequence[Seal]) -> None:
    """No gap may be left. A loss must be one that the stream accepts, or has accepted before: then a seal has it."""
    unfilled = [f"{log} {gap} not refilled" for log, gap in _unfilled(plan)]
    lost = [] if run.stream.batch.accept_loss else _lost(run, plan, seals)
    if not unfilled and not lost:
        return
    accept = (
        "Set batch.accept_loss to seal the days without the lost records, and run them again; a loss that a seal has is"
        " known from then on, and the setting may be taken back"
    )
    raise IncompleteError(
        "the archive does not hold every offset of the run's targets",
        expected="no gap",
        found="; ".join([*lost, *unfilled]),
        where=f"run {run.name} of stream {run.stream.name}",
        hint=accept if lost else "Run step 'refill' again",
    )


def _lost(run: Run, plan: Plan, seals: Sequence[Seal]) -> list[str]:
    """A sentence for each loss that no seal has."""
    told = []
    for item in plan.logs:
        new = new_losses(item, seals)
        told += [
            loss_text(item.target.log, gap, run.stream.zone)
            for gap in item.gaps
            if gap.kind == "lost" and any(gap.range.intersect(span) for span in new)
        ]
    return told
