"""Conformance 7: the archive's whole write path against an S3 server in trouble. A batch here is an object of three
parts, an object of one PUT and a manifest, written by the sink's own code; then compared with what was sent."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from botocore.retries.standard import ExponentialBackoff
from pyspark.sql import SparkSession

from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.conftest import MakeStream, Produce, unique
from tests.faults import FaultProxy, Rule
from tidemark.archive.manifests import commit_batch
from tidemark.archive.stream.conditional_writes import require_conditional_writes
from tidemark.archive.stream.driver import archive
from tidemark.archive.write.file import FileTarget
from tidemark.archive.write.task import FileLimits, write_files
from tidemark.core.errors import ConfigError, ConflictError, ServiceError
from tidemark.core.layout import Layout
from tidemark.core.manifest import DataFile, Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.sections import Speed
from tidemark.definitions.stream import Stream
from tidemark.objects.columns import object_batches
from tidemark.objects.footer import read_footer
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore, s3_client
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(7)

LOG = TopicPartition(topic="orders", topic_id="id-one", partition=0)
PART = 5 * 1024 * 1024
NOON = datetime(2013, 1, 14, 12, tzinfo=UTC)
LIMITS = FileLimits(
    flush_size=1000,
    max_bytes=1 << 30,
    rotate_interval_us=None,
    max_open_files=20,
    max_folders=1_000,
    overflow="~overflow",
)
BYTES = os.urandom(11_000_000)
# Eleven rows of a megabyte make three parts; what is in the path "small" goes in one PUT.
ROWS: list[dict[str, Any]] = [
    {
        "topic": "orders",
        "partition": 0,
        "offset": offset,
        "timestamp": NOON,
        "timestamp_type": 0,
        "key": b"k%d" % offset,
        "value": BYTES[offset * 1_000_000 : (offset + 1) * 1_000_000] if offset < 11 else b"v%d" % offset,
        "headers": [],
        "event_time": NOON,
        "path": "large" if offset < 11 else "small",
        "day": NOON.date(),
    }
    for offset in range(20)
]
RANGES = {LOG: OffsetRange(start=0, end=20)}
Call = tuple[str, str]
CREATE: Call = ("POST", r"/large/.*\?uploads")
FIRST_PART: Call = ("PUT", r"partNumber=1(&|$)")
MIDDLE_PART: Call = ("PUT", r"partNumber=2(&|$)")
LAST_PART: Call = ("PUT", r"partNumber=3(&|$)")
COMPLETE: Call = ("POST", r"/large/.*uploadId=")
PUT: Call = ("PUT", r"/small/")
MANIFEST: Call = ("PUT", r"/manifests/")
FOOTER: Call = ("GET", r"/data/")
COMMITTED: Call = ("GET", r"/manifests/")
UPLOADING = (CREATE, FIRST_PART, MIDDLE_PART, LAST_PART, COMPLETE, PUT, MANIFEST)
EVERY = (*UPLOADING, FOOTER, COMMITTED)


@pytest.fixture(autouse=True)
def _brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client pauses up to a second before its first repetition after SlowDown; here it pauses as after a 500."""
    backoff: Any = ExponentialBackoff
    monkeypatch.setitem(backoff._DEFAULT_BACKOFF_CONFIG, "throttling_base_scale", 0.05)


@dataclass(kw_only=True)
class World:
    settings: Settings
    proxy: FaultProxy
    stream: Stream
    oracle: Oracle

    def store(self, *, attempts: int = 10, read_timeout_s: float = 60) -> ObjectStore:
        """The store, through the proxy."""
        faulty = through(self.settings, self.proxy)
        return ObjectStore(faulty, s3_client(faulty, attempts=attempts, read_timeout_s=read_timeout_s))

    def write(self, store: ObjectStore, rows: Sequence[dict[str, Any]] = ROWS) -> list[DataFile]:
        layout = Layout(prefix="", stream=self.stream.name)
        target = FileTarget(store=store, layout=layout, part_bytes=PART, settings="settings-one")
        schema = pa.schema([*SCHEMA, ("path", pa.string()), ("day", pa.date32())])
        return write_files([pa.RecordBatch.from_pylist(list(rows), schema=schema)], RANGES.items(), target, LIMITS)

    def archive(self, store: ObjectStore) -> Manifest:
        """Write one batch as the stream's task and driver do."""
        files = self.write(store)
        layout = Layout(prefix="", stream=self.stream.name)
        return commit_batch(
            store, layout, self.stream, writer="w", batch=0, ranges=RANGES, files=files, now_us=1_000_000
        )

    def fault(self, calls: Sequence[Call], **what: Any) -> list[Rule]:
        return [self.proxy.add(Rule(method=method, pattern=pattern, **what)) for method, pattern in calls]

    def require_whole(self, *, unknown_uploads: int = 0) -> None:
        """The archive has exactly the sent rows and no other object, and no upload is left that could be aborted."""
        found = self.oracle.archive()
        assert sorted(found.rows, key=lambda row: row["offset"]) == [
            {name: row[name] for name in SCHEMA.names} for row in ROWS
        ]
        assert found.objects.keys() == found.listed
        assert len(self.oracle.open_uploads()) == unknown_uploads

    def require_nothing(self) -> None:
        """Only complete objects are visible, nothing is committed, and no upload is left."""
        assert self.oracle.keys("manifests") == {}
        assert self.oracle.open_uploads() == []
        for key in self.oracle.keys("data"):
            path = "large" if "/large/" in key else "small"
            assert self.oracle.table(key).num_rows == sum(row["path"] == path for row in ROWS)

    def repeat(self) -> None:
        """Repeat the batch as the next start does, without errors: the archive is the same."""
        self.proxy.clear()
        before = self.oracle.archive()
        manifest = self.archive(self.store())
        after = self.oracle.archive()
        if before.manifests:
            assert after.objects == before.objects
            assert after.manifests == before.manifests
        assert {file.key for file in manifest.files} == after.listed


@pytest.fixture
def world(settings: Settings, proxy: FaultProxy) -> World:
    name = unique("faults")
    speed = Speed(topic="orders.live", dead_letter_topic="orders.dead")
    stream = Stream(name=name, topic="orders", value_schema="n INT", speed=speed)
    return World(settings=settings, proxy=proxy, stream=stream, oracle=Oracle(settings, name))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "what", [{"answer": (500, "InternalError")}, {"answer": (503, "SlowDown")}, {"reset": True}], ids=str
)
def test_transient_errors_of_every_call_are_retried(world: World, what: dict[str, Any], when: str) -> None:
    rules = world.fault(EVERY, when=when, **what)
    world.archive(world.store())
    assert all(rule.fired.is_set() for rule in rules)
    # The id of an upload whose creation was never answered is unknown: maintenance removes it.
    world.require_whole(unknown_uploads=1 if when == "after" else 0)
    world.repeat()


@pytest.mark.parametrize("when", ["before", "after"])
def test_calls_that_time_out(world: World, when: str) -> None:
    rules = world.fault((MIDDLE_PART, COMPLETE, PUT, MANIFEST), when=when, delay_s=60, reset=True)
    world.archive(world.store(read_timeout_s=1))
    assert all(rule.fired.is_set() for rule in rules)
    world.require_whole(unknown_uploads=len(world.oracle.open_uploads()))
    creates = [target for method, target, _ in world.proxy.log if method == "POST" and target.endswith("?uploads")]
    assert len(world.oracle.open_uploads()) < len(creates)  # on a slow machine a creation may time out, too
    world.repeat()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_200_whose_body_is_an_error_counts_as_the_error(world: World, when: str) -> None:
    rules = world.fault((CREATE, FIRST_PART, COMPLETE, PUT, MANIFEST), when=when, answer=(200, "InternalError"))
    world.archive(world.store())
    assert all(rule.fired.is_set() for rule in rules)
    world.require_whole(unknown_uploads=1 if when == "after" else 0)
    world.repeat()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_conflict_of_conditional_writes_is_tried_again(world: World, when: str) -> None:
    rules = world.fault((COMPLETE, PUT, MANIFEST), when=when, answer=(409, "ConditionalRequestConflict"), times=2)
    world.archive(world.store())
    assert [rule.seen for rule in rules] == [3, 3, 3]
    world.require_whole()


@pytest.mark.parametrize("answer", [(412, "PreconditionFailed"), (404, "NoSuchUpload")])
def test_a_completion_with_a_wrong_answer_finds_its_own_object(world: World, answer: tuple[int, str]) -> None:
    calls = (COMPLETE, PUT, MANIFEST) if answer[0] == 412 else (COMPLETE,)
    rules = world.fault(calls, when="after", answer=answer)
    world.archive(world.store())
    assert all(rule.fired.is_set() for rule in rules)
    world.require_whole()


@pytest.mark.parametrize("call", [COMPLETE, PUT])
def test_a_412_without_an_object_is_reported(world: World, call: Call) -> None:
    world.fault([call], answer=(412, "PreconditionFailed"))
    with pytest.raises(ServiceError, match=r"an upload was lost: expected an object, .*, found none"):
        world.archive(world.store())
    world.require_nothing()
    world.repeat()
    world.require_whole()


def test_a_412_on_the_same_objects_reuses_them(world: World) -> None:
    first = world.write(world.store())  # and the writer died before its manifest
    assert world.write(world.store()) == first
    world.archive(world.store())
    world.require_whole()


def test_an_earlier_object_is_reused_only_if_its_rows_match_its_footer(world: World) -> None:
    (there,) = world.write(world.store(), [row for row in ROWS if row["path"] == "large"])
    body = world.oracle.body(there.key)
    at = body.index(BYTES[2_500_000:2_500_016])  # random bytes are not compressed
    world.store().put(there.key, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
    with pytest.raises(ConflictError, match=f"earlier attempt is damaged: expected rows .*{re.escape(there.key)}"):
        world.archive(world.store())
    assert world.oracle.keys("manifests") == {}
    world.store().delete(there.key)
    world.archive(world.store())
    world.require_whole()


@pytest.mark.parametrize("path", ["large", "small"])
def test_a_412_because_of_another_object_is_a_conflict(world: World, path: str) -> None:
    other = [row for row in ROWS if row["path"] == path][:-1]
    (there,) = world.write(world.store(), other)
    body = world.oracle.body(there.key)
    with pytest.raises(ConflictError, match=f"another object has a data file's key: expected {len(other) + 1} rows"):
        world.archive(world.store())
    assert world.oracle.body(there.key) == body
    assert (world.oracle.keys("manifests"), world.oracle.open_uploads()) == ({}, [])


@pytest.mark.parametrize("call", EVERY, ids=str)
def test_a_permanent_error_fails_the_batch_and_leaves_nothing_visible(world: World, call: Call) -> None:
    world.fault([call], answer=(500, "InternalError"), times=1000)
    with pytest.raises(ServiceError, match=r"S3 .* failed: found InternalError: .* \[s3://"):
        world.archive(world.store(attempts=2))
    world.require_nothing()
    world.repeat()
    world.require_whole()


@pytest.mark.parametrize("call", [FIRST_PART, LAST_PART, PUT, MANIFEST], ids=str)
def test_a_byte_changed_on_the_way_is_refused_by_the_server(world: World, call: Call) -> None:
    world.fault([call], flip=True)
    with pytest.raises(ServiceError, match=r"S3 .* failed: found 400: "):
        world.archive(world.store())
    world.require_nothing()
    world.repeat()
    world.require_whole()


def test_an_answer_that_is_cut_off_is_read_again(world: World) -> None:
    manifest = world.archive(world.store())
    (rule,) = world.fault([COMMITTED], truncate=True, times=2)
    assert world.store().get(f"manifests/{world.stream.name}/w/{0:012}.json") == manifest.to_json()
    assert rule.seen == 3
    rule.times = 1000
    with pytest.raises(ServiceError, match="S3 get failed: found "):
        world.store().get(f"manifests/{world.stream.name}/w/{0:012}.json")


@pytest.mark.parametrize(
    ("read", "none"),
    [
        (lambda store, key: store.get(key), None),
        (lambda store, key: store.replace(key, b"new", expected=b"old"), False),
        (lambda store, key: object_batches(store, key, ["offset"]), None),
        (read_footer, None),
    ],
    ids=["get", "replace", "columns", "footer"],
)
def test_a_call_whose_error_answer_is_cut_off_is_repeated(
    world: World, read: Callable[[ObjectStore, str], object], none: object
) -> None:
    (rule,) = world.fault([("GET", "absent")], truncate=True, times=2)
    assert read(world.store(), "absent.parquet") is none
    assert rule.seen == 3
    rule.times = 1000
    with pytest.raises(ServiceError, match=r"S3 \w+ failed: found ConnectionClosedError: "):
        read(world.store(), "absent.parquet")


@pytest.mark.parametrize(("method", "did"), [("PUT", "wrote an object"), ("POST", "completed a multipart upload")])
def test_a_server_that_ignores_conditional_writes_is_refused_at_the_start(
    world: World,
    settings: Settings,
    proxy: FaultProxy,
    spark: SparkSession,
    make_stream: MakeStream,
    method: str,
    did: str,
) -> None:
    prefix = unique("probed")
    probe = f"{prefix}/conditional-writes.probe"
    honest = settings.model_copy(update={"prefix": prefix})
    require_conditional_writes(ObjectStore(honest), prefix)
    require_conditional_writes(ObjectStore(honest), prefix)  # at the next start the object is there

    def forget(_: str) -> None:  # the key is free whenever a conditional write comes: the condition does nothing
        world.oracle.client.delete_object(Bucket=settings.bucket, Key=probe)

    proxy.add(Rule(method=method, pattern=r"\.probe(\?uploadId|$)", times=1000, action=forget))
    ignoring = honest.model_copy(update={"s3_endpoint": proxy.url})
    stream = make_stream()
    with pytest.raises(ConfigError, match="the S3 server ignores conditional writes") as caught:
        archive(spark, stream, ignoring, available_now=True)
    assert f"found {proxy.url} {did}" in str(caught.value)
    objects = world.oracle.client.list_objects_v2(Bucket=settings.bucket, Prefix=f"{prefix}/")["Contents"]
    kinds = {item["Key"].split("/")[1] for item in objects}
    assert not kinds & {"checkpoints", "data", "manifests"}
    assert "Uploads" not in world.oracle.client.list_multipart_uploads(Bucket=settings.bucket, Prefix=prefix)


def test_a_server_without_conditional_writes_is_refused_at_the_start(world: World) -> None:
    world.fault([("PUT", r"\.probe$")], answer=(501, "NotImplemented"))
    with pytest.raises(ServiceError, match="S3 put failed: found NotImplemented"):
        require_conditional_writes(world.store(), unique("probed"))


def test_the_stream_archives_everything_despite_transient_errors(
    spark: SparkSession, settings: Settings, proxy: FaultProxy, make_stream: MakeStream, produce: Produce
) -> None:
    stream = make_stream(archive={"flush_size": 5, "max_offsets_per_trigger": 10})
    produce(stream.topic, [(None, b"%d" % n, 1_358_164_800_000, 0, []) for n in range(20)])
    data, manifests = f"/data/{stream.name}/", f"/manifests/{stream.name}/"
    rules = [
        proxy.add(rule)
        for rule in (
            Rule(method="PUT", pattern=data, answer=(500, "InternalError")),
            Rule(method="PUT", pattern=data, nth=2, when="after", reset=True),
            Rule(method="PUT", pattern=manifests, when="after", answer=(503, "SlowDown")),
            Rule(method="PUT", pattern=manifests, nth=2, answer=(409, "ConditionalRequestConflict")),
            Rule(method="GET", pattern=manifests, nth=2, reset=True),
        )
    ]
    archive(spark, stream, through(settings, proxy), available_now=True)
    assert all(rule.fired.is_set() for rule in rules)
    found = Oracle(settings, stream.name).archive()
    assert [(row["offset"], row["value"]) for row in found.rows] == [(n, b"%d" % n) for n in range(20)]
    assert found.ranges == [(0, 0, 10), (0, 10, 20)]
    assert found.objects.keys() == found.listed
