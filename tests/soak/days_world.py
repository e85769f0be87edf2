"""A stream over several days: its feeder, its archive application, attempts of its runs, and its readers."""

import json
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from threading import Event, Thread

import numpy as np
import yaml
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.archive.apps import ArchiveApp
from tests.archive.oracle import Oracle
from tests.catalog import another_catalog
from tests.soak.days_oracle import (
    CLOCKS,
    DAY_RECORDS,
    EPOCH,
    FIRST_DAY,
    LAST_DAY,
    PAIR,
    PARTITIONS,
    Ends,
    History,
    RunRequest,
    Snapshot,
    contiguous,
    day_of,
    ends_of,
    moment_ms,
    published,
    quarantined,
    torn_day,
    torn_view,
    twins,
)
from tests.soak.feed import ANY_TIME, Feeder
from tests.speed.live import SpeedApp, running
from tests.waiting import wait_until
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.layout import Layout
from tidemark.core.seal import Seal
from tidemark.kafka.topics import ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.stack.local import LocalStack
from tidemark.tables.seals import day_seals

DEADLINE_S = 900
POLL_S = 1  # between two reads of the reader
TRANSFORM = f"""\
from pyspark.sql.functions import expr


def transform(records):
    return records.select("source", "event_time", "event.n").withColumn("pair", expr("{PAIR}"))
"""


class DaysWorld:
    """``endings`` counts how attempts ended; ``problems`` are errors that readers saw, as texts.

    ``dated_by_timestamp``: the records' timestamps give their days, and the log has no other records.
    """

    def __init__(self, stack: LocalStack, folder: Path, name: str, feeder: Feeder, *, dated_by_timestamp: bool) -> None:
        self.stack, self.folder, self.name, self.feeder, self.dated_by_timestamp = (
            stack,
            folder,
            name,
            feeder,
            dated_by_timestamp,
        )
        self.endings: Counter[str] = Counter()
        self.problems: list[str] = []
        self.snapshots = 0
        self.views = 0
        self.attempts = 0
        self.next_day = FIRST_DAY
        self.stray_days: list[date] = []  # of wrong clocks, once a run is asked for them
        self._archive: ArchiveApp | None = None
        self._views = folder / "views"
        self._views.mkdir()
        self._bucket = Oracle(stack.settings, self.name)
        self._manifest = cache(lambda key: json.loads(self._bucket.body(key)))  # manifests never change
        self._archived: list[tuple[int, Ends]] = []  # the time in ns, and the complete end of the archive
        self._asked: dict[str, RunRequest] = {}
        self._read: set[int] = set()
        self._seen: list[Snapshot] = []
        self._history = History()
        self._failure: BaseException | None = None  # of the reader's thread

    # ---- processes

    def archive_up(self) -> ArchiveApp:
        """The archive stream; started if it does not run."""
        if self._archive is None:
            self._archive = ArchiveApp(self.stack, self.name, self.folder / "archive.log", forever=True)
        return self._archive

    def archive_down(self) -> None:
        """Send SIGKILL to all of its processes."""
        if self._archive is not None:
            self._archive.kill()
            self._archive.wait()
            self._archive = None

    def archive_to_the_end(self) -> ArchiveApp:
        """An application that ends when every record is archived."""
        return ArchiveApp(self.stack, self.name, self.folder / "archive.log")

    def attempt(
        self, run: str, days: Sequence[date], *, what: str = "reconcile", endpoint: str | None = None
    ) -> AbstractContextManager[SpeedApp]:
        """A process that works on a run; what is left of it at the end is killed."""
        self.attempts += 1
        if run not in self._asked:
            held = ends_of(self.feeder.acknowledged.copy()) if self.dated_by_timestamp else None
            self._asked[run] = RunRequest(days=tuple(days), archived=self._archived[-1][1], held=held)
        environment = {**self.stack.env, **({"TIDEMARK_S3_ENDPOINT": endpoint} if endpoint else {})}
        command = [sys.executable, "-m", "tests.soak.attempt", self.name, run, str(self._views), what, *map(str, days)]
        return running(command, self.folder / f"{run}-{self.attempts:04}.log", environment)

    def burst(self, records: int, clock: int = 0) -> list[date]:
        """Feed records, some of them also with that wrong clock. Return the finished days without a run."""
        before = self.feeder.in_order
        self.feeder.burst(records, clock)
        wait_until(lambda: self.feeder.in_order >= before + records, "the records are acknowledged", DEADLINE_S)
        over = FIRST_DAY + timedelta(days=self.feeder.in_order // DAY_RECORDS)  # the first unfinished day
        days = [self.next_day + timedelta(days=number) for number in range((over - self.next_day).days)]
        self.next_day = over
        return days

    def over(self) -> list[date]:
        """The finished days, all of which have a run."""
        return [FIRST_DAY + timedelta(days=number) for number in range((self.next_day - FIRST_DAY).days)] + [
            *self.stray_days
        ]

    def find_strays(self) -> list[date]:
        """The past days that only wrong clocks have, which are part of ``over`` from now on."""
        twice = {day_of(n) for n in self.feeder.acknowledged.values() if n >= 2 * CLOCKS}
        self.stray_days = sorted(twice - set(self.over()) - {LAST_DAY})
        return self.stray_days

    def seals(self, day: date) -> tuple[Seal, ...]:
        """The seals of all versions, in order."""
        layout = Layout(prefix=self.stack.settings.prefix, stream=self.name)
        return day_seals(ObjectStore(self.stack.settings), layout, day)

    def compacted(self) -> tuple[int, int]:
        """The ranges that compactions have replaced so far, and the number of their deleted objects."""
        replaced = [item for key in self._bucket.keys("manifests") for item in self._manifest(key).get("replaces", ())]
        there = self._bucket.keys("data").keys()
        return len(replaced), len({key for item in replaced for key, *_ in item["files"]} - there)

    # ---- readers

    @contextmanager
    def watched(self) -> Iterator[None]:
        """During the block, record the archive's end and read every state of the published table."""
        stop = Event()
        self._read_new_states()

        def watch() -> None:
            try:
                while not stop.wait(POLL_S):
                    self._read_new_states()
            except BaseException as error:  # noqa: BLE001  # raised when the states are judged
                self._failure = error

        thread = Thread(target=watch, name="reader")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        self._read_new_states()

    def _read_new_states(self) -> None:
        ends = contiguous(
            (item["partition"], item["start"], item["end"])
            for key in self._bucket.keys("manifests")
            for item in self._manifest(key)["ranges"]
        )
        self._archived.append((time.time_ns(), ends))
        try:
            with self._table(self.name) as table:
                for entry in table.metadata.snapshot_log:
                    if entry.snapshot_id not in self._read:
                        self._seen.append(_snapshot(table, entry.snapshot_id))
                        self._read.add(entry.snapshot_id)
        except NoSuchTableError:
            return  # nothing is published yet

    @contextmanager
    def _table(self, name: str) -> Iterator[Table]:
        with another_catalog(self.stack.settings) as catalog:
            yield catalog.load_table((self.stack.settings.namespace, name))

    def judge(self) -> None:
        """Compare everything read since the last call with what Kafka acknowledged."""
        if self._failure is not None:
            raise self._failure
        log = published(self.feeder.acknowledged.copy())
        seen, self._seen = self._seen, []
        for snapshot in seen:
            self.snapshots += 1
            found = self._history.problems(snapshot, log, self._asked, lambda day: self.seals(day)[0].snapshot_id or 0)
            self.problems += [f"snapshot {snapshot.identity}: {text}" for text in found]
        for view in sorted(self._views.glob("*.npy")):
            self.views += 1
            self.problems += [f"the current view: {text}" for text in torn_view(np.load(view), log, self._before(view))]
            view.unlink()

    def _before(self, view: Path) -> Ends:
        """The known end of the archive when the read started."""
        at = bisect_right(self._archived, int(view.name.partition("-")[0]), key=lambda item: item[0])
        return self._archived[at - 1][1] if at else contiguous(())

    def judge_tables(self) -> dict[str, int]:
        """Compare all rows of the finished days with everything acknowledged. Return their number."""
        everything, over = self.feeder.acknowledged, set(self.over())
        log = published(everything)
        with self._table(self.name) as table:
            now = table.current_snapshot()
            assert now is not None
            rows = _snapshot(table, now.snapshot_id).rows
        ends = {partition: int(records[-1, 0]) + 1 for partition, records in log.items()}
        for day in sorted(over):
            self.problems += [f"in the end: {text}" for text in torn_day(rows, (day - EPOCH).days, log, ends)]
        columns = ("_day", "_kafka_partition", "_offset", "kept_partition", "kept_offset")
        with self._table(f"{self.name}_quarantine") as table:
            found = table.scan(selected_fields=columns).to_arrow()
        aside = Counter(zip(*(found[name].to_pylist() for name in columns), strict=True))
        due = Counter(row for row in quarantined(everything) if row[0] in over)
        for text, wrong in (("is not due", aside - due), ("is missing", due - aside)):
            if wrong:
                self.problems.append(f"in the quarantine {text}: {wrong.total()} rows, such as {min(wrong, key=str)}")
        return {"published": rows.shape[1], "quarantined": aside.total()}


def _snapshot(table: Table, identity: int) -> Snapshot:
    found = table.snapshot_by_id(identity)
    assert found is not None
    assert found.summary is not None
    rows = table.scan(snapshot_id=identity, selected_fields=("_day", "_kafka_partition", "_offset", "n")).to_arrow()
    columns = [rows["_day"].cast("int32"), rows["_kafka_partition"], rows["_offset"], rows["n"]]
    return Snapshot(
        identity=identity,
        run=found.summary.additional_properties.get("tidemark.run", ""),
        rows=np.stack([column.to_numpy().astype(np.int64) for column in columns]),
    )


@contextmanager
def days_world(stack: LocalStack, folder: Path, name: str, *, dated_by_timestamp: bool) -> Iterator[DaysWorld]:
    """The stream with its topic and feeder. After the block, feeding has stopped and nothing runs.

    Otherwise a field of the value gives a record's day, and there are aborted transactions between the records.
    """
    definition = {
        "name": name,
        "topic": f"{name}-source",
        "time_zone": "UTC",
        "event_time": {"extractor": "record"}
        if dated_by_timestamp
        else {"extractor": "record_field", "field": "$.t", "format": "epoch_ms"},
        "value_schema": "n BIGINT",
        "archive": {"flush_size": 1_500, "trigger_seconds": 2},
        "batch": {"deduplicate": {"key": ["pair"]}},
        "speed": {"topic": f"{name}-live", "dead_letter_topic": f"{name}-dead"},
    }
    streams = stack.settings.streams_dir
    streams.mkdir(parents=True, exist_ok=True)
    (streams / f"{name}.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    (streams / f"{name}.py").write_text(TRANSFORM, encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    bootstrap = stack.settings.kafka_bootstrap
    ensure_topic(KafkaConnection.plain(bootstrap), f"{name}-source", partitions=PARTITIONS, config=ANY_TIME)
    feeder = Feeder(
        bootstrap,
        f"{name}-source",
        PARTITIONS,
        moment_ms=moment_ms,
        twins=twins,
        trickle=1,
        aborting=not dated_by_timestamp,
    )
    found = DaysWorld(stack, folder, name, feeder, dated_by_timestamp=dated_by_timestamp)
    try:
        with feeder:
            yield found
    finally:
        found.archive_down()
