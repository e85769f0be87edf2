"""The publish step: the audited branch becomes the table's days, atomically."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from tidemark.core.errors import ConflictError, QualityError
from tidemark.core.plan import DayPlan
from tidemark.core.seal import Seal
from tidemark.reconcile.approval import require_approval
from tidemark.reconcile.fingerprints import require_same_plan
from tidemark.reconcile.lease import check_lease
from tidemark.reconcile.lineage import step_with_lineage
from tidemark.reconcile.results import (
    AUDIT,
    PLAN,
    PUBLISH,
    REBUILD,
    AuditResult,
    PublishResult,
    RebuildResult,
    StagedRows,
    final_plan,
    new_run_hint,
)
from tidemark.run import Run
from tidemark.tables.columns import branch_name
from tidemark.tables.iceberg import IcebergTable, Publication, Published
from tidemark.tables.reader import load_table
from tidemark.tables.seals import read_seal
from tidemark.tables.snapshot_summary import INPUTS_PROPERTY, snapshot_summary


def publish_run(run: Run, spark: SparkSession) -> None:
    """Publish the quarantine, then the table; save publish.json.

    Days that the audit holds back stay as they are. The quarantine comes first, so that a reader of a day's new rows
    finds its new quarantine. A process that dies between the two leaves half a publication. A repeat finishes it,
    unless another run has published one of the days since.

    Raises QualityError unless the branch passed its audit, ApprovalError if a person has to approve it and did not,
    ConflictError when another run published or sealed one of the days meanwhile, or holds the stream's lease.
    """
    with step_with_lineage(run, PUBLISH) as attempt:
        plan = final_plan(run)
        rebuilt = run.require(REBUILD)
        require_same_plan(run, plan, rebuilt)
        main = run.require(PLAN).main
        audit = _require_audited(run, rebuilt)
        days = audit.passed_days(plan)
        require_approval(run)
        sealed = _require_unsealed(run, days, rebuilt.inputs)
        attempt.result = PublishResult(days=tuple(item.day for item in days))
        if not days or rebuilt.branch is None or rebuilt.staged is None or rebuilt.quarantine is None:
            return
        summary = snapshot_summary(
            plan.stream, {item.day: item.version for item in days}, {item.target.log: item.used for item in plan.logs}
        )

        def publish(name: str, since: int | None, rows: StagedRows) -> Published:
            publication = Publication(
                run=run.name,
                inputs=rebuilt.inputs,
                branch=branch_name(run.name),
                since=since,
                base=rows.base,
                staged=rows.snapshot,
                days=tuple(item.day for item in days),
                summary=summary,
                held=tuple(item.day for item in audit.held),
                hint=new_run_hint(run.stream.name, [item.day for item in days]),
                sealed=sealed,
            )
            check_lease(run)
            return IcebergTable(spark, run.settings, name).publish(publication)

        quarantine = publish(run.stream.quarantine_table, main.quarantine, rebuilt.quarantine)
        published = publish(run.stream.table, main.published, rebuilt.staged)
        attempt.result = replace(
            attempt.result,
            snapshot_id=published.snapshot,
            quarantine_snapshot_id=quarantine.snapshot,
            already=quarantine.already and published.already,
        )


def _require_unsealed(run: Run, days: Sequence[DayPlan], inputs: str) -> bool:
    """Refuse where another run has sealed the version meanwhile, or this run has sealed it over other rows.

    A seal is final, so its rows must not change. Publishing the very same rows again does nothing. Returns whether this
    run has sealed all of the days.
    """
    sealed = 0
    for item in days:
        there = read_seal(run.store, run.layout, item.day, item.version)
        if there is None:
            continue
        problem = "a day was sealed while this run was rebuilding it"
        expected, found = f"no version {item.version} of {item.day}", f"that of run {there.run}"
        if there.run == run.name:
            before = _inputs(run, there)
            if before == inputs:
                sealed += 1
                continue
            problem = "this run has sealed the day already, over other rows"
            expected, found = f"inputs {before} of snapshot {there.snapshot_id}", f"inputs {inputs}"
        where, hint = run.layout.seal_key(item.day, item.version), new_run_hint(run.stream.name, [item.day])
        raise ConflictError(problem, expected=expected, found=found, where=where, hint=hint)
    return sealed == len(days)


def _inputs(run: Run, seal: Seal) -> str | None:
    """The inputs' fingerprint of a sealed snapshot; None once it has expired."""
    table = load_table(run.settings, run.stream.table)
    snapshot = table.snapshot_by_id(seal.snapshot_id) if table is not None and seal.snapshot_id is not None else None
    return snapshot.summary[INPUTS_PROPERTY] if snapshot is not None and snapshot.summary is not None else None


def _require_audited(run: Run, rebuilt: RebuildResult) -> AuditResult:
    audit = run.outcome(AUDIT)
    where = run.key(AUDIT.name)
    if audit is None or audit.status != "ok" or audit.result is None or not audit.result.passed:
        raise QualityError(
            "only an audited branch is published",
            expected="a passed audit",
            found="no audit" if audit is None else audit.error or "not passed",
            where=where,
            hint="The run's report shows each check; where one could not be made, run the audit step again",
        )
    staged = rebuilt.staged.snapshot if rebuilt.staged else None
    if audit.result.staged != staged:
        raise QualityError(
            "the audit was made of another rebuild",
            expected=f"snapshot {staged}",
            found=f"snapshot {audit.result.staged}",
            where=where,
            hint="Run the audit step again",
        )
    return audit.result
