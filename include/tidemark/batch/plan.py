"""Steps ``plan`` and ``settled``: what a run reads and rebuilds; then, after the refill, that nothing is missing."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from tidemark.archive.history import History
from tidemark.archive.ledger import Archived, read_and_compact
from tidemark.batch.holes import classify_holes
from tidemark.batch.run import Run
from tidemark.batch.seal import latest_seals
from tidemark.batch.tables import main_snapshots
from tidemark.batch.targets import make_targets
from tidemark.core.codec import encode
from tidemark.core.errors import IncompleteError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Plan, Target
from tidemark.core.plan_json import plan_to_value
from tidemark.core.planner import plan_committed
from tidemark.core.seal import Seal


def plan_run(run: Run, days: Sequence[date], force: bool) -> Plan:
    """Step ``plan``: fix the targets and plan them.

    The result also lists the ranges to refill and every broken link in a writer's chain of manifests; neither stops
    the run. Raises what ``read_archived``, ``make_targets`` and ``plan_committed`` raise.
    """
    with run.step("plan") as out:
        requested = sorted(set(days))
        out |= {"requested": [day.isoformat() for day in requested], "force": force}
        archived = read_and_compact(run.store, run.layout, run.stream)
        seals = latest_seals(run.store, run.layout)
        history = archived.history()
        targets = make_targets(run.stream, run.settings, requested, history.extents(), seals)
        plan = _plan(
            run, out, archived, history=history, requested=requested, targets=targets, seals=seals, force=force
        )
        out["refill"] = [{**encode(log), "start": gap.start, "end": gap.end} for log, gap in refill_gaps(plan)]
        return plan


def settle_run(run: Run) -> Plan:
    """Step ``settled``: plan the very same targets again, with what the refill and the stream archived since.

    Holes get their evidence here, where the plan is final and Kafka still holds the most (``classify_holes``).

    Raises IncompleteError, naming every range, where a gap is left or offsets are lost that the stream does not
    accept to lose (``batch.accept_loss``); the plan is saved all the same.
    """
    with run.step("settled") as out:
        planned = run.require("plan")
        out |= {"requested": planned["requested"], "force": planned["force"]}
        requested = [date.fromisoformat(day) for day in planned["requested"]]
        targets = [item.target for item in run.plan("plan").logs]
        # What readers see before anything is read: publication refuses where another run moves a day from here on.
        out["main"] = main_snapshots(run.settings, run.stream)
        archived = read_and_compact(run.store, run.layout, run.stream)
        seals = latest_seals(run.store, run.layout)
        plan = _plan(
            run,
            out,
            archived,
            history=archived.history(),
            requested=requested,
            targets=targets,
            seals=seals,
            force=planned["force"],
        )
        _require_whole(run, plan)
        if plan.days:
            plan, out["holes"] = classify_holes(run, plan, seals)
            out["plan"] = plan_to_value(plan)
        return plan


def refill_gaps(plan: Plan) -> tuple[tuple[TopicPartition, OffsetRange], ...]:
    """The ranges to fetch from Kafka, by log and position."""
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
    plan = plan_committed(
        stream=run.stream.name,
        time_zone=run.stream.time_zone,
        run=run.name,
        requested=requested,
        targets=targets,
        committed=history.committed(targets, requested, seals, force=force),
        seals=seals,
        force=force,
    )
    out |= {
        "plan": plan_to_value(plan),
        "manifests": archived.manifests,
        "broken_chains": [{**encode(link), "finding": str(link)} for link in archived.broken_links],
    }
    return plan


def _require_whole(run: Run, plan: Plan) -> None:
    accepted = run.stream.batch.accept_loss
    missing = [
        f"{item.target.log} {gap.range} {'lost to retention' if gap.kind == 'lost' else 'not refilled'}"
        for item in plan.logs
        for gap in item.gaps
        if gap.kind == "refill" or not accepted
    ]
    if not missing:
        return
    lost = not accepted and any(gap.kind == "lost" for item in plan.logs for gap in item.gaps)
    raise IncompleteError(
        "the archive does not hold every offset of the run's targets",
        expected="no gap",
        found="; ".join(missing),
        where=f"run {run.name} of stream {run.stream.name}",
        hint="Set batch.accept_loss to seal the days without the lost records" if lost else "Run step 'refill' again",
    )
