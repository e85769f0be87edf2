"""The publish step: the audited branch becomes the table's days, atomically."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from tidemark.core.errors import ConflictError, QualityError
from tidemark.core.plan import DayPlan
from tidemark.core.seal import Seal
from tidemark.reconcile.fingerprints import require_same_plan
from tidemark.reconcile.results import held_days, new_run_hint, passed_days
from tidemark.run import Run
from tidemark.tables.iceberg import IcebergTable, Publication
from tidemark.tables.reader import load_table
from tidemark.tables.seals import read_seal
from tidemark.tables.snapshot_summary import INPUTS_PROPERTY, snapshot_summary


def publish_run(run: Run, spark: SparkSession) -> None:
    """Publish the quarantine, then the table; save publish.json.

    Days that the audit holds back stay as they are. Quarantine first lets a reader of a day's new rows find its new
    quarantine as well. Raises QualityError unless the
    branch passed its audit, ConflictError when another run published or sealed one of the days meanwhile.
    """
    with run.step("publish") as out:
        plan = run.plan()
        rebuilt = run.require("rebuild")
        require_same_plan(run, plan, rebuilt)
        since = run.require("settled")["main"]
        audit = _require_audited(run, rebuilt["staged_snapshot"])
        days = passed_days(plan, audit)
        _require_unsealed(run, days, rebuilt["inputs"])
        out |= {"snapshot_id": None, "quarantine_snapshot_id": None, "already": False}
        out["days"] = [item.day.isoformat() for item in days]
        if not days:
            return
        summary = snapshot_summary(
            plan.stream,
            {item.day: item.version for item in days},
            {item.target.log: item.used for item in plan.logs},
        )
        results = []
        for name, prefix in ((run.stream.quarantine_table, "quarantine_"), (run.stream.table, "")):
            publication = Publication(
                run=run.name,
                inputs=rebuilt["inputs"],
                branch=rebuilt["branch"],
                since=since[f"{prefix}snapshot"],
                base=rebuilt[f"{prefix}base_snapshot"],
                staged=rebuilt[f"{prefix}staged_snapshot"],
                days=tuple(item.day for item in days),
                summary=summary,
                held=tuple(held_days(audit)),
                hint=new_run_hint(run.stream.name, [item.day for item in days]),
            )
            published = IcebergTable(spark, run.settings, name).publish(publication)
            out[f"{prefix}snapshot_id"] = published.snapshot
            results.append(published.already)
        out["already"] = all(results)


def _require_unsealed(run: Run, days: Sequence[DayPlan], inputs: str) -> None:
    """Refuse where another run has sealed the version meanwhile, or this run has sealed it over other rows.

    A seal is final, so its rows must not change. Publishing the very same rows again does nothing.
    """
    for item in days:
        there = read_seal(run.store, run.layout, item.day, item.version)
        if there is None:
            continue
        if there.run == run.name:
            before = _inputs(run, there)
            if before == inputs:
                continue
            raise ConflictError(
                "this run has sealed the day already, over other rows",
                expected=f"inputs {before} of snapshot {there.snapshot_id}",
                found=f"inputs {inputs}",
                where=run.layout.seal_key(item.day, item.version),
                hint=new_run_hint(run.stream.name, [item.day]),
            )
        raise ConflictError(
            "a day was sealed while this run was rebuilding it",
            expected=f"no version {item.version} of {item.day}",
            found=f"that of run {there.run}",
            where=run.layout.seal_key(item.day, item.version),
            hint=new_run_hint(run.stream.name, [item.day]),
        )


def _inputs(run: Run, seal: Seal) -> str | None:
    """What the rows of a sealed snapshot were made of; None once it has expired."""
    table = load_table(run.settings, run.stream.table)
    snapshot = table.snapshot_by_id(seal.snapshot_id) if table is not None and seal.snapshot_id is not None else None
    return snapshot.summary[INPUTS_PROPERTY] if snapshot is not None and snapshot.summary is not None else None


def _require_audited(run: Run, staged: int | None) -> dict[str, Any]:
    audit = run.load("audit")
    where = run.key("audit")
    if audit is None or audit.get("status") != "ok" or audit.get("passed") is not True:
        found = "no audit" if audit is None else audit.get("error") or "not passed"
        raise QualityError(
            "only an audited branch is published",
            expected="a passed audit",
            found=found,
            where=where,
            hint="The run's report shows each check; where one could not be made, run the audit step again",
        )
    if audit.get("staged_snapshot") != staged:
        raise QualityError(
            "the audit was made of another rebuild",
            expected=f"snapshot {staged}",
            found=f"snapshot {audit.get('staged_snapshot')}",
            where=where,
            hint="Run the audit step again",
        )
    return audit
