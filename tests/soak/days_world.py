"""A stream whose days go by: what is fed, its archive application, attempts at its runs, and what readers see."""

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
    DAY_RECORDS,
    EPOCH,
    FIRST_DAY,
    PAIR,
    PARTITIONS,
    Asked,
    Ends,
    History,
    Snapshot,
    contiguous,
    moment_ms,
    published,
    quarantined,
    torn_day,
    torn_view,
)
from tests.soak.feed import Feeder
from tests.speed.live import SpeedApp, running
from tests.waiting import wait_until
from tidemark.core.layout import Layout
from tidemark.core.seal import Seal
from tidemark.kafka.topics import ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.stack.local import LocalStack
from tidemark.tables.seals import day_seals

DEADLINE_S = 900
LOOK_S = 1  # between two looks of the reader
TRANSFORM = f"""\
from pyspark.sql.functions import expr


def transform(records):
    return records.select("source", "event_time", "event.n").withColumn("pair", expr("{PAIR}"))
"""


class DaysWorld:
    """``endings`` counts how attempts ended; ``problems`` are what nobody may ever see, as the fault's words.

    ``stamped``: the records' stamps tell their days, and nothing else is in the log.
    """

    def __init__(self, stack: LocalStack, folder: Path, name: str, feeder: Feeder, *, stamped: bool) -> None:
        self.stack, self.folder, self.name, self.feeder, self.stamped = stack, folder, name, feeder, stamped
        self.endings: Counter[str] = Counter()
        self.problems: list[str] = []
        self.snapshots = 0
        self.views = 0
        self.attempts = 0
        self.next_day = FIRST_DAY
        self._archive: ArchiveApp | None = None
        self._looks = folder / "views"
        self._looks.mkdir()
        self._bucket = Oracle(stack.settings, self.name)
        self._manifest = cache(lambda key: json.loads(self._bucket.body(key)))  # none is ever changed
        self._archived: list[tuple[int, Ends]] = []  # when it was seen, in ns, and how far the archive was complete
        self._asked: dict[str, Asked] = {}
        self._read: set[int] = set()
        self._seen: list[Snapshot] = []
        self._history = History()
        self._failure: BaseException | None = None  # of the reader's thread

    # ---- what runs

    def archive_up(self) -> ArchiveApp:
        """The archive stream, started where it does not run."""
        if self._archive is None:
            self._archive = ArchiveApp(self.stack, self.name, self.folder / "archive.log", forever=True)
        return self._archive

    def archive_down(self) -> None:
        """Kill -9 of all of it."""
        if self._archive is not None:
            self._archive.kill()
            self._archive.wait()
            self._archive = None

    def archive_to_the_end(self) -> ArchiveApp:
        """An application that ends once everything there is is archived."""
        return ArchiveApp(self.stack, self.name, self.folder / "archive.log")

    def attempt(
        self, run: str, days: Sequence[date], *, what: str = "reconcile", endpoint: str | None = None
    ) -> AbstractContextManager[SpeedApp]:
        """A process that works on a run; whatever is left of it at the end is killed."""
        self.attempts += 1
        if run not in self._asked:
            self._asked[run] = Asked(days=tuple(days), archived=self._archived[-1][1], stamped=self.stamped)
        environment = {**self.stack.env, **({"TIDEMARK_S3_ENDPOINT": endpoint} if endpoint else {})}
        command = [sys.executable, "-m", "tests.soak.attempt", self.name, run, str(self._looks), what, *map(str, days)]
        return running(command, self.folder / f"{run}-{self.attempts:04}.log", environment)

    def burst(self, records: int) -> list[date]:
        """Feed records; the days that are over by then and no run was asked for yet."""
        before = len(self.feeder.acknowledged)
        self.feeder.burst(records)
        wait_until(
            lambda: len(self.feeder.acknowledged) >= before + records, "the records are acknowledged", DEADLINE_S
        )
        over = FIRST_DAY + timedelta(days=len(self.feeder.acknowledged) // DAY_RECORDS)  # is the first one that is not
        days = [self.next_day + timedelta(days=number) for number in range((over - self.next_day).days)]
        self.next_day = over
        return days

    def over(self) -> list[date]:
        """The days that are over, each of which a run was asked for."""
        return [FIRST_DAY + timedelta(days=number) for number in range((self.next_day - FIRST_DAY).days)]

    def seals(self, day: date) -> tuple[Seal, ...]:
        """Of all its versions, in their order."""
        layout = Layout(prefix=self.stack.settings.prefix, stream=self.name)
        return day_seals(ObjectStore(self.stack.settings), layout, day)

    def compacted(self) -> tuple[int, int]:
        """The ranges that compactions have replaced so far, and how many of their objects are gone."""
        replaced = [item for key in self._bucket.keys("manifests") for item in self._manifest(key).get("replaces", ())]
        there = self._bucket.keys("data").keys()
        return len(replaced), len({key for item in replaced for key, _ in item["files"]} - there)

    # ---- what readers see

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note how far the archive is, and read every state the published table was in, while the block runs."""
        stop = Event()
        self._look()

        def watch() -> None:
            try:
                while not stop.wait(LOOK_S):
                    self._look()
            except BaseException as error:  # noqa: BLE001  # raised where what it saw is judged
                self._failure = error

        thread = Thread(target=watch, name="reader")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        self._look()

    def _look(self) -> None:
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
            return  # nothing was published yet

    @contextmanager
    def _table(self, name: str) -> Iterator[Table]:
        with another_catalog(self.stack.settings) as catalog:
            yield catalog.load_table((self.stack.settings.namespace, name))

    def judge(self) -> None:
        """Hold everything that was seen since the last call against what Kafka acknowledged."""
        if self._failure is not None:
            raise self._failure
        log = published(self.feeder.acknowledged.copy())
        seen, self._seen = self._seen, []
        for snapshot in seen:
            self.snapshots += 1
            found = self._history.problems(snapshot, log, self._asked, lambda day: self.seals(day)[0].snapshot_id or 0)
            self.problems += [f"snapshot {snapshot.identity}: {text}" for text in found]
        for look in sorted(self._looks.glob("*.npy")):
            self.views += 1
            self.problems += [f"the live view: {text}" for text in torn_view(np.load(look), log, self._before(look))]
            look.unlink()

    def _before(self, look: Path) -> Ends:
        """How far the archive was known to be complete as the look began."""
        at = bisect_right(self._archived, int(look.name.partition("-")[0]), key=lambda item: item[0])
        return self._archived[at - 1][1] if at else contiguous(())

    def judge_tables(self) -> dict[str, int]:
        """Hold all rows of the days that are over against everything that was acknowledged; how many there are."""
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
def days_world(stack: LocalStack, folder: Path, name: str, *, stamped: bool) -> Iterator[DaysWorld]:
    """The stream with its topic and feeder. Behind the block nothing is fed any more, and nothing runs.

    Not ``stamped``, a field of the value tells a record's day, and transactions are aborted between the records.
    """
    definition = {
        "name": name,
        "topic": f"{name}-source",
        "time_zone": "UTC",
        "event_time": {"extractor": "record"}
        if stamped
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
    ensure_topic(bootstrap, f"{name}-source", partitions=PARTITIONS, config={"retention.ms": "-1"})
    feeder = Feeder(bootstrap, f"{name}-source", PARTITIONS, moment_ms=moment_ms, trickle=1, aborting=not stamped)
    found = DaysWorld(stack, folder, name, feeder, stamped=stamped)
    try:
        with feeder:
            yield found
    finally:
        found.archive_down()
