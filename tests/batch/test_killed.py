"""A run of two days whose processes all die by SIGKILL, in each step that writes, and that is repeated each time.

Readers poll the table all the time, and read the current view after each kill (conformance 17, 18 and 26).
"""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, TUESDAY, Log, at
from tests.batch.test_table_maintenance import offsets, reconcile, table_of, verdict
from tests.conftest import MakeStream, Produce
from tests.speed.live import SpeedApp, running
from tests.waiting import wait_until
from tidemark.archive.stream.driver import archive
from tidemark.current_view.frame import current
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack
from tidemark.tables.seals import day_seals
from tidemark.tables.snapshot_summary import RUN_PROPERTY

pytestmark = pytest.mark.conformance(17, 18, 26)

RUN = "killed"
Days = Mapping[date, list[int]]


@pytest.fixture
def log(spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce) -> Log:
    """Monday is sealed, and then late records of it come; they and a part of Tuesday are not archived."""
    stream = make_stream(time_zone="America/New_York", value_format="raw", value_schema=None, batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    log.produce(6, at(MONDAY, 9))
    log.produce(2, at(TUESDAY, 9))
    archive(spark, stream, settings, available_now=True)
    reconcile(log, spark, "first", MONDAY)
    log.produce(2, at(TUESDAY, 9))
    log.produce(2, at(MONDAY, 20))
    return log


def moments(log: Log) -> Mapping[str, Callable[[], bool]]:
    """Per step what can be seen of it from outside as soon as it has written something."""
    tables = (log.stream.table, log.stream.quarantine_table)

    def tips() -> list[int | None]:
        return [table_of(log, name).metadata.current_snapshot_id for name in tables]

    before = tips()
    return {
        "refill": lambda: any(item.writer == f"refill-{RUN}" for item in log.manifests()),
        "rebuild": lambda: any(f"audit_{RUN}" in table_of(log, name).metadata.refs for name in tables),
        "publish": lambda: tips() != before,
        "seal": lambda: any(run == RUN for own in sealed(log).values() for _, run in own),
    }


def sealed(log: Log) -> dict[date, list[tuple[int, str]]]:
    """Version and run of each seal."""
    found = {day: day_seals(log.store, log.layout, day) for day in (MONDAY, TUESDAY)}
    return {day: [(item.version, item.run) for item in own] for day, own in found.items()}


def ended_or(app: SpeedApp, written: Callable[[], bool]) -> bool:
    return app.process.poll() is not None or written()


@contextmanager
def readers(log: Log) -> Iterator[list[Days]]:
    """What readers see of the published table, each state once, from now on to the end of the context."""
    seen: list[Days] = []
    over = Event()

    def poll() -> None:
        while True:
            ended = over.wait(0.3)
            found = offsets(log)
            if found not in seen[-1:]:
                seen.append(found)
            if ended:
                return

    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(poll)
        try:
            yield seen
        finally:
            over.set()
        polling.result()


def live(spark: SparkSession, log: Log) -> list[int]:
    """The offsets that the current view has."""
    rows = current(spark, log.settings, log.stream.name).select("_offset").collect()
    return sorted(row["_offset"] for row in rows)


def test_a_run_killed_in_any_writing_step_ends_as_usual_and_readers_see_whole_days(
    stack: LocalStack, spark: SparkSession, log: Log, tmp_path: Path
) -> None:

    def command(step: str) -> list[str]:
        attempt = [sys.executable, "-m", "tests.soak.attempt", log.stream.name, RUN, str(tmp_path)]
        return [*attempt, f"reconcile up to {step}", str(MONDAY), str(TUESDAY)]

    looks = [live(spark, log)]
    with readers(log) as seen:
        for step, written in moments(log).items():
            with running(command(step), tmp_path / f"{step}.log", stack.env) as app:
                wait_until(partial(ended_or, app, written), f"step {step}", 300)
                assert app.process.poll() is None, app.output
                app.kill()
            assert app.process.returncode == -signal.SIGKILL, app.output
            assert [line for line in app.output.splitlines() if line.startswith("step ")][-1] == f"step {step}"
            looks.append(live(spark, log))
        with running(command("report"), tmp_path / "last.log", stack.env) as app:
            assert app.wait() == 0, app.output

    after = {MONDAY: [0, 1, 2, 3, 4, 5, 10, 11], TUESDAY: [6, 7, 8, 9]}
    assert seen == [{MONDAY: [0, 1, 2, 3, 4, 5]}, after]
    for name in (log.stream.table, log.stream.quarantine_table):
        table = table_of(log, name)
        published = [table.snapshot_by_id(item.snapshot_id) for item in table.metadata.snapshot_log]
        runs = [item.summary[RUN_PROPERTY] for item in published if item is not None and item.summary is not None]
        assert runs == [None, "first", RUN]  # it began empty
    assert sealed(log) == {MONDAY: [(1, "first"), (2, RUN)], TUESDAY: [(1, RUN)]}
    assert (verdict(log, MONDAY), verdict(log, TUESDAY)) == ("proven []",) * 2
    # Before the refill; after it, wherever the run was killed; and in the end.
    assert [*looks, live(spark, log)] == [[*range(8)], *[[*range(12)]] * 5]
