"""A stream as people find it one morning: days that are proven, a late record, and a yesterday that lost records."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from rich.console import Console

from tests.conftest import Produce
from tests.conftest import Record as Produced
from tests.pages import blocks
from tidemark.cli.one_run import RunResult, run_here
from tidemark.installation import PROJECT
from tidemark.kafka.topics import ensure_topic
from tidemark.orchestration.tasks import Request
from tidemark.settings import Settings

RIDES = "rides"
ZONE = ZoneInfo("Europe/Berlin")
PARTITIONS = (0, 1)
HOURS = 23
LOST = 5  # records of yesterday, at the beginning of partition 0
README = {Path(block.title).name: block.text for block in blocks(PROJECT / "README.md") if block.title}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rides:
    """The README's stream, in a folder of definitions of its own.

    ``proven`` are days with version 1; of these, ``reopened`` has a late record and version 2, and ``rejected`` a ride
    that is in quarantine. ``incomplete`` is yesterday: retention took the first records before anything read them.
    """

    settings: Settings
    today: date
    rejected_at: tuple[int, int] = (1, 3 * HOURS)  # partition and offset: after three days
    runs: dict[str, RunResult] = field(default_factory=dict)

    @classmethod
    def define(cls, settings: Settings, folder: Path) -> "Rides":
        """The definition's files and the topics. There is no record yet."""
        definition = yaml.safe_load(README[f"{RIDES}.yaml"])
        definition["batch"]["wait_seconds"] = 0
        (folder / f"{RIDES}.yaml").write_text(yaml.safe_dump(definition, sort_keys=False), encoding="utf-8")
        (folder / f"{RIDES}.py").write_text(README[f"{RIDES}.py"], encoding="utf-8")
        for topic in (RIDES, f"{RIDES}.live", f"{RIDES}.dead-letter"):
            ensure_topic(settings.kafka, topic, partitions=len(PARTITIONS), config={"retention.ms": "-1"})
        own = settings.model_copy(update={"streams_dir": folder})
        return cls(settings=own, today=datetime.now(ZONE).date())

    @property
    def proven(self) -> tuple[date, ...]:
        return tuple(self.today - timedelta(days=ago) for ago in (5, 4, 3, 2))

    @property
    def reopened(self) -> date:
        return self.proven[1]

    @property
    def rejected(self) -> date:
        return self.proven[0]

    @property
    def incomplete(self) -> date:
        return self.today - timedelta(days=1)

    def fill(self, produce: Produce, spark: SparkSession) -> None:
        """Everything that happened until this morning: three runs."""
        first = [record for day in self.proven[:-1] for record in _day(day)]
        produce(RIDES, [*first, _ride(self.rejected, 30, 1, good=False)])
        self._run("first", self.proven[:-1], spark)
        produce(RIDES, [*_day(self.proven[-1]), _ride(self.reopened, 61, 0)])
        self._run("late", self.proven[-1:], spark)
        offsets = produce(RIDES, list(_day(self.incomplete)))
        start = TopicPartition(RIDES, 0, min(offsets[0::2]) + LOST)
        admin = AdminClient({"bootstrap.servers": self.settings.kafka_bootstrap})
        for done in admin.delete_records([start]).values():
            done.result(60)
        self._run("incomplete", (self.incomplete,), spark)

    def _run(self, name: str, days: tuple[date, ...], spark: SparkSession) -> None:
        request = Request(days=days, force=False)
        self.runs[name], _ = run_here(Console(file=io.StringIO()), self.settings, RIDES, request, lambda: spark)


def _day(day: date) -> Iterator[Produced]:
    """A ride per hour and partition, in turns."""
    for hour in range(HOURS):
        for partition in PARTITIONS:
            yield _ride(day, hour * 60 + partition, partition)


def _ride(day: date, minute: int, partition: int, *, good: bool = True) -> Produced:
    ended_at = datetime(day.year, day.month, day.day, tzinfo=ZONE) + timedelta(minutes=minute)
    ride = {"ride": f"r-{day:%m%d}-{minute}", "ended_at": ended_at.isoformat(), "fare": 12.5, "distance_m": 3400}
    if not good:
        del ride["distance_m"]
    return (str(ride["ride"]).encode(), json.dumps(ride).encode(), int(ended_at.timestamp() * 1000), partition, [])
