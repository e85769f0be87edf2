"""A stream of some days that Airflow's runs reconcile: its records, the expected rows, and a reader's view."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import yaml
from pyiceberg.table import Table

from tests.batch.objects import archive_rows
from tests.conftest import MakeStream, Produce
from tests.conftest import Record as Produced
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.reader import load_table
from tidemark.verify.day import verify_day

ZONE = ZoneInfo("Europe/Berlin")
SATURDAY, SUNDAY, MONDAY, TUESDAY = (date(2024, 3, 30) + timedelta(days=at) for at in range(4))  # Sunday has 23 hours
WRONG = 1000  # the check of a stream with a wrong day lets no such value pass
BROKEN = b"{broken"
PARTITIONS = (0, 1)
Row = tuple[int, int, int]  # partition, offset, n


@dataclass(frozen=True, kw_only=True)
class Record:
    day: date
    partition: int
    offset: int
    moment: datetime
    value: bytes


@dataclass(frozen=True, kw_only=True)
class Days:
    """In each of two partitions a record per hour of each day, one in its last second, and one that can't be read."""

    stream: Stream
    settings: Settings
    records: tuple[Record, ...]
    seen: set[date] = field(default_factory=set)  # what readers have had, and may not lose

    @classmethod
    def make(
        cls,
        settings: Settings,
        make_stream: MakeStream,
        produce: Produce,
        days: Sequence[date],
        *,
        wrong: date | None = None,
    ) -> "Days":
        """A critical check fails for the day ``wrong``. Nothing is archived."""
        check = {"expectation": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": WRONG - 1}}
        stream = make_stream(
            partitions=len(PARTITIONS),
            time_zone=str(ZONE),
            batch={"wait_seconds": 0, "checks": [check] if wrong else []},
        )
        made = [
            (day, partition, moment, value)
            for day in days
            for partition in PARTITIONS
            for moment, value in _values(day, first=WRONG if day == wrong else 0)
        ]
        messages: list[Produced] = [
            (b"k", value, int(moment.timestamp() * 1000), partition, []) for _, partition, moment, value in made
        ]
        offsets = produce(stream.topic, messages)
        records = tuple(
            Record(day=day, partition=partition, offset=offset, moment=moment, value=value)
            for (day, partition, moment, value), offset in zip(made, offsets, strict=True)
        )
        load_table(settings, stream.table)  # makes the catalog, where this is the first to ask for it
        return cls(stream=stream, settings=settings, records=records)

    def archive(self) -> None:
        """Every record, in one object per partition."""
        store = ObjectStore(self.settings)
        for log in describe_topic(self.settings.kafka, self.stream.topic):
            rows = [_archived(log.topic, item) for item in self.records if item.partition == log.partition]
            span = OffsetRange(start=0, end=len(rows))
            writer = f"query-{log.partition}"
            _, manifest = archive_rows(store, self.layout, ZONE, writer=writer, batch=0, log=log, span=span, rows=rows)
            assert store.put_if_absent(self.layout.manifest_key(writer, 0), manifest.to_json())

    def let_pass(self) -> None:
        """Take the check out of the stream's definition."""
        path = self.settings.streams_dir / f"{self.stream.name}.yaml"
        definition = yaml.safe_load(path.read_text(encoding="utf-8"))
        definition["batch"]["checks"] = []
        path.write_text(yaml.safe_dump(definition), encoding="utf-8")

    @property
    def layout(self) -> Layout:
        return Layout(prefix=self.settings.prefix, stream=self.stream.name)

    # ---- what must be there

    def whole(self, day: date) -> list[Row]:
        """The day's rows, by partition and offset."""
        good = [item for item in self.records if item.day == day and item.value != BROKEN]
        return sorted((item.partition, item.offset, json.loads(item.value)["n"]) for item in good)

    def require_proven(self, days: Sequence[date]) -> None:
        """Readers see these days and no other, each is proven, and no state of the table ever showed part of one."""
        assert self.read() == {day: self.whole(day) for day in days}
        broken = Counter(item.day for item in self.records if item.value == BROKEN and item.day in days)
        quarantine = self._table(self.stream.quarantine_table)
        assert Counter(quarantine.scan(selected_fields=("_day",)).to_arrow()["_day"].to_pylist()) == broken
        table, before = self._table(self.stream.table), set[date]()
        for entry in table.metadata.snapshot_log:
            there = self._read(table, entry.snapshot_id).keys()
            assert before <= there, (entry.snapshot_id, before - there)
            before = set(there)
        for day in days:
            found = verify_day(self.settings, self.stream.name, day)
            assert found.verdict == "proven", (day, found.checks)

    # ---- what is there

    def read(self) -> dict[date, list[Row]]:
        """What a reader sees now, by day. Every day must be whole, and none go that was there before."""
        table = load_table(self.settings, self.stream.table)
        found = self._read(table) if table is not None and table.current_snapshot() else {}
        assert self.seen <= found.keys(), self.seen - found.keys()
        self.seen.update(found)
        return found

    def _read(self, table: Table, snapshot_id: int | None = None) -> dict[date, list[Row]]:
        found: dict[date, list[Row]] = {}
        for row in table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist():
            found.setdefault(row["_day"], []).append((row["_kafka_partition"], row["_offset"], row["n"]))
        found = {day: sorted(rows) for day, rows in found.items()}
        assert found == {day: self.whole(day) for day in found}, snapshot_id
        return found

    def _table(self, name: str) -> Table:
        table = load_table(self.settings, name)
        assert table is not None
        return table

    def publishers(self, table_name: str) -> list[str]:
        """The run of each publication in main's history, the newest first."""
        table, runs = self._table(table_name), []
        snapshot = table.current_snapshot()
        while snapshot is not None:
            properties = snapshot.summary.additional_properties if snapshot.summary else {}
            runs += [properties["tidemark.run"]] if "tidemark.run" in properties else []
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
        return runs

    def seals(self) -> list[tuple[str, int, str]]:
        """Day, version and run of every seal."""
        store = ObjectStore(self.settings)
        bodies = [json.loads(store.get(item.key) or b"") for item in store.list(self.layout.seal_prefix)]
        return sorted((body["day"], body["version"], body["run"]) for body in bodies)


def _archived(topic: str, record: Record) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.moment,
        "timestamp_type": 0,
        "key": b"k",
        "value": record.value,
        "headers": [],
        "event_time": record.moment,
    }


def _values(day: date, *, first: int) -> Iterator[tuple[datetime, bytes]]:
    """Each full hour of the day there is, and its last second; the first record's ``n`` is ``first``."""
    start, end = (
        datetime.combine(at, datetime.min.time(), tzinfo=ZONE).astimezone(UTC) for at in (day, day + timedelta(days=1))
    )
    last = end - timedelta(seconds=1)
    hours = (end - start) // timedelta(hours=1)
    moments = [*(start + timedelta(hours=at) for at in range(hours)), last]
    for number, moment in enumerate(moments):
        yield moment, json.dumps({"n": first if number == 0 else number}).encode()
    yield last, BROKEN
