"""Weekly maintenance as the DAG runs it, beside a run and readers: tables, ledger, compaction, deletion."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.archive.small import START, ZONE, Small, row_of
from tests.batch.logs import MONDAY, TUESDAY, Log
from tests.batch.steps import pass_audit
from tests.batch.test_table_maintenance import offsets, reconcile, staged, verdict
from tests.conftest import MakeStream, Produce
from tidemark.current_view.frame import current
from tidemark.maintenance import replaced as replaced_objects
from tidemark.maintenance import run as maintenance
from tidemark.maintenance import tables
from tidemark.maintenance.run import maintain_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(26, 52)

RECORDS, PER_RANGE = 32, 2  # one an hour: 4 on Monday, 24 on Tuesday, 4 on Wednesday


class AWeekAgo(datetime):
    """A clock that is eight days slow."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # a plain one
        return datetime.now(tz) - timedelta(days=8)


def test_maintenance_changes_nothing_for_a_concurrent_run_and_its_readers(
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = make_stream(time_zone=str(ZONE), batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    times = [START + timedelta(hours=offset) for offset in range(RECORDS)]
    values = [b'{"n":%d}' % (offset * offset) for offset in range(RECORDS)]
    archived_rows = [row_of(log.owner(), offset, times[offset], values[offset]) for offset in range(RECORDS)]
    produce(
        stream.topic,
        [(row["key"], row["value"], int(row["timestamp"].timestamp() * 1000), 0, []) for row in archived_rows],
    )
    small = Small(
        store=log.store,
        stream=stream,
        prefix=settings.prefix,
        path=lambda moment: f"day={moment.astimezone(ZONE):%d}",
        moments=times.__getitem__,
        values=values.__getitem__,
    )
    for start in range(0, RECORDS, PER_RANGE):
        small.commit(start, start + PER_RANGE, log=log.owner(), at=datetime.now(UTC) - timedelta(days=20))
    archived = [(offset, offset * offset) for offset in range(RECORDS)]

    def seen() -> list[tuple[int, int]]:
        """The current view's records."""
        found = current(spark, settings, stream.name).select("_offset", "n").collect()
        return sorted((row["_offset"], row["n"]) for row in found)

    def maintained(name: str) -> dict[str, Any]:
        run = log.run(name)
        maintain_run(run, spark)
        return run.require(maintenance.MAINTAIN)

    reconcile(log, spark, "monday", MONDAY)
    tuesday = staged(log, spark, "tuesday", TUESDAY)
    replaced = small.objects().keys()

    with monkeypatch.context() as patch:
        patch.setattr(maintenance, "datetime", AWeekAgo)
        patch.setattr(tables, "datetime", AWeekAgo)
        done = maintained("a-week-ago")

    (made,) = small.compactions()
    assert (done["compacted"]["ranges"], done["compacted"]["batches"]) == (RECORDS // PER_RANGE, 1)
    assert (done["ledger"]["manifests"], done["replaced"]["deleted"]) == (RECORDS // PER_RANGE, 0)
    assert small.objects().keys() == {*replaced, *(file.key for file in made.files)}
    assert seen() == archived  # Monday's from the table, the others from the compacted objects
    assert verdict(log, MONDAY) == "proven []"

    pass_audit(tuesday, spark)
    publish_run(tuesday, spark)
    seal_run(tuesday)
    monkeypatch.setattr(replaced_objects, "DELETED_AFTER", timedelta(0))  # the test has just written them
    done = maintained("today")

    assert (done["replaced"]["deleted"], done["replaced"]["kept"]) == (RECORDS // PER_RANGE, [])
    assert small.objects().keys() == {file.key for file in made.files}
    assert offsets(log) == {MONDAY: [*range(4)], TUESDAY: [*range(4, 28)]}
    assert seen() == archived
    assert (verdict(log, MONDAY), verdict(log, TUESDAY)) == ("proven []",) * 2
    assert maintained("again")["replaced"]["deleted"] == 0
