"""kill -9 of the archive application at chosen moments, its restarts, and a polite stop. Each start is a real one."""

import json
import os
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.archive.apps import ArchiveApp
from tests.archive.oracle import Oracle
from tests.conftest import MakeStream, MakeTopic, Produce, Record
from tests.faults import FaultProxy, Rule
from tests.waiting import wait_until
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack
from tidemark.streams import Stream

STAMP_MS = 1_358_164_800_000

pytestmark = pytest.mark.timeout(900)


@dataclass(kw_only=True)
class World:
    """One stream, the proxy before its store, and what a person would look at."""

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
        # What the killed application sent before may still be on its way.
        wait_until(lambda: self.proxy.quiet, "the proxy forwards the last request of a killed application")

    def run(self, *, master: str | None = None) -> None:
        with self.start(master=master) as app:
            assert app.wait() == 0, app.output

    def position(self) -> int:
        """Partition 0's next offset, as the newest batch that Spark committed left it."""
        prefix = f"checkpoints/{self.stream.name}/archive/"
        names = [key.rpartition("/commits/")[2] for key in self.oracle.keys("checkpoints") if "/commits/" in key]
        newest = max(int(name) for name in names if name)
        line = self.oracle.body(f"{prefix}offsets/{newest}").decode().splitlines()[2]
        position: int = json.loads(line)[self.stream.topic]["0"]
        return position

    def configure(self, **archive: Any) -> None:
        """Change the stream's archive settings as an operator would, in its file."""
        path = self.stack.settings.streams_dir / f"{self.stream.name}.yaml"
        raw = yaml.safe_load(path.read_text())
        raw["archive"] |= archive
        path.write_text(yaml.safe_dump(raw))


def test_the_three_scenarios_of_a_megabyte_log(
    stack: LocalStack,
    proxy: FaultProxy,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    tmp_path: Path,
) -> None:
    """R3: 90 records of 1 MB per file, parts of 25 MB, so four parts a file."""
    megabyte = 1_000_000
    archive = {"flush_size": 90, "part_bytes": 25_000_000, "max_offsets_per_trigger": 90, "trigger_seconds": 0}
    stream = make_stream(archive=archive)
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

    def send(count: int) -> None:
        values = [os.urandom(megabyte) for _ in range(count)]
        sent.extend(values)
        produce(stream.topic, [(None, value, STAMP_MS, 0, []) for value in values])

    # (a) from 180 on: all four parts go up, the object appears, the next position is 270
    send(270)
    world.run()
    assert parts(180) == ["1", "2", "3", "4"]
    assert key(180) in world.oracle.keys("data")
    assert world.position() == 270

    # (b) killed while part four goes up: nothing shows, and the position stays
    send(90)
    world.run_killed_at("PUT", r"partNumber=4(&|$)")
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

    # restarted: 360 is done again, nothing is there twice, the next position is 450
    before = world.oracle.keys("data")
    world.run()
    assert world.position() == 450
    found = world.oracle.archive()
    assert found.objects == before
    assert found.ranges == [(0, start, start + 90) for start in (0, 90, 180, 270, 360)]
    assert found.positions == Counter((0, offset) for offset in range(450))
    assert [row["value"] for row in found.rows] == sent


def records(start: int, count: int) -> list[Record]:
    return [(None, b"%d" % n, STAMP_MS + n, n % 2, []) for n in range(start, start + count)]


def test_kill_9_before_an_upload_between_two_and_before_sparks_commit_with_other_settings_on_the_way(
    stack: LocalStack, proxy: FaultProxy, settings: Settings, make_stream: MakeStream, produce: Produce, tmp_path: Path
) -> None:
    stream = make_stream(partitions=2, archive={"flush_size": 3, "max_offsets_per_trigger": 12, "trigger_seconds": 0})
    oracle = Oracle(settings, stream.name)
    world = World(stack=stack, proxy=proxy, stream=stream, oracle=oracle, log=tmp_path / "archive.log")
    sent = records(0, 36)
    offsets = produce(stream.topic, sent)

    world.run_killed_at("PUT", "/data/", master="local[1]")
    assert (oracle.keys("data"), oracle.keys("manifests")) == ({}, {})

    # Another trigger, and twice as many tasks at a time; two partitions, two files each.
    world.run_killed_at("PUT", "/data/", nth=3, forever=True)
    crashed = set(oracle.keys("data"))
    assert 1 <= len(crashed) <= 2
    assert oracle.keys("manifests") == {}

    # The same range under other settings: the files that are there are in nobody's way.
    world.configure(flush_size=2)
    world.run_killed_at("PUT", "/archive/commits/0", master="local[1]")
    (manifest,) = oracle.archive().manifests
    assert [(item["partition"], item["start"], item["end"]) for item in manifest["ranges"]] == [(0, 0, 6), (1, 0, 6)]
    assert {file["rows"] for file in manifest["files"]} == {2}
    assert not crashed & {file["key"] for file in manifest["files"]}

    # Spark repeats the batch and finds it committed; other settings again change nothing about it.
    world.configure(flush_size=5, max_offsets_per_trigger=24)
    world.run()
    found = oracle.archive()
    assert found.manifests[0] == manifest
    assert found.ranges == [(0, 0, 6), (1, 0, 6), (0, 6, 18), (1, 6, 18)]
    assert {(row["partition"], row["offset"]): row["value"] for row in found.rows} == {
        (record[3], offset): record[1] for record, offset in zip(sent, offsets, strict=True)
    }
    assert len(found.rows) == 36
    assert found.objects.keys() == found.listed | crashed  # what crashed stays behind, listed nowhere
    events = [json.loads(line) for line in world.log.read_text().splitlines() if line.startswith('{"time"')]
    assert [(line["batch"], line["again"]) for line in events if line["event"] == "batch"] == [
        (0, False),
        (0, True),
        (1, False),
    ]


def test_sigterm_finishes_the_batch_in_hand_and_a_failure_exits_with_its_text(
    stack: LocalStack,
    proxy: FaultProxy,
    settings: Settings,
    make_stream: MakeStream,
    make_topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
) -> None:
    stream = make_stream(archive={"max_offsets_per_trigger": 5, "trigger_seconds": 0})
    oracle = Oracle(settings, stream.name)
    world = World(stack=stack, proxy=proxy, stream=stream, oracle=oracle, log=tmp_path / "archive.log")
    produce(stream.topic, [(None, b"%d" % n, STAMP_MS, 0, []) for n in range(50)])
    with world.start(forever=True) as app:
        # The signal comes in the middle of batch 1: while its data file is on the way.
        rule = proxy.add(Rule(method="PUT", pattern="/data/", nth=2, action=lambda _: app.terminate(), delay_s=0.5))
        assert app.wait() == 0, app.output
        assert rule.fired.is_set()
        assert [line["batch"] for line in app.events("batch")] == [0, 1]
    assert oracle.archive().positions == Counter((0, offset) for offset in range(10))

    # A signal to the whole session takes the Python workers along: the batch is given up, and comes again.
    with world.start(forever=True) as app:
        proxy.add(
            Rule(method="PUT", pattern="/data/", nth=2, action=lambda _: app.signal_all(signal.SIGTERM), reset=True)
        )
        assert app.wait() == 0, app.output
    kept = oracle.archive().positions
    assert kept == Counter((0, offset) for offset in range(len(kept)))

    # An object of somebody else under the next key: the stream says so and does not overwrite it.
    start = len(kept)
    taken = f"data/{stream.name}/partition=0/{stream.topic}+0+{start:020}+{start + 5:020}+0000.parquet"
    oracle.client.put_object(Bucket=settings.bucket, Key=taken, Body=b"somebody else's")
    with world.start() as app:
        assert app.wait() == 1
        last = app.output.strip().splitlines()[-1]
        assert last.startswith("ConflictError: an object that Tidemark did not write is in the way: expected Parquet")
        assert f"[s3://{settings.bucket}/{taken}]" in last
    assert oracle.body(taken) == b"somebody else's"
    for secret in (settings.s3_secret_key, settings.s3_access_key):
        assert secret.get_secret_value() not in world.log.read_text()
