"""The publish step as the scheduler runs it: a run that was overtaken starts over instead of failing for good."""

from datetime import date

from pyspark.sql import SparkSession

from tidemark.batch.audit import audit_run
from tidemark.batch.plan import plan_run, refill_gaps, settle_run
from tidemark.batch.publish import publish_run
from tidemark.batch.rebuild import rebuild_run
from tidemark.batch.refill import refill_run
from tidemark.batch.run import Run
from tidemark.core.errors import ConflictError, IncompleteError


def publish_or_start_over(run: Run, spark: SparkSession) -> None:
    """``publish_run``; where that is refused because a day moved, every step from ``plan`` on once more, and then it.

    A scheduler repeats this step alone, which can't succeed over rows that another run published. One run of a stream
    at a time may be in here, so the second rebuild is not overtaken. What it was made for is saved in start_over.json.
    A start-over that was cut off leaves a step without result: the repeat begins it anew.
    """
    try:
        publish_run(run, spark)
    except (ConflictError, IncompleteError) as error:
        with run.step("start_over") as out:
            out["because"] = str(error)
            planned = run.require("plan")
            plan = plan_run(run, [date.fromisoformat(day) for day in planned["requested"]], planned["force"])
            if refill_gaps(plan):
                refill_run(run, spark)
            settle_run(run)
            for step in (rebuild_run, audit_run, publish_run):
                step(run, spark)
