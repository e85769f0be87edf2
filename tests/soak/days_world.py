"""A stream whose days go by: what is fed, its archive application, attempts at its runs, and what readers see.

A day has ``DAY_RECORDS`` records; one in ten comes a day late, one in a hundred two days late.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Event, Thread

import numpy as np
import numpy.typing as npt
import yaml
from pyiceberg.exceptions import NoSuchTableError

from tests.archive.apps import ArchiveApp
from tests.catalog import another_catalog
from tests.soak.feed import Feeder, is_good
from tests.speed.live import SpeedApp, running
from tests.waiting import wait_until
from tidemark.batch.seal import day_seals
from tidemark.core.layout import Layout
from tidemark.core.seal import Seal
from tidemark.kafka import ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.stack.local import LocalStack

NAME = "soak_days"
PARTITIONS = 2
DAY_RECORDS = 8_000
FIRST_DAY = date(2013, 1, 1)
DAY_MS = 86_400_000
DEADLINE_S = 900
TRANSFORM = 'def transform(records):\n    return records.select("source", "event_time", "event.n")\n'

Place = tuple[int, int]  # partition, offset
Ints = npt.NDArray[np.int64]


def moment_ms(n: int) -> int:
    """The timestamp of the n-th record, in ms since the epoch."""
    late = 2 if n % 100 == 50 else 1 if n % 10 == 3 else 0
    start = int(datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC).timestamp() * 1000)
    return start + max(n * DAY_MS // DAY_RECORDS - late * DAY_MS, 0)


def day_of(n: int) -> date:
    return datetime.fromtimestamp(moment_ms(n) / 1000, UTC).date()


class DaysWorld:
    """``endings`` counts how attempts ended; ``problems`` are what nobody may ever see, as the fault's words."""

    def __init__(self, stack: LocalStack, folder: Path, feeder: Feeder) -> None:
        self.stack, self.folder, self.feeder = stack, folder, feeder
        self.endings: Counter[str] = Counter()
        self.problems: list[str] = []
        self.snapshots = 0
        self.views = 0
        self.attempts = 0
        self.next_day = FIRST_DAY
        self._archive: ArchiveApp | None = None
        self._looks = folder / "views"
        self._looks.mkdir()
        self._seen: list[tuple[str, Ints]] = []

    # ---- what runs

    def archive_up(self) -> ArchiveApp:
        """The archive stream, started where it does not run."""
        if self._archive is None:
            self._archive = ArchiveApp(self.stack, NAME, self.folder / "archive.log", forever=True)
        return self._archive

    def archive_down(self) -> None:
        """Kill -9 of all of it."""
        if self._archive is not None:
            self._archive.kill()
            self._archive.wait()
            self._archive = None

    def archive_to_the_end(self) -> ArchiveApp:
        """An application that ends once everything there is is archived."""
        return ArchiveApp(self.stack, NAME, self.folder / "archive.log")

    def attempt(
        self, run: str, days: Sequence[date], *, what: str = "reconcile", endpoint: str | None = None
    ) -> AbstractContextManager[SpeedApp]:
        """A process that works on a run; whatever is left of it at the end is killed."""
        self.attempts += 1
        environment = {**self.stack.env, **({"TIDEMARK_S3_ENDPOINT": endpoint} if endpoint else {})}
        command = [sys.executable, "-m", "tests.soak.attempt", NAME, run, str(self._looks), what, *map(str, days)]
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
        return day_seals(ObjectStore(self.stack.settings), Layout(prefix=self.stack.settings.prefix, stream=NAME), day)

    # ---- what readers see

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Read every snapshot of the published table that comes while the block runs."""
        stop, failure = Event(), []

        def watch() -> None:
            last = None
            while not stop.wait(0.3):
                try:
                    last = self._read_snapshot(last)
                except NoSuchTableError:
                    continue
                except BaseException as error:  # noqa: BLE001  # raised where the watch ends
                    failure.append(error)
                    return

        thread = Thread(target=watch, name="reader")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failure:
            raise failure[0]

    def _read_snapshot(self, last: int | None) -> int | None:
        with another_catalog(self.stack.settings) as catalog:
            table = catalog.load_table((self.stack.settings.namespace, NAME))
            snapshot = table.current_snapshot()
            if snapshot is None or snapshot.snapshot_id == last:
                return last
            columns = ("_day", "_kafka_partition", "_offset", "n")
            rows = table.scan(snapshot_id=snapshot.snapshot_id, selected_fields=columns).to_arrow()
        days = rows["_day"].cast("int32").to_numpy()
        found = np.stack([days, rows["_kafka_partition"].to_numpy(), rows["_offset"].to_numpy(), rows["n"].to_numpy()])
        self._seen.append((f"snapshot {snapshot.snapshot_id}", found.astype(np.int64)))
        return snapshot.snapshot_id

    def rows(self, name: str) -> Counter[date]:
        """How many rows of each day a table has now."""
        with another_catalog(self.stack.settings) as catalog:
            table = catalog.load_table((self.stack.settings.namespace, name))
            return Counter(table.scan(selected_fields=("_day",)).to_arrow()["_day"].to_pylist())

    def judge(self) -> None:
        """Hold everything that was seen since the last call against what Kafka acknowledged."""
        log = self._log()
        for name, found in self._seen:
            self.snapshots += 1
            self.problems += [f"{name}: {text}" for text in _torn_days(found, log)]
        self._seen = []
        for look in sorted(self._looks.glob("*.npy")):
            self.views += 1
            self.problems += [f"the live view: {text}" for text in _torn_view(np.load(look), log)]
            look.unlink()

    def _log(self) -> dict[int, Ints]:
        """Per partition the good records that were acknowledged: rows of (offset, number, day), by offset."""
        parts: dict[int, list[tuple[int, int, int]]] = {number: [] for number in range(PARTITIONS)}
        for (partition, offset), n in self.feeder.acknowledged.copy().items():
            if is_good(n):
                parts[partition].append((offset, n, (day_of(n) - date(1970, 1, 1)).days))
        return {number: np.array(sorted(rows), dtype=np.int64).reshape(-1, 3) for number, rows in parts.items()}


def _torn_days(found: Ints, log: dict[int, Ints]) -> Iterator[str]:
    """A day is whole where it holds each partition's records up to some offset, each once and with its number."""
    for day in np.unique(found[0]):
        for partition, records in log.items():
            mine = found[:, (found[0] == day) & (found[1] == partition)]
            offsets, order = np.sort(mine[2]), np.argsort(mine[2], kind="stable")
            wanted = records[(records[:, 2] == day) & (records[:, 0] <= (offsets[-1] if len(offsets) else -1))]
            if not np.array_equal(offsets, wanted[:, 0]):
                yield f"day {day} of partition {partition} has {len(offsets)} rows where {len(wanted)} are due"
            elif not np.array_equal(mine[3][order], wanted[:, 1]):
                yield f"day {day} of partition {partition} has rows of other records"


def _torn_view(found: Ints, log: dict[int, Ints]) -> Iterator[str]:
    for partition, records in log.items():
        offsets = np.sort(found[1][found[0] == partition])
        wanted = records[records[:, 0] <= (offsets[-1] if len(offsets) else -1)]
        if not np.array_equal(offsets, wanted[:, 0]):
            twice = len(offsets) - len(np.unique(offsets))
            yield f"partition {partition} has {len(offsets)} rows, {twice} of them twice, where {len(wanted)} are due"


@contextmanager
def days_world(stack: LocalStack, folder: Path) -> Iterator[DaysWorld]:
    """The stream with its topic and feeder. Behind the block nothing is fed any more, and nothing runs."""
    definition = {
        "name": NAME,
        "topic": f"{NAME}-source",
        "time_zone": "UTC",
        "value_schema": "n BIGINT",
        "archive": {"flush_size": 1_500, "trigger_seconds": 2},
        "speed": {"topic": f"{NAME}-live", "dead_letter_topic": f"{NAME}-dead"},
    }
    streams = stack.settings.streams_dir
    streams.mkdir(parents=True, exist_ok=True)
    (streams / f"{NAME}.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    (streams / f"{NAME}.py").write_text(TRANSFORM, encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    bootstrap = stack.settings.kafka_bootstrap
    ensure_topic(bootstrap, f"{NAME}-source", partitions=PARTITIONS, config={"retention.ms": "-1"})
    feeder = Feeder(bootstrap, f"{NAME}-source", PARTITIONS, moment_ms=moment_ms, trickle=1)
    found = DaysWorld(stack, folder, feeder)
    try:
        with feeder:
            yield found
    finally:
        found.archive_down()
