"""One attempt of a run, as a process that can be killed: ``python -m tests.soak.attempt``.

It does what Airflow would do next: the steps that have not succeeded, in order. It prints ``step NAME`` before each.
``reconcile`` and ``force`` are the steps of a reconcile run; ``reassign`` also rebuilds the days that records move
between. ``reconcile with patience SECONDS`` waits for open transactions at most that long, and prints ``WAITS`` when it
waits. ``roll back`` takes the day to its first version.
``maintain`` is the weekly maintenance, where everything is old enough to be compacted. ``maintain and delete`` also
deletes everything that was replaced; no run and no stream may be running then. ``maintain and delete before MOMENT``
deletes only what was replaced and written before; a stream that started later may be running. ``plan`` is that step
alone, without the stream's lease.

Before and after each step, it writes the rows of the current view to a file: (partition, offset, n), without n if the
stream has none. The file's name starts with the time when the read started, in ns since the epoch.
``reconcile up to STEP`` does not read the view. After that step it waits to be killed; after the last step it ends.
``reconcile half`` kills itself when it has published the quarantine and is about to publish the table.
"""

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.core.errors import TidemarkError
from tidemark.core.outcome import RunStep
from tidemark.current_view.frame import current
from tidemark.maintenance import compaction, expiry, replaced
from tidemark.maintenance.run import maintain_run
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.lease import holding, release, take
from tidemark.reconcile.plan import targets
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import PLAN
from tidemark.reconcile.rollback import rollback_day
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import settings
from tidemark.spark.session import spark_session
from tidemark.tables.iceberg import IcebergTable, Publication, Published

STEPS = ("plan", "refill", "finalize_plan", "rebuild", "audit", "publish", "seal", "report")
UP_TO = "reconcile up to "
HALF = "reconcile half"
DELETE = "maintain and delete"
PATIENCE = "reconcile with patience "
WAITS = "waits for a transaction"


def main() -> None:
    """Arguments: stream, run, a folder for the rows of the current view, what to do, and the days."""
    stream, name, views, what, *dates = sys.argv[1:]
    days = [date.fromisoformat(day) for day in dates]
    if what == HALF:
        _die_before(stream)
    if what.startswith(PATIENCE):
        _wait_at_most(float(what.removeprefix(PATIENCE)))
    try:
        run = Run.open(stream, name, settings())
        with spark_session(run.settings, f"soak-{name}") as spark:

            def save_view() -> None:
                if not what.startswith(UP_TO):
                    _write_view(spark, run, Path(views))

            with _leased(run) if what.startswith(("reconcile", "force", "reassign")) else nullcontext():
                for step, act in _steps(run, spark, what, days):
                    if _done(run, step):
                        continue
                    save_view()
                    print(f"step {step}", flush=True)  # noqa: T201  # for the parent process
                    act()
                    if what == f"{UP_TO}{step}" and step != STEPS[-1]:
                        signal.pause()
            save_view()
    except TidemarkError as error:
        sys.exit(f"{type(error).__name__}: {error}")


def _die_before(table: str) -> None:
    publish = IcebergTable.publish

    def die(self: IcebergTable, publication: Publication) -> Published:
        if self.identifier.endswith(f".{table}"):
            os.kill(os.getpid(), signal.SIGKILL)
        return publish(self, publication)

    IcebergTable.publish = die  # type: ignore[method-assign]  # in this process alone


def _wait_at_most(patience_s: float) -> None:
    def wait(seconds: float) -> None:
        print(WAITS, flush=True)  # noqa: T201  # for the parent process
        time.sleep(seconds)

    targets.PATIENCE_S = patience_s
    targets.sleep = wait  # type: ignore[attr-defined, assignment]  # in this process alone


@contextmanager
def _leased(run: Run) -> Iterator[None]:
    """Wait for the stream's lease, and release it when the run has done all of its steps, as Airflow's tasks do."""
    while take(run) is not None:
        time.sleep(1)  # as a sensor does
    with holding(run):
        yield
    release(run)


def _steps(run: Run, spark: SparkSession, what: str, days: list[date]) -> list[tuple[str, Callable[[], object]]]:
    if what == "roll back":
        return [("rollback", lambda: rollback_day(run, spark, day=days[0], version=1))]
    if what.startswith("maintain"):
        return [("maintain", lambda: _maintain(run, spark, what))]
    if what == "plan":
        return [("plan", lambda: plan_run(run, days, force=False))]
    acts: tuple[Callable[[], object], ...] = (
        lambda: plan_run(run, days, force=what == "force", reassign_days=what == "reassign"),
        lambda: refill_run(run, spark) if run.require(PLAN).refill else None,
        lambda: finalize_plan_run(run),
        lambda: rebuild_run(run, spark),
        lambda: audit_run(run, spark),
        lambda: publish_run(run, spark),
        lambda: seal_run(run),
        lambda: report_run(run),
    )
    return list(zip(STEPS, acts, strict=True))


def _maintain(run: Run, spark: SparkSession, what: str) -> None:
    compaction.MIN_AGE = timedelta(0)  # type: ignore[attr-defined]  # compaction imports it from core.maintenance_ages
    if what.startswith(DELETE):
        moment = what.removeprefix(DELETE).removeprefix(" before ")
        age = datetime.now(UTC) - datetime.fromisoformat(moment) if moment else timedelta(0)
        replaced.KEPT_FOR = replaced.DELETED_AFTER = age  # type: ignore[attr-defined]  # as above
        expiry.ABANDONED_AFTER = age
    maintain_run(run, spark)


def _done(run: Run, step: str) -> bool:
    found = run.outcome(RunStep(step, dict[str, Any]))
    return found is not None and found.status == "ok"


def _write_view(spark: SparkSession, run: Run, folder: Path) -> None:
    """Write every row of the current view to a file, with its source."""
    began = time.time_ns()
    view = current(spark, run.settings, run.stream.name)
    names = [name for name in ("_kafka_partition", "_offset", "n") if name in view.columns]
    found = view.select(*(F.col(name).cast("bigint") for name in names)).toArrow()
    part = folder / f"{began}-{uuid.uuid4().hex}.part"
    with part.open("wb") as file:  # written atomically, because this process may be killed
        np.save(file, np.stack([found[name].to_numpy() for name in names]))
    part.rename(part.with_suffix(".npy"))


if __name__ == "__main__":
    main()
