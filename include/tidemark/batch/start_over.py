"""The publish step as the scheduler runs it: a run that was overtaken starts over instead of failing for good."""

from datetime import date

from pyspark.sql import SparkSession

from tidemark.batch.audit import audit_run
from tidemark.batch.plan import plan_run, refill_gaps, settle_run
from tidemark.batch.publish import publish_run
from tidemark.batch.rebuild import rebuild_run
from tidemark.batch.refill import refill_run
from tidemark.batch.run import Run
from tidemark.batch.seal import day_seals, seal_run
from tidemark.batch.tables import last_publication
from tidemark.core.errors import ConflictError, IncompleteError, QualityError


def publish_or_start_over(run: Run, spark: SparkSession) -> None:
    """``publish_run``; where that is refused because a day moved, every step from ``plan`` on once more, and then it.

    What the other run published of the days is sealed first, where it did not come to that yet: behind this run's rows
    it no longer could, and its version would be without proof.
    A scheduler repeats this step alone, which can't succeed over rows that another run published. One run of a stream
    at a time may be in here, so the second rebuild is not overtaken. What it was made for is saved in start_over.json.
    A start-over that was cut off leaves a step without result: the repeat begins it anew.
    """
    try:
        publish_run(run, spark)
    except (ConflictError, IncompleteError) as error:
        with run.step("start_over") as out:
            out["because"] = str(error)
            out["sealed_for"] = _seal_for_others(run)
            planned = run.require("plan")
            plan = plan_run(run, [date.fromisoformat(day) for day in planned["requested"]], planned["force"])
            if refill_gaps(plan):
                refill_run(run, spark)
            settle_run(run)
            for step in (rebuild_run, audit_run, publish_run):
                step(run, spark)


def _seal_for_others(run: Run) -> dict[str, str | None]:
    """Seal for each other run what it published of this run's days: by its name None, or why that can't be done.

    That is no reason to stop: its own step says the same, and the day's next version is this run's.
    """
    found: dict[str, str | None] = {}
    for day in sorted(item.day for item in run.plan().days):
        seen = last_publication(run.settings, run.stream.table, day)
        sealed = {item.snapshot_id for item in day_seals(run.store, run.layout, day)}
        if seen is None or seen.snapshot_id in sealed or seen.run in {run.name, *found}:
            continue
        try:
            seal_run(Run.open(run.stream.name, seen.run, run.settings))
        except (ConflictError, IncompleteError, QualityError) as error:
            found[seen.run] = str(error)
        else:
            found[seen.run] = None
    return found
