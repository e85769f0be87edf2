"""The publish step: the audited branch becomes the table's days, atomically."""

import json

from pyspark.sql import SparkSession

from tidemark.batch.iceberg import IcebergTable, Publication
from tidemark.batch.inputs import require_same_plan
from tidemark.batch.run import Run
from tidemark.core.errors import QualityError
from tidemark.core.offsets import normalise
from tidemark.core.plan import Plan


def publish_run(run: Run, spark: SparkSession) -> None:
    """Publish the quarantine, then the table; save publish.json.

    That order lets a reader who sees a day's new rows find its new quarantine as well. Raises QualityError unless the
    branch passed its audit, ConflictError when a day moved meanwhile (rebuild again).
    """
    with run.step("publish") as out:
        plan = run.plan()
        rebuilt = run.require("rebuild")
        require_same_plan(run, plan, rebuilt)
        since = run.require("settled")["main"]
        _require_audited(run, rebuilt["staged_snapshot"])
        out |= {"snapshot_id": None, "quarantine_snapshot_id": None, "already": False}
        if not plan.days:
            return
        summary = _summary(plan)
        results = []
        for name, prefix in ((run.stream.quarantine_table, "quarantine_"), (run.stream.table, "")):
            publication = Publication(
                run=run.name,
                inputs=rebuilt["inputs"],
                branch=rebuilt["branch"],
                since=since[f"{prefix}snapshot"],
                base=rebuilt[f"{prefix}base_snapshot"],
                staged=rebuilt[f"{prefix}staged_snapshot"],
                days=tuple(item.day for item in plan.days),
                summary=summary,
            )
            published = IcebergTable(spark, run.settings, name).publish(publication)
            out[f"{prefix}snapshot_id"] = published.snapshot
            results.append(published.already)
        out["already"] = all(results)


def _require_audited(run: Run, staged: int | None) -> None:
    audit = run.load("audit")
    where = run.key("audit")
    if audit is None or audit.get("status") != "ok" or audit.get("passed") is not True:
        found = "no audit" if audit is None else audit.get("error") or "not passed"
        raise QualityError("only an audited branch is published", expected="a passed audit", found=found, where=where)
    if audit.get("staged_snapshot") != staged:
        raise QualityError(
            "the audit was made of another rebuild",
            expected=f"snapshot {staged}",
            found=f"snapshot {audit.get('staged_snapshot')}",
            where=where,
            hint="Run the audit step again",
        )


def _summary(plan: Plan) -> dict[str, str]:
    """What the snapshots tell about where their rows come from."""
    ranges = {
        f"{item.target.log.topic_id}/{item.target.log}": [
            [part.start, part.end] for part in normalise(used.range for used in item.used)
        ]
        for item in plan.logs
    }
    return {
        "tidemark.stream": plan.stream,
        "tidemark.versions": json.dumps({item.day.isoformat(): item.version for item in plan.days}, sort_keys=True),
        "tidemark.ranges": json.dumps(ranges, sort_keys=True, separators=(",", ":")),
    }
