"""Counts the requests to S3 of streams and reconcile runs, and compares them with ``tidemark.core.requests``.

A proxy before the local S3 server counts what Spark, its workers and the driver send. Archive and speed streams run
with several settings over the same kind of records, a number of batches each; an idle stream runs for a while; and days
with few and many objects are reconciled. Spark's checkpoint keeps two batches here instead of 100, so that the third
batch is like all later ones. The last line is JSON: counts and predictions by case.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from threading import Thread
from typing import Any

import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks.common import START_MS, console
from tests.counted import Seen, counted, steady
from tests.faults import FaultProxy
from tidemark.archive.stream.driver import archive
from tidemark.core.capacity import ArchiveSettings, Load, batch_requests
from tidemark.core.requests import Requests, checkpoint_batch, heartbeats, lease_checks, reconcile_run
from tidemark.definitions.stream import Stream, load_stream
from tidemark.installation import PROJECT
from tidemark.kafka.topics import ensure_topic
from tidemark.settings import Settings
from tidemark.spark import lease, streaming
from tidemark.spark.session import spark_session
from tidemark.speed.stream import speed
from tidemark.stack.local import LocalStack

BATCHES, FIRST = 5, 2
CONF = {"spark.sql.streaming.minBatchesToRetain": "2", "spark.sql.streaming.asyncLogPurge.enabled": "false"}
TRANSFORM = 'def transform(records):\n    return records.select("source", "event_time", "event.*")\n'
DAY = "2013-01-14"
RESULT = Path(__file__).with_name("s3_requests.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An archive: records in each batch are those of each partition and folder, ``value_bytes`` long."""

    name: str
    partitions: int = 1
    folders: int = 1
    records: int = 2
    value_bytes: int = 20
    part_bytes: int = 25_000_000
    stored_share: float = 1.0  # of hexadecimal digits, half

    @property
    def batch_records(self) -> int:
        return self.partitions * self.folders * self.records


CASES = (
    Case(name="p1", partitions=1),
    Case(name="p4", partitions=4),
    Case(name="p16", partitions=16),
    Case(name="p1_f10", folders=10),
    Case(name="p4_f10", partitions=4, folders=10),
    Case(name="p1_f100", folders=100),
    Case(name="parts", records=13, value_bytes=1_000_000, part_bytes=5_242_880, stored_share=0.52),
)
# Days to reconcile: partitions and batches.
DAYS = ((1, 4), (1, 24), (16, 4))
FIRST_DAY = (1, 1)


def main() -> None:
    """Run the benchmark; see ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=120, help="seconds of an idle stream (120)")
    names = [case.name for case in CASES]
    parser.add_argument("--cases", nargs="*", choices=names, default=names, help="of the archive (all)")
    parser.add_argument("--without-days", action="store_true", help="reconcile nothing")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}, for the documentation")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    with LocalStack("bench-requests", root=PROJECT, fresh=True) as stack:
        assert stack.settings.s3_endpoint is not None
        with FaultProxy(stack.settings.s3_endpoint) as proxy:
            os.environ.update({**stack.env, "TIDEMARK_S3_ENDPOINT": proxy.url})
            folder = PROJECT / ".tidemark" / "bench-requests-streams"
            folder.mkdir(parents=True, exist_ok=True)
            os.environ["TIDEMARK_STREAMS_DIR"] = str(folder)
            settings = stack.settings.model_copy(update={"s3_endpoint": proxy.url, "streams_dir": folder})
            spark = spark_session(settings, "bench-requests", "archive", conf=CONF)
            try:
                for case in [item for item in CASES if item.name in options.cases]:
                    _keep(result, case.name, _archive(spark, settings, proxy, case))
                for delivery in ("at_least_once", "exactly_once"):
                    _keep(result, delivery, _speed(spark, settings, proxy, delivery))
                _keep(result, "idle", _idle(spark, settings, proxy, options.idle))
                # The first run of a namespace also creates the tables of the history, so it isn't counted.
                days = () if options.without_days else (FIRST_DAY, *DAYS)
                streams = [_day(spark, settings, *day) for day in days]
            finally:
                spark.stop()
            for stream, day in zip(streams, days, strict=True):
                requests = _reconcile(stream, proxy, *day)
                if day in DAYS:
                    _keep(result, stream.name, requests)
    if options.write:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(json.dumps(result), soft_wrap=True, highlight=False)


def predicted(case: Case) -> Requests:
    """The requests of one batch. As many records come in a second as a batch has, so a batch a second has those."""
    load = Load(
        partitions=case.partitions,
        records_per_second=case.batch_records,
        record_bytes=case.value_bytes,
        folders=case.folders,
        stored_share=case.stored_share,
    )
    return batch_requests(ArchiveSettings(trigger_seconds=1, part_bytes=case.part_bytes), load)


def predicted_speed(delivery: str) -> Requests:
    """The requests of one batch of the speed stream."""
    return checkpoint_batch() + Requests(get=2 if delivery == "exactly_once" else 0)


def define(settings: Settings, name: str, *, partitions: int, **keys: Any) -> Stream:
    """A new stream over a new topic."""
    ensure_topic(settings.kafka, name, partitions=partitions, config={"retention.ms": "-1"})
    own = {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead-letter", **keys.pop("speed", {})}
    wanted = {"name": name, "topic": name, "value_schema": "f STRING, v STRING", "speed": own, **keys}
    (settings.streams_dir / f"{name}.yaml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
    (settings.streams_dir / f"{name}.py").write_text(TRANSFORM, encoding="utf-8")
    return load_stream(name, settings.streams_dir)


def produce(settings: Settings, case: Case, topic: str, batches: int) -> None:
    """The records of so many batches; each partition has each folder in turn."""
    producer = Producer(settings.kafka.client({"message.max.bytes": 16_000_000}))
    for number in range(batches * case.records * case.folders):
        noise = os.urandom(case.value_bytes // 2).hex()
        body = json.dumps({"f": f"f{number % case.folders}", "v": noise}).encode()
        for partition in range(case.partitions):
            producer.produce(topic, body, partition=partition, timestamp=START_MS + number)
            producer.poll(0)
    producer.flush()


def _archive(spark: SparkSession, settings: Settings, proxy: FaultProxy, case: Case) -> dict[str, Any]:
    name = f"archive_{case.name}"
    partitioner = {"type": "field", "fields": ["$.f"]} if case.folders > 1 else {"type": "default"}
    keys = {"partitioner": partitioner, "max_offsets_per_trigger": case.batch_records, "part_bytes": case.part_bytes}
    stream = define(settings, name, partitions=case.partitions, archive=keys)
    produce(settings, case, name, BATCHES)
    seen, seconds = _counting(proxy, lambda: archive(spark, stream, settings, available_now=True))
    found = counted(steady(seen, f"{name}/archive", FIRST, BATCHES - 1)).times(1 / (BATCHES - 1 - FIRST))
    return _compared(found, predicted(case), seconds=round(seconds / BATCHES, 2))


def _speed(spark: SparkSession, settings: Settings, proxy: FaultProxy, delivery: str) -> dict[str, Any]:
    case, name = Case(name=delivery, partitions=4), f"speed_{delivery}"
    keys = {"max_offsets_per_trigger": case.batch_records, "delivery": delivery}
    stream = define(settings, name, partitions=4, speed=keys)
    produce(settings, case, name, BATCHES)
    seen, seconds = _counting(proxy, lambda: speed(spark, stream, settings, available_now=True))
    found = counted(steady(seen, f"{name}/speed", FIRST, BATCHES - 1)).times(1 / (BATCHES - 1 - FIRST))
    return _compared(found, predicted_speed(delivery), seconds=round(seconds / BATCHES, 2))


def _idle(spark: SparkSession, settings: Settings, proxy: FaultProxy, seconds: int) -> dict[str, Any]:
    """An archive stream that has no records after its first batch, with a trigger every second."""
    case = Case(name="idle")
    stream = define(settings, case.name, partitions=1, archive={"trigger_seconds": 1})
    produce(settings, case, case.name, 1)
    _counting(proxy, lambda: archive(spark, stream, settings, available_now=True))
    proxy.clear()
    with redirect_stdout(io.StringIO()):
        thread = Thread(target=archive, args=(spark, stream, settings))
        thread.start()
        while not any(query.name == "archive-idle" for query in spark.streams.active):
            time.sleep(1)
        time.sleep(10)
        starting = counted(item for item in proxy.log if "/heartbeats/" not in item[1])
        proxy.clear()
        time.sleep(seconds)
        found = counted(proxy.log)
        streaming._stop.set()  # noqa: SLF001  # as SIGTERM does
        thread.join()
        streaming._stop.clear()  # noqa: SLF001
    wanted = heartbeats(seconds, inf) + lease_checks(seconds)
    return {**_compared(found, wanted), "starting": _numbers(starting)}


def _day(spark: SparkSession, settings: Settings, partitions: int, batches: int) -> Stream:
    """A stream whose day is archived in so many batches."""
    case = Case(name=f"day_p{partitions}_b{batches}", partitions=partitions)
    keys = {"max_offsets_per_trigger": case.batch_records}
    stream = define(settings, case.name, partitions=partitions, archive=keys, batch={"wait_seconds": 0})
    produce(settings, case, case.name, batches)
    with redirect_stdout(io.StringIO()):
        archive(spark, stream, settings, available_now=True)
    return stream


def _reconcile(stream: Stream, proxy: FaultProxy, partitions: int, batches: int) -> dict[str, Any]:
    """The requests of the day's reconcile run, by kind, and by folder of the bucket."""
    proxy.clear()
    command = [str(Path(sys.executable).with_name("tidemark")), "reconcile", stream.name, "--from", DAY]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    folders: dict[str, list[Seen]] = {}
    for item in proxy.log:
        folders.setdefault(_folder(item[1]), []).append(item)
    wanted = reconcile_run(objects=partitions * batches, manifests=batches, folders=partitions)
    return {
        **_compared(counted(proxy.log), wanted),
        "folders": {name: _numbers(counted(items)) for name, items in sorted(folders.items())},
    }


def _folder(target: str) -> str:
    """The first folder of the key, or of the prefix of a listing."""
    path, _, query = target.partition("?")
    key = path.split("/", 2)[2] if path.count("/") > 1 else ""
    listed = next((part.removeprefix("prefix=") for part in query.split("&") if part.startswith("prefix=")), "")
    return (key or listed.replace("%2F", "/")).split("/")[0]


def _counting(proxy: FaultProxy, run: Callable[[], None]) -> tuple[list[Seen], float]:
    """What a stream sends without the lease checks of its main thread, and how long it took."""
    proxy.clear()
    started = time.monotonic()
    with redirect_stdout(io.StringIO()), _without_lease_polls():
        run()
    return list(proxy.log), time.monotonic() - started


@contextmanager
def _without_lease_polls() -> Iterator[None]:
    before, lease.CHECK_S = lease.CHECK_S, inf
    try:
        yield
    finally:
        lease.CHECK_S = before


def _compared(found: Requests, wanted: Requests, **more: Any) -> dict[str, Any]:
    return {"counted": _numbers(found), "predicted": _numbers(wanted), **more}


def _numbers(requests: Requests) -> dict[str, float]:
    """The kinds that there are."""
    return {kind: number for kind, number in asdict(requests).items() if number}


def _keep(result: dict[str, Any], name: str, item: dict[str, Any]) -> None:
    """Add a case's result, and print it: a run takes long."""
    result[name] = item
    for row in ("counted", "predicted"):
        if row in item:
            kinds = ", ".join(f"{number:g} {kind}" for kind, number in item[row].items())
            console.print(f"{name}, {row}: {kinds}", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
