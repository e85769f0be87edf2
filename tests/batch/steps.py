"""Steps of a reconcile run in short, for the tests that are about another one."""

from pyspark.sql import SparkSession

from tidemark.run import Run


def pass_audit(run: Run, spark: SparkSession) -> None:
    """What a passed audit leaves behind, without its dozen Spark jobs. ``spark`` makes it a step as any other."""
    rebuilt = run.require("rebuild")
    with run.step("audit") as out:
        out |= {"staged_snapshot": rebuilt["staged_snapshot"], "days": list(rebuilt["days"]), "checks": []}
        out |= {"passed": True, "held": rebuilt["held"]}
