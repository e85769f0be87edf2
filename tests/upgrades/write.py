"""Writes the fixture of the version that is about to be released: ``python -m tests.upgrades.write``.

A stream of two partitions goes through the real archive stream and real reconcile runs: two sealed days, one of them
amended, with aborted records, quarantined records and an accepted loss, a ledger and a compaction. What the rows must
be is kept beside it, from what was produced alone.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, TUESDAY, at
from tests.batch.steps import reconcile
from tests.upgrades.kept import write_kept
from tidemark.archive.ledger.ledger import rebuild
from tidemark.archive.stream.driver import archive
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream, load_stream
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.maintenance.compaction import Compaction
from tidemark.run import Run
from tidemark.s3 import ObjectStore, ensure_bucket
from tidemark.settings import Settings
from tidemark.spark.session import spark_session
from tidemark.stack.local import LocalStack
from tidemark.tables.reader import load_table

STREAM, NAMESPACE = "released", "released"
# Of each version its own: tables name their files with the bucket.
BUCKET = f"tidemark-released-{version('tidemark').replace('.', '-')}"
DEFINITION = {
    "name": STREAM,
    "topic": STREAM,
    "time_zone": "America/New_York",
    "value_schema": "id INT, name STRING, delay DOUBLE, at BIGINT",
    # Of a record that is not JSON, the time can't be read.
    "event_time": {"extractor": "record_field", "field": "$.at", "format": "epoch_ms"},
    "speed": {"topic": f"{STREAM}.live", "dead_letter_topic": f"{STREAM}.dead"},
    "archive": {"on_loss": "continue"},
    "batch": {
        "wait_seconds": 0,
        "accept_loss": True,
        "checks": [{"expectation": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}}],
    },
}
TRANSFORM = '''\
"""The names in capitals; records named ``refused`` are rejected."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(records: DataFrame) -> DataFrame:
    refused = F.when(F.col("event.name") == "refused", F.lit("refused by the transformation"))
    columns = ("event.id", F.upper("event.name").alias("name"), "event.delay", refused.alias("reject"))
    return records.select("source", "event_time", *columns)
'''
BAD, REFUSED = "bad", "refused"


@dataclass(slots=True, kw_only=True)
class Topic:
    """The stream's topic, and the records in it that a reader sees, by (partition, offset): day, id and name."""

    bootstrap: str
    records: dict[tuple[int, int], tuple[date, int, str]] = field(default_factory=dict)
    _ids: Iterator[int] = field(default_factory=lambda: iter(range(1000)))

    def produce(self, partition: int, day: date, names: Sequence[str], *, transaction: str | None = None) -> None:
        """Records, in no transaction or in one that is ``kept`` or ``aborted``."""
        own = {"transactional.id": STREAM} if transaction else {}
        producer = Producer({"bootstrap.servers": self.bootstrap, **own})
        if transaction:
            producer.init_transactions(60)
            producer.begin_transaction()
        for name in names:
            number = next(self._ids)

            def delivered(_: Any, message: Any, number: int = number, name: str = name) -> None:
                if transaction != "aborted":
                    self.records[partition, message.offset()] = (day, number, name)

            good = {"id": number, "name": name, "delay": number + 0.5, "at": at(day, 9)}
            value = "not JSON" if name == BAD else json.dumps(good)
            producer.produce(STREAM, value.encode(), b"key", partition, timestamp=at(day, 9), on_delivery=delivered)
        assert producer.flush(60) == 0
        if transaction:
            producer.abort_transaction(60) if transaction == "aborted" else producer.commit_transaction(60)

    def lose(self, partition: int) -> int:
        """Delete every record as retention does; the log's start afterwards."""
        end = max(offset for of, offset in self.records if of == partition) + 1
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([KafkaPartition(STREAM, partition, end)]).values():
            future.result(120)
        return end

    def rows(self, day: date, *, without: Sequence[int] = ()) -> dict[str, Any]:
        """The day's good rows and quarantined offsets, but for the records of these ids."""
        found = sorted((log, at) for log, at in self.records.items() if at[0] == day and at[1] not in without)
        good = [[*log, number, name.upper(), number + 0.5] for log, (_, number, name) in found if name == "good"]
        return {"rows": good, "quarantined": [list(log) for log, (_, _, name) in found if name in {BAD, REFUSED}]}


def fill(stream: Stream, settings: Settings, spark: SparkSession) -> dict[str, Any]:
    """Produce, archive and reconcile; the facts that the rows must agree with."""
    topic, store = Topic(bootstrap=settings.kafka_bootstrap), ObjectStore(settings)
    layout = Layout(prefix=settings.prefix, stream=stream.name)

    def catch_up() -> None:
        archive(spark, stream, settings, available_now=True)

    topic.produce(0, MONDAY, ["good", "good", BAD], transaction="kept")
    topic.produce(0, MONDAY, ["good", "good"], transaction="aborted")
    topic.produce(0, MONDAY, ["good", REFUSED])
    topic.produce(1, MONDAY, ["good", "good"])
    catch_up()
    kept = dict(topic.records)
    topic.produce(1, MONDAY, ["good", "good", "good"])
    first_lost = min(offset for partition, offset in topic.records.keys() - kept.keys())
    start = topic.lose(1)
    topic.records = kept
    topic.produce(0, TUESDAY, ["good", "good"])
    topic.produce(1, TUESDAY, ["good"])
    catch_up()
    first = {day: topic.rows(day) for day in (MONDAY, TUESDAY)}
    reconcile(Run.open(stream.name, "first", settings), spark, [MONDAY, TUESDAY])
    rebuild(store, layout, stream)

    topic.produce(1, MONDAY, ["good", BAD])  # late
    catch_up()
    reconcile(Run.open(stream.name, "late", settings), spark, [MONDAY])
    compacted = Compaction(store=store, layout=layout, stream=stream, now=datetime.now(UTC) + timedelta(days=30)).run()
    assert compacted.ranges == 2, "the last two of partition 1"
    return {
        "topic": STREAM,
        "topic_id": describe_topic(settings.kafka, STREAM)[0].topic_id,
        "lost": [[1, first_lost, start]],
        "versions": {str(MONDAY): [first[MONDAY], topic.rows(MONDAY)], str(TUESDAY): [first[TUESDAY]]},
    }


@contextmanager
def deployment(root: Path, streams_dir: Path) -> Iterator[Settings]:
    """A local stack, with bucket and prefix of the fixture."""
    streams_dir.mkdir()
    with LocalStack("upgrades", root=root, streams_dir=streams_dir) as stack:
        os.environ.update(stack.env)
        own = {"bucket": BUCKET, "prefix": version("tidemark"), "namespace": NAMESPACE, "deployment": ""}
        settings = Settings.model_validate({**stack.settings.model_dump(), **own})
        ensure_bucket(settings)
        yield settings


def main() -> None:
    """Write the fixture; an existing one of this version is replaced."""
    with TemporaryDirectory() as folder, deployment(Path(folder), Path(folder) / "streams") as settings:
        definition = {f"{STREAM}.yaml": yaml.safe_dump(DEFINITION, sort_keys=False).encode()}
        definition[f"{STREAM}.py"] = TRANSFORM.encode()
        for name, body in definition.items():
            (settings.streams_dir / name).write_bytes(body)
        stream = load_stream(STREAM, settings.streams_dir)
        assert ensure_topic(settings.kafka, STREAM, partitions=2, config={"retention.ms": "-1"})
        spark = spark_session(settings, "tidemark-upgrades")
        facts = fill(stream, settings, spark)
        spark.stop()
        tables = {name: load_table(settings, name) for name in (stream.table, stream.quarantine_table)}
        metadata = {name: table.metadata_location for name, table in tables.items() if table is not None}
        store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
        spared = layout.checkpoint_prefix("archive")  # Spark's, and of no use without the topic
        objects = {item.key: store.get(item.key) or b"" for item in store.list("") if not item.key.startswith(spared)}
    facts |= {"bucket": BUCKET, "prefix": settings.prefix, "namespace": NAMESPACE, "stream": STREAM, "tables": metadata}
    written = write_kept(version("tidemark"), facts, objects=objects, definition=definition)
    sys.stdout.write(f"{written}: {len(objects)} objects, {written.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
