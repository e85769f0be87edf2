"""One writer at a time: the one that started last continues, any other one fails, and the archive is correct."""

import json
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.archive.apps import ArchiveApp
from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.archive.running import DEADLINE_S, running
from tests.conftest import MakeStream, Produce, Record, unique
from tests.faults import FaultProxy, Rule
from tests.waiting import wait_until
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import ConflictError, DisplacedError, FormatError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark import lease as lease_module
from tidemark.spark.lease import Lease
from tidemark.stack.local import LocalStack

pytestmark = pytest.mark.conformance(6)

TIME_MS = 1_358_164_800_000


def make_records(count: int) -> list[Record]:
    return [(None, b"%d" % n, TIME_MS, 0, []) for n in range(count)]


def take(store: ObjectStore, settings: Settings, stream: Stream) -> Lease:
    """Take the lease as a successor does."""
    return Lease.take(store, Layout(prefix=settings.prefix, stream=stream.name).checkpoint_prefix("archive"))


def offsets_once(settings: Settings, stream: Stream, end: int) -> None:
    """Partition 0 is archived from 0 to ``end``, every record once, and no object is left over."""
    found = Oracle(settings, stream.name).archive()
    assert found.positions == Counter((0, n) for n in range(end))
    assert all(item["rows"] == item["end"] - item["start"] for one in found.manifests for item in one["ranges"])
    assert found.objects.keys() == found.listed


def test_the_last_writer_to_take_a_lease_holds_it(store: ObjectStore) -> None:
    prefix = f"{unique('lease')}/"
    first = Lease.take(store, prefix)
    first.check()
    second = Lease.take(store, prefix)
    second.check()
    assert (first.epoch, second.epoch) == (1, 2)
    with pytest.raises(DisplacedError, match="another writer has taken the checkpoint") as caught:
        first.check()
    for lease in (first, second):
        written = json.loads(lease.body)
        assert f"{written['holder']}, started {written['started_at']}, start {lease.epoch}" in str(caught.value)
    store.delete(f"{prefix}lease.json")
    with pytest.raises(ConflictError, match="the checkpoint of a running stream was removed"):
        second.check()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"epoch":"1"}'])
def test_a_lease_that_does_not_parse_is_not_taken(store: ObjectStore, body: bytes) -> None:
    prefix = f"{unique('lease')}/"
    store.put(f"{prefix}lease.json", body)
    with pytest.raises(FormatError, match=r"lease\.json"):
        Lease.take(store, prefix)
    assert store.get(f"{prefix}lease.json") == body


def test_of_many_writers_that_start_at_once_one_holds_the_lease(store: ObjectStore) -> None:
    prefix = f"{unique('lease')}/"
    with ThreadPoolExecutor(4) as pool:
        leases = [started.result(60) for started in [pool.submit(Lease.take, store, prefix) for _ in range(4)]]
    (holder,) = [lease for lease in leases if lease.body == store.get(f"{prefix}lease.json")]
    holder.check()
    for lease in leases:
        if lease is not holder:
            with pytest.raises(DisplacedError, match="another writer has taken the checkpoint"):
                lease.check()


def test_a_lease_that_another_writer_takes_first_is_taken_from_it(
    store: ObjectStore, settings: Settings, proxy: FaultProxy
) -> None:
    """Another writer takes the lease after this one found none and before it writes its own."""
    prefix = f"{unique('lease')}/"
    others: list[Lease] = []
    proxy.add(Rule(method="PUT", pattern=r"/lease\.json", action=lambda _: others.append(Lease.take(store, prefix))))
    own = Lease.take(ObjectStore(through(settings, proxy)), prefix)
    assert [lease.epoch for lease in (*others, own)] == [1, 2]
    own.check()
    with pytest.raises(DisplacedError, match="another writer has taken the checkpoint"):
        others[0].check()


def test_an_object_is_replaced_only_if_it_has_the_expected_bytes(store: ObjectStore) -> None:
    key = unique("replace")
    assert not store.replace(key, b"two", expected=b"one")
    assert store.replace(key, b"one", expected=None)
    assert not store.replace(key, b"two", expected=None)
    assert store.replace(key, b"two", expected=b"one")
    assert not store.replace(key, b"three", expected=b"one")
    assert store.get(key) == b"two"


def test_an_idle_writer_stops_when_another_one_starts(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_module, "CHECK_S", 0.5)
    stream = make_stream(archive={"trigger_seconds": 0})
    produce(stream.topic, make_records(5))

    def run_until_replaced() -> None:
        with running(spark, stream, settings) as run:
            wait_until(lambda: Oracle(settings, stream.name).keys("manifests") != {}, "a batch", DEADLINE_S)
            take(store, settings, stream)
            wait_until(run.ended.done, "the writer noticed", DEADLINE_S)

    with pytest.raises(DisplacedError, match="another writer has taken the checkpoint"):
        run_until_replaced()
    produce(stream.topic, make_records(5))
    archive(spark, stream, settings, available_now=True)
    offsets_once(settings, stream, 10)


@pytest.mark.parametrize(
    ("method", "pattern", "manifests"), [("POST|PUT", "/data/", 1), ("PUT", "/manifests/.*1.json", 2)]
)
def test_a_writer_replaced_in_a_batch_stops_and_the_batch_is_archived_once(
    method: str,
    pattern: str,
    manifests: int,
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    produce: Produce,
    proxy: FaultProxy,
) -> None:
    stream = make_stream()
    produce(stream.topic, make_records(10))
    archive(spark, stream, settings, available_now=True)
    produce(stream.topic, make_records(10))
    taken = [
        proxy.add(Rule(method=name, pattern=pattern, action=lambda _: take(store, settings, stream)))
        for name in method.split("|")
    ]
    with pytest.raises(DisplacedError, match="another writer has taken the checkpoint"):
        archive(spark, stream, through(settings, proxy), available_now=True)
    assert any(rule.fired.is_set() for rule in taken)
    oracle = Oracle(settings, stream.name)
    assert len(oracle.keys("manifests")) == manifests  # the lease was taken before the last check, or just after it
    assert not [key for key in oracle.keys("checkpoints") if key.endswith("/commits/1")]
    archive(spark, stream, settings, available_now=True)
    offsets_once(settings, stream, 20)


@pytest.mark.parametrize("overwritten", [0, 1], ids=["where the batch starts", "where it ends"])
def test_an_overwritten_write_ahead_log_is_found_before_anything_is_read(
    overwritten: int,
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    proxy: FaultProxy,
) -> None:
    """S3 silently lets the later of two creators of ``offsets/<batch>`` win."""
    stream = make_stream(archive={"max_offsets_per_trigger": 10})
    produce(stream.topic, make_records(20))
    oracle = Oracle(settings, stream.name)
    key = f"checkpoints/{stream.name}/archive/offsets/{overwritten}"

    def overwrite(_: str) -> None:
        lines = oracle.body(key).decode().split("\n")
        ours = json.loads(lines[2])[stream.topic]["0"]
        lines[2] = json.dumps({stream.topic: {"0": ours - 3}})
        oracle.client.put_object(Bucket=settings.bucket, Key=key, Body="\n".join(lines).encode())

    # Batch 1 reads both files: where it starts and where it ends.
    seen = proxy.add(
        Rule(method="GET", pattern=f"/offsets/{overwritten}$", nth=1 if overwritten else 2, action=overwrite)
    )
    with pytest.raises(ConflictError, match="the write-ahead log has other ranges than this query reads") as caught:
        archive(spark, stream, through(settings, proxy), available_now=True)
    assert seen.fired.is_set()
    theirs = "[7, 20)" if overwritten == 0 else "[10, 17)"
    assert f"expected partition 0 [10, 20), found partition 0 {theirs} [" in str(caught.value)
    assert oracle.archive().ranges == [(0, 0, 10)]


def test_a_finished_batchs_plan_overwritten_by_a_zombie_stops_the_next_start(
    spark: SparkSession, settings: Settings, store: ObjectStore, make_stream: MakeStream, produce: Produce
) -> None:
    """A request that hung: Spark would continue after the zombie's batch, whose end is not archived."""
    stream = make_stream()
    produce(stream.topic, make_records(10))
    archive(spark, stream, settings, available_now=True)
    produce(stream.topic, make_records(10))
    oracle = Oracle(settings, stream.name)
    key = f"checkpoints/{stream.name}/archive/offsets/0"
    store.put(key, oracle.body(key).replace(b'{"0":10}', b'{"0":14}'))
    for _ in range(2):
        with pytest.raises(ConflictError, match="a batch is committed with other ranges") as caught:
            archive(spark, stream, settings, available_now=True)
        assert f"expected {stream.topic}-0 [0, 14), found {stream.topic}-0 [0, 10)" in str(caught.value)
    assert oracle.archive().ranges == [(0, 0, 10)]
    oracle.delete("checkpoints")  # as the hint recommends
    archive(spark, stream, settings, available_now=True)
    assert set(oracle.archive().positions) == {(0, offset) for offset in range(20)}


def test_a_batch_planned_by_another_writer_is_archived_by_the_next_start(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(archive={"trigger_seconds": 0})
    produce(stream.topic, make_records(10))
    oracle = Oracle(settings, stream.name)
    folder = f"checkpoints/{stream.name}/archive/offsets"

    def run_until_planned_twice() -> None:
        with running(spark, stream, settings) as run:
            wait_until(lambda: len(oracle.archive().rows) == 10, "the first batch", DEADLINE_S)
            run.until_waiting()
            theirs = oracle.body(f"{folder}/0").replace(b'{"0":10}', b'{"0":14}')
            oracle.client.put_object(Bucket=settings.bucket, Key=f"{folder}/1", Body=theirs)
            produce(stream.topic, make_records(10))
            wait_until(run.ended.done, "Spark finds its place taken", DEADLINE_S)

    with pytest.raises(ConflictError, match="another writer planned this checkpoint's next batch"):
        run_until_planned_twice()
    archive(spark, stream, settings, available_now=True)
    assert oracle.archive().ranges == [(0, 0, 10), (0, 10, 14), (0, 14, 20)]
    offsets_once(settings, stream, 20)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "asleep", ["in the middle of its upload", pytest.param("before its manifest", marks=pytest.mark.soak)]
)
def test_a_zombie_that_wakes_up_after_its_successor_fails_and_changes_nothing(
    asleep: str,
    stack: LocalStack,
    spark: SparkSession,
    settings: Settings,
    make_stream: MakeStream,
    produce: Produce,
    proxy: FaultProxy,
    tmp_path: Path,
) -> None:
    """The second point in time: ``pytest -m soak tests/archive/test_fencing.py``."""
    stream = make_stream(archive={"max_offsets_per_trigger": 20, "flush_size": 5})
    produce(stream.topic, make_records(40))
    awake = threading.Event()
    with ArchiveApp(stack, stream.name, tmp_path / "archive.log", endpoint=proxy.url) as zombie:
        if asleep == "before its manifest":
            rule = Rule(method="PUT", pattern="/manifests/", action=lambda _: awake.wait(DEADLINE_S))
        else:
            rule = Rule(method="PUT", pattern="/data/", nth=2, action=lambda _: zombie.signal_all(signal.SIGSTOP))
        proxy.add(rule)
        zombie.until(rule.fired.is_set)
        archive(spark, stream, settings, available_now=True)
        offsets_once(settings, stream, 40)
        before = Oracle(settings, stream.name).archive()
        awake.set()
        zombie.signal_all(signal.SIGCONT)
        assert zombie.wait() == 10, zombie.output
        last = zombie.output.strip().splitlines()[-1]
        assert last.startswith("DisplacedError: another writer has taken the checkpoint: expected process "), last
        assert ", start 1, found process " in last
        assert ", start 2 [" in last
        for secret in (settings.s3_secret_key, settings.s3_access_key):
            assert secret.get_secret_value() not in zombie.output
    assert Oracle(settings, stream.name).archive() == before
    produce(stream.topic, make_records(5))
    archive(spark, stream, settings, available_now=True)
    offsets_once(settings, stream, 45)
