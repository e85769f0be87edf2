"""A small stream beside the soaked one, for a fault of its own.

Nothing here starts by itself again: each ending is either demanded or a problem.
"""

import json
import re
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.archive.apps import ArchiveApp
from tests.archive.oracle import Oracle
from tests.catalog import another_catalog
from tests.soak.days_oracle import PARTITIONS, Ends, Place, contiguous
from tests.soak.days_world import DaysWorld
from tests.soak.side_oracle import (
    AFTER,
    BY_TIMESTAMP,
    DaysKey,
    Row,
    day_of,
    lost_objects,
    moment_ms,
    rows_of,
    wrong_rows,
)
from tests.speed.live import running
from tests.waiting import wait_until
from tidemark.core.errors import ServiceError
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.reconcile.lease import release
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.stack.processes import Managed
from tidemark.verify.day import verify_day
from tidemark.verify.day_copies import verify_stream

ATTEMPT_S = 600
DEADLINE_S = 120
CONFIG = {"retention.ms": "-1"}
TRANSACTION_MS = 900_000  # the broker aborts a longer one
TRANSFORM = """\
def transform(records):
    return records.select("source", "event_time", "event.n")
"""
ENDING = re.compile(r"^\w+Error: ")


class SideStream:
    """Its topic, its definition, and its processes. ``archive`` are keys of the definition's section."""

    def __init__(self, world: DaysWorld, run: str, **archive: Any) -> None:
        self.name = f"{world.name}_{run.replace('-', '_')}"
        self.topic = f"{self.name}-source"
        self._world, self._stack = world, world.stack
        self._archive = {"trigger_seconds": 1, **archive}
        self.days_key = BY_TIMESTAMP if world.dated_by_timestamp else DaysKey(31)
        self.folder = world.folder / run
        self._views = self.folder / "views"
        self._views.mkdir(parents=True)
        self.bucket = Oracle(self._stack.settings, self.name)
        self._bootstrap = self._stack.settings.kafka_bootstrap
        self._kafka = self._stack.settings.kafka
        self._sent = 0
        ensure_topic(self._kafka, self.topic, partitions=PARTITIONS, config=CONFIG)
        (self._stack.settings.streams_dir / f"{self.name}.py").write_text(TRANSFORM, encoding="utf-8")
        self.define()

    def define(self, *, on_rewrite: str = "stop", accept_loss: bool = False, time_zone: str = "UTC") -> None:
        """Write the definition, with ``days_key``."""
        definition = {
            "name": self.name,
            "topic": self.topic,
            "time_zone": time_zone,
            "event_time": self.days_key.section,
            "value_schema": "n BIGINT",
            "archive": {**self._archive, "on_rewrite": on_rewrite},
            "batch": {"accept_loss": accept_loss},
            "speed": {"topic": f"{self.name}-live", "dead_letter_topic": f"{self.name}-dead"},
        }
        path = self._stack.settings.streams_dir / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(definition), encoding="utf-8")

    # ---- Kafka

    def feed(self, records: int, *, after: bool = False) -> dict[Place, int]:
        """Send the next records, ``after`` the fault or before it. Return them by place."""
        return self.send(self._next(records, after=after))

    def begin(self, records: int) -> tuple[Producer, dict[Place, int]]:
        """Send the next records in a transaction that stays open. Return its producer and them by place."""
        settings = {
            "bootstrap.servers": self._bootstrap,
            "transactional.id": self.name,
            "transaction.timeout.ms": TRANSACTION_MS,
            "log_level": 0,
        }
        producer = Producer(settings)
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        return producer, self.send(self._next(records), producer=producer)

    def _next(self, records: int, *, after: bool = False) -> range:
        first = self._sent + AFTER * after
        self._sent += records
        return range(first, first + records)

    def send(
        self,
        numbers: Collection[int],
        *,
        producer: Producer | None = None,
        timestamp_ms: Callable[[int], int] = moment_ms,
        field_ms: Callable[[int], int] = moment_ms,
    ) -> dict[Place, int]:
        """Send the records with these numbers, in small batches. Return them by place."""
        acknowledged: dict[Place, int] = {}
        if producer is None:
            producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        for at, n in enumerate(numbers, 1):

            def delivered(error: Any, message: Any, n: int = n) -> None:
                if error is not None:
                    raise KafkaException(error)
                acknowledged[message.partition(), message.offset()] = n

            value = b'{"n":%d,"t":%d}' % (n, field_ms(n))
            key, partition, time = b"key %d" % (n % 50), n % PARTITIONS, timestamp_ms(n)
            producer.produce(self.topic, value, key, partition, on_delivery=delivered, timestamp=time)
            if at % 20 == 0:
                assert producer.flush(DEADLINE_S) == 0
        assert producer.flush(DEADLINE_S) == 0
        assert len(acknowledged) == len({*numbers})
        return acknowledged

    def truncate(self, ends: Ends) -> dict[int, int]:
        """Stop the broker, cut the logs before these offsets, and start it again. Return the logs' new ends."""
        broker = self._broker()
        self._world.archive_down()
        broker.stop()
        data = self._stack.folder / "kafka" / "data"
        found = {partition: cut_log(data / f"{self.topic}-{partition}", end) for partition, end in ends.items()}
        broker.launch()
        return found

    def recreate(self) -> tuple[str, str]:
        """Delete the topic and create it again. Return both ids."""
        before = self._topic_id()
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.delete_topics([self.topic])[self.topic].result(DEADLINE_S)
        create = lambda: ensure_topic(self._kafka, self.topic, partitions=PARTITIONS, config=CONFIG)  # noqa: E731
        wait_until(create, "the topic is created again", DEADLINE_S)
        wait_until(lambda: self._topic_id() not in ("", before), "the broker has the new topic", DEADLINE_S)
        return before, self._topic_id()

    def _topic_id(self) -> str:
        try:
            return describe_topic(self._kafka, self.topic)[0].topic_id
        except ServiceError:
            return ""

    def _broker(self) -> Managed:
        return next(managed for managed in self._stack.processes if managed.name == "kafka")

    # ---- processes

    def archive(self, *, endpoint: str | None = None, forever: bool = False) -> ArchiveApp:
        """The archive stream, up to the topic's end or ``forever``."""
        return ArchiveApp(self._stack, self.name, self.folder / "archive.log", endpoint=endpoint, forever=forever)

    def archive_all(self) -> list[dict[str, Any]]:
        """Archive up to the topic's end. Return the log lines about rewritten logs."""
        with self.archive() as app:
            assert app.wait() == 0, app.output[-3000:]
            return app.events("rewritten")

    def refused(self, app: ArchiveApp, *, explained: str = "") -> str:
        """Wait for an archive stream that must end with an error, and return that. It is started again after an error
        that begins with ``explained``."""
        with app:
            assert app.wait() != 0, app.output[-3000:]
            error = _last_error(app.output)
        return self.refused(self.archive()) if explained and error.startswith(explained) else error

    def attempt(
        self,
        run: str,
        days: Iterable[date],
        *,
        what: str = "reconcile",
        fails: bool = False,
        prints: str = "",
        then: Callable[[], object] = lambda: None,
    ) -> str:
        """Work on a run to its end; with ``fails`` it must not succeed. Return its error.

        It must print the line ``prints``. When it has, ``then`` is called.
        """
        self._world.attempts += 1
        command = [sys.executable, "-m", "tests.soak.attempt", self.name, run, str(self._views), what, *map(str, days)]
        log = self.folder / f"{run}-{self._world.attempts:04}.log"
        with running(command, log, self._stack.env) as app:
            line = f"{prints}\n" if prints else ""
            wait_until(lambda: line in app.output or app.process.poll() is not None, f"it prints {prints}", ATTEMPT_S)
            assert line in app.output, f"it does not print {prints!r}: {app.output[-3000:]}"
            then()
            code = app.process.wait(ATTEMPT_S)
            assert (code != 0) == fails, app.output[-3000:]
            return _last_error(app.output) if fails else ""

    def abandon(self, run: str) -> None:
        """Nobody repeats a run that failed: its lease ends, as after half an hour."""
        release(Run.open(self.name, run, self._stack.settings))

    # ---- S3

    def manifests(self) -> list[dict[str, Any]]:
        return [json.loads(self.bucket.body(key)) for key in self.bucket.keys("manifests")]

    def archived(self) -> dict[int, int]:
        """The archive's end without a gap, by partition."""
        return contiguous(
            (item["partition"], item["start"], item["end"]) for one in self.manifests() for item in one["ranges"]
        )

    def lose_checkpoint(self) -> None:
        """Delete the archive stream's checkpoint."""
        store = ObjectStore(self._stack.settings)
        for item in list(store.list(f"{self._stack.settings.prefix}/checkpoints/{self.name}/archive/".lstrip("/"))):
            store.delete(item.key)

    def seals(self) -> list[dict[str, Any]]:
        return [json.loads(self.bucket.body(key)) for key in self.bucket.keys("seals")]

    # ---- judgement

    def judge(
        self,
        due: Mapping[Place, int],
        *further: tuple[Place, int],
        disproven: Collection[date] = (),
        unknown: Collection[date] = (),
        dated: Callable[[int], date] = day_of,
    ) -> None:
        """Compare table, current view, objects and proofs with the records that must be there, ``dated`` by number.

        ``further`` are records at places that are due already: those of a recreated topic. Kafka has other
        records at places of days that must be ``disproven``, or that may be, because that is ``unknown``.
        """
        rows = [*rows_of(due, dated), *(row for place, n in further for row in rows_of({place: n}, dated))]
        self._judge_table(rows, disproven, unknown)
        self._judge_view(rows, dated)
        self.report(lost_objects(self.manifests(), set(self.bucket.keys("data"))))

    def judge_published(self, due: Mapping[Place, int], dated: Callable[[int], date] = day_of) -> None:
        """As ``judge``, while only the sealed days are published: the table has those of the records."""
        days = {date.fromisoformat(seal["day"]) for seal in self.seals()}
        self._judge_table([row for row in rows_of(due, dated) if row[0] in days])

    def judge_view(self, due: Mapping[Place, int]) -> None:
        """The current view has each of the records once."""
        self._judge_view(rows_of(due), day_of)

    def judge_together(self) -> None:
        """All sealed days together are proven."""
        found, days = verify_stream(self._stack.settings, self.name), {seal["day"] for seal in self.seals()}
        if (found.verdict, found.days) != ("proven", len(days)):
            self.report([f"{found.days} of {len(days)} days together are {found.verdict}: {found.checks}"])

    def _judge_table(
        self, rows: Sequence[Row], disproven: Collection[date] = (), unknown: Collection[date] = ()
    ) -> None:
        for day in sorted({*(row[0] for row in rows), *(date.fromisoformat(seal["day"]) for seal in self.seals())}):
            found = verify_day(self._stack.settings, self.name, day)
            expected = {"disproven"} if day in disproven else {"proven", "disproven"} if day in unknown else {"proven"}
            if found.verdict not in expected:
                self.report([f"{day} is {found.verdict}: {found.checks}"])
        self.report(wrong_rows(self._table(), rows))

    def _judge_view(self, rows: Sequence[Row], dated: Callable[[int], date]) -> None:
        view = np.load(max(self._views.glob("*.npy"))).T.tolist()
        self.report(
            f"the current view: {text}"
            for text in wrong_rows(((dated(n), partition, offset, n) for partition, offset, n in view), rows)
        )

    def report(self, problems: Iterable[str]) -> None:
        self._world.problems += [f"{self.name}: {problem}" for problem in problems]

    def _table(self) -> list[Row]:
        columns = ("_day", "_kafka_partition", "_offset", "n")
        with another_catalog(self._stack.settings) as catalog:
            table = catalog.load_table((self._stack.settings.namespace, self.name))
            found = table.scan(selected_fields=columns).to_arrow()
        return list(zip(*(found[name].to_pylist() for name in columns), strict=True))


def cut_log(folder: Path, offset: int) -> int:
    """Remove a log's batches from the one with that offset on, as a lost disk does. Return the log's new end.

    The broker must not be running. It builds the removed indexes again. The log must have one segment.
    """
    (segment,) = folder.glob("*.log")
    body = segment.read_bytes()
    at = end = 0
    while at < len(body):
        first, length = struct.unpack_from(">qi", body, at)
        (further,) = struct.unpack_from(">i", body, at + 23)
        if first + further >= offset:
            break
        at, end = at + 12 + length, first + further + 1
    segment.write_bytes(body[:at])
    for pattern in ("*.index", "*.timeindex", "*.snapshot"):
        for file in folder.glob(pattern):
            file.unlink()
    return end


def _last_error(output: str) -> str:
    """The last line that is an error."""
    return next((line for line in reversed(output.splitlines()) if ENDING.match(line)), output[-300:])


def all_days(*records: Mapping[Place, int]) -> Sequence[date]:
    """The days of records."""
    return sorted({day_of(n) for places in records for n in places.values()})
