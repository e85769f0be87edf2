"""kill -9 of the archive application at chosen moments, its restarts, and a polite stop. What is killed or signalled is
a process of its own; a start that only has to end well is one in the session of all tests."""

import json
import os
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.archive.apps import ArchiveApp
from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.conftest import MakeStream, Produce, Record
from tests.faults import FaultProxy, Rule
from tests.waiting import wait_until
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import ConflictError
from tidemark.definitions.stream import Stream, load_stream
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack

TIME_MS = 1_358_164_800_000

pytestmark = pytest.mark.timeout(900)


@dataclass(kw_only=True)
class World:
    """One stream, the proxy before its store, and the oracle."""

    stack: LocalStack
    proxy: FaultProxy
    stream: Stream
    oracle: Oracle
    log: Path

    def start(self, *, forever: bool = False, master: str | None = None) -> ArchiveApp:
        self.proxy.clear()
        return ArchiveApp(
            self.stack, self.stream.name, self.log, endpoint=self.proxy.url, forever=forever, master=master
        )

    def run_killed_at(
        self, method: str, pattern: str, nth: int = 1, *, forever: bool = False, master: str | None = None
    ) -> None:
        """Start the application and kill -9 it when it sends that request, which never reaches the server."""
        with self.start(forever=forever, master=master) as app:
            rule = Rule(method=method, pattern=pattern, nth=nth, action=lambda _: app.kill(), reset=True)
            self.proxy.add(rule)
            assert app.wait() == -signal.SIGKILL, app.output
            assert rule.fired.is_set()
        # Requests that the killed application sent before may still arrive.
        wait_until(lambda: self.proxy.quiet, "the proxy forwards the last request of a killed application")

    def position(self) -> int:
        """Partition 0's next offset after the newest batch that Spark committed."""
        prefix = f"checkpoints/{self.stream.name}/archive/"
        names = [key.rpartition("/commits/")[2] for key in self.oracle.keys("checkpoints") if "/commits/" in key]
        newest = max(int(name) for name in names if name)
        line = self.oracle.body(f"{prefix}offsets/{newest}").decode().splitlines()[2]
        position: int = json.loads(line)[self.stream.topic]["0"]
        return position

    def configure(self, **archive: Any) -> None:
        """Change the stream's archive settings in its file."""
        path = self.stack.settings.streams_dir / f"{self.stream.name}.yaml"
        raw = yaml.safe_load(path.read_text())
        raw["archive"] |= archive
        path.write_text(yaml.safe_dump(raw))


@pytest.mark.conformance(2)
def test_three_crashes_in_a_log_of_a_megabyte_lose_and_double_nothing(
    stack: LocalStack,
    spark: SparkSession,
    proxy: FaultProxy,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    tmp_path: Path,
) -> None:
    """R3: 90 records of 1 MB per file, parts of 25 MB, so four parts a file. What is before offset 180 is small."""
    megabyte = 1_000_000
    archive_keys = {"flush_size": 90, "part_bytes": 25_000_000, "max_offsets_per_trigger": 90, "trigger_seconds": 0}
    stream = make_stream(archive=archive_keys)
    world = World(
        stack=stack, proxy=proxy, stream=stream, oracle=Oracle(settings, stream.name), log=tmp_path / "archive.log"
    )

    def key(start: int) -> str:
        return f"data/{stream.name}/partition=0/{stream.topic}+0+{start:020}+{start + 90:020}+0000.parquet"

    def parts(start: int) -> list[str]:
        wanted = f"{start:020}%2B{start + 90:020}"
        done = [target for method, target, status in proxy.log if (method, status) == ("PUT", 200) and wanted in target]
        return [target.partition("partNumber=")[2].partition("&")[0] for target in done]

    sent: list[bytes] = []

    def send(count: int, size: int = megabyte) -> None:
        values = [os.urandom(size) for _ in range(count)]
        sent.extend(values)
        produce(stream.topic, [(None, value, TIME_MS, 0, []) for value in values])

    # (a) from 180 on: all four parts go up, the object appears, the next position is 270;
    # (b) then killed while part four of the next object goes up: nothing shows, and the position stays
    send(180, size=10)
    send(180)
    world.run_killed_at("PUT", rf"{270:020}\+{360:020}.*partNumber=4(&|$)")
    assert parts(180) == ["1", "2", "3", "4"]
    assert parts(270) == ["1", "2", "3"]
    assert world.oracle.keys("data").keys() == {key(0), key(90), key(180)}
    assert world.position() == 270

    # restarted: it resumes at 270, the object appears, the next position is 360;
    # (c) and the next object goes up whole, but the progress write is lost
    send(90)
    world.run_killed_at("PUT", r"/manifests/.*/0{11}4\.json")
    assert world.oracle.keys("data").keys() == {key(start) for start in (0, 90, 180, 270, 360)}
    assert world.position() == 360
    assert world.oracle.archive().ranges[-1] == (0, 270, 360)

    # restarted: the batch from 360 is repeated without duplicates, the next position is 450
    before = world.oracle.keys("data")
    proxy.clear()
    archive(spark, stream, through(settings, proxy), available_now=True)
    assert parts(360) == ["1", "2", "3", "4"]
    assert world.position() == 450
    found = world.oracle.archive()
    assert found.objects == before
    assert found.ranges == [(0, start, start + 90) for start in (0, 90, 180, 270, 360)]
    assert found.positions == Counter((0, offset) for offset in range(450))
    assert [row["value"] for row in found.rows] == sent


def records(count: int) -> list[Record]:
    return [(None, b"%d" % n, TIME_MS + n, n % 2, []) for n in range(count)]


@pytest.mark.conformance(3, 4)
def test_kills_at_every_step_of_a_batch_and_changed_settings_lose_nothing(
    stack: LocalStack,
    spark: SparkSession,
    proxy: FaultProxy,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    tmp_path: Path,
) -> None:
    """Each start ends at another point, the last one by SIGTERM, which lets it finish its batch."""
    stream = make_stream(partitions=2, archive={"flush_size": 3, "max_offsets_per_trigger": 12, "trigger_seconds": 0})
    oracle = Oracle(settings, stream.name)
    world = World(stack=stack, proxy=proxy, stream=stream, oracle=oracle, log=tmp_path / "archive.log")
    sent = records(48)
    offsets = produce(stream.topic, sent)

    world.run_killed_at("PUT", "/data/", master="local[1]")
    assert (oracle.keys("data"), oracle.keys("manifests")) == ({}, {})

    # Another trigger, and twice as many tasks at a time; two partitions, two files each.
    world.run_killed_at("PUT", "/data/", nth=3, forever=True)
    crashed = set(oracle.keys("data"))
    assert 1 <= len(crashed) <= 3  # of four: the other task's second request may already be on its way
    assert oracle.keys("manifests") == {}

    # The same range under other settings: the existing files do not conflict.
    world.configure(flush_size=2)
    world.run_killed_at("PUT", "/archive/commits/0", master="local[1]")
    (manifest,) = oracle.archive().manifests
    assert [(item["partition"], item["start"], item["end"]) for item in manifest["ranges"]] == [(0, 0, 6), (1, 0, 6)]
    assert {file["rows"] for file in manifest["files"]} == {2}
    assert not crashed & {file["key"] for file in manifest["files"]}

    # Spark repeats the batch and finds it committed; other settings again change nothing about it. In the middle of the
    # next batch, while a data file is on the way, a supervisor signals the driver, its JVM and the Python workers: the
    # batch is finished, and the one that would come next is not begun.
    world.configure(flush_size=5, max_offsets_per_trigger=24)
    with world.start(forever=True) as app:
        rule = Rule(method="PUT", pattern="/data/", action=lambda _: app.signal_all(signal.SIGTERM), delay_s=0.5)
        proxy.add(rule)
        assert app.wait() == 0, app.output
        assert rule.fired.is_set()
    found = oracle.archive()
    assert found.manifests[0] == manifest
    assert found.ranges == [(0, 0, 6), (1, 0, 6), (0, 6, 18), (1, 6, 18)]
    assert {(row["partition"], row["offset"]): row["value"] for row in found.rows} == {
        (record[3], offset): record[1] for record, offset in zip(sent, offsets, strict=True) if offset < 18
    }
    assert len(found.rows) == 36
    assert (
        found.objects.keys() == found.listed | crashed
    )  # the crashed batch's objects stay, and no manifest lists them
    log = world.log.read_text()
    events = [json.loads(line) for line in log.splitlines() if line.startswith('{"time"')]
    assert [(line["batch"], line["repeated"]) for line in events if line["event"] == "batch"] == [
        (0, False),
        (0, True),
        (1, False),
    ]
    for secret in (settings.s3_secret_key, settings.s3_access_key):
        assert secret.get_secret_value() not in log

    # Another program's object has the next key: the stream reports it and does not overwrite it.
    taken = f"data/{stream.name}/partition=0/{stream.topic}+0+{18:020}+{24:020}+0000.parquet"
    oracle.client.put_object(Bucket=settings.bucket, Key=taken, Body=b"somebody else's")
    with pytest.raises(
        ConflictError, match=r"an object that Tidemark did not write has a data file.s key: expected Parquet"
    ) as caught:
        archive(spark, load_stream(stream.name, settings.streams_dir), settings, available_now=True)
    assert f"[s3://{settings.bucket}/{taken}]" in str(caught.value)
    assert oracle.body(taken) == b"somebody else's"
