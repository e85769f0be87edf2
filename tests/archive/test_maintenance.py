"""Uploads and objects that crashes leave are never read, and maintenance removes or lists them. Real S3 and Spark."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.archive.oracle import Oracle
from tests.archive.small import Small
from tests.conftest import MakeStream, Produce, unique
from tests.plans import make_plan
from tidemark.archive.manifests import each_manifest, read_manifests
from tidemark.archive.read import read_slices
from tidemark.archive.stream.driver import archive
from tidemark.cli.app import app
from tidemark.cli.maintain import parse_age
from tidemark.core.errors import RequestError
from tidemark.core.layout import Layout
from tidemark.core.manifest import Manifest
from tidemark.core.plan import Target
from tidemark.definitions.stream import Stream
from tidemark.inspect.locate import locate
from tidemark.kafka.topics import describe_topic
from tidemark.maintenance import archive as maintenance
from tidemark.maintenance.archive import maintain
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

DAY = date(2013, 1, 14)
NOON_MS = int(datetime(2013, 1, 14, 12, tzinfo=UTC).timestamp() * 1000)


def start_upload(oracle: Oracle, settings: Settings, key: str) -> str:
    """Start an upload with one part and never complete it; returns its id."""
    upload = oracle.client.create_multipart_upload(Bucket=settings.bucket, Key=key)["UploadId"]
    oracle.client.upload_part(Bucket=settings.bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"part")
    return str(upload)


@pytest.mark.conformance(13)
def test_only_the_streams_own_stale_uploads_are_aborted(settings: Settings, store: ObjectStore) -> None:
    layout, other = (Layout(prefix="", stream=unique("maintained")) for _ in range(2))
    oracle, theirs = Oracle(settings, layout.stream), Oracle(settings, other.stream)
    keys = [f"{layout.data_prefix}partition={n}/object" for n in range(3)]
    for key in keys:
        start_upload(oracle, settings, key)
    start_upload(theirs, settings, f"{other.data_prefix}partition=0/object")
    now = datetime.now(UTC)

    found = maintain(store, layout, before=now - timedelta(days=1))
    assert (found.aborted, [item.key for item in found.left]) == ((), keys)
    assert len(oracle.open_uploads()) == 3

    found = maintain(store, layout, before=now + timedelta(days=1))
    assert ([item.key for item in found.aborted], found.left) == (keys, ())
    assert oracle.open_uploads() == []
    assert len(theirs.open_uploads()) == 1


@pytest.fixture
def crashed(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> tuple[Stream, list[str]]:
    """A stream of 20 archived records, and the keys of three orphans as a crash could leave them."""
    stream = make_stream(archive={"max_offsets_per_trigger": 10})
    produce(stream.topic, [(None, b"%d" % n, NOON_MS, 0, []) for n in range(20)])
    archive(spark, stream, settings, available_now=True)
    oracle = Oracle(settings, stream.name)
    first, second = sorted(oracle.archive().listed)
    folder = f"data/{stream.name}/partition=0/{stream.topic}+0"
    orphans = [
        f"{folder}+{0:020}+{10:020}+0001.parquet",  # of other settings
        f"{folder}+{0:020}+{20:020}+0000.parquet",  # another batch of the same offsets
        f"{folder}+{20:020}+{30:020}+0000.parquet",  # the next batch, without its manifest
    ]
    for orphan, like in zip(orphans, (first, first, second), strict=True):
        oracle.client.copy_object(
            Bucket=settings.bucket, Key=orphan, CopySource={"Bucket": settings.bucket, "Key": like}
        )
    return stream, orphans


@pytest.mark.conformance(13)
def test_orphans_are_listed_but_never_read(
    spark: SparkSession, settings: Settings, store: ObjectStore, crashed: tuple[Stream, list[str]]
) -> None:
    stream, orphans = crashed
    layout = Layout(prefix=settings.prefix, stream=stream.name)
    oracle = Oracle(settings, stream.name)
    (log,) = describe_topic(settings.kafka, stream.topic)
    plan = make_plan(
        stream=stream.name,
        time_zone=stream.time_zone,
        run="test",
        requested=[DAY],
        targets=[Target(log=log, start=0, end=20, log_start=0, high_watermark=20)],
        manifests=read_manifests(store, layout),
        seals=[],
    )
    rows = read_slices(spark, settings, plan.slices).select("offset", "value").collect()
    assert sorted((row.offset, bytes(row.value)) for row in rows) == [(n, b"%d" % n) for n in range(20)]
    named = {
        copy.object for offset in range(20) for copy in locate(settings, stream.name, stream.topic, 0, offset).copies
    }
    assert named == oracle.archive().listed

    before = oracle.keys("data")
    found = maintain(store, layout, before=datetime.now(UTC) + timedelta(days=1))
    assert [item.key for item in found.orphans] == orphans
    assert oracle.keys("data") == before  # listed, not deleted
    # Objects of a batch that may be running are no orphans.
    assert maintain(store, layout, before=datetime.now(UTC) - timedelta(days=1)).orphans == ()


def test_an_object_committed_during_maintenance_is_no_orphan(
    store: ObjectStore, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Small(store=store, stream=make_stream(), path=lambda _: "p")
    small.commit(0, 2)
    orphan = f"{small.layout.data_prefix}p/orphan"
    store.put(orphan, b"12345")

    def manifests(store: ObjectStore, layout: Layout) -> Iterator[Manifest]:
        small.commit(2, 4)
        yield from each_manifest(store, layout)
        small.commit(4, 6)

    monkeypatch.setattr(maintenance, "each_manifest", manifests)
    found = maintain(store, small.layout, before=datetime.now(UTC) + timedelta(days=1))
    assert [item.key for item in found.orphans] == [orphan]
    assert len(small.objects()) == 4


def test_the_command_shows_aborted_uploads_and_orphans(settings: Settings, make_stream: MakeStream) -> None:
    stream = make_stream()
    oracle = Oracle(settings, stream.name)
    upload, orphan = f"data/{stream.name}/partition=0/unfinished", f"data/{stream.name}/partition=0/orphan"
    start_upload(oracle, settings, upload)
    oracle.client.put_object(Bucket=settings.bucket, Key=orphan, Body=b"12345")
    kept = CliRunner().invoke(app, ["maintain", stream.name])
    assert kept.exit_code == 0, kept.output
    assert "Unfinished uploads aborted: 0; younger ones kept: 1\n" in kept.output
    assert "Objects in no manifest: 0, 0 bytes" in kept.output
    done = CliRunner().invoke(app, ["maintain", stream.name, "--older-than", "0s"])
    assert done.exit_code == 0, done.output
    title, aborted, first, orphans, second, ledger, small, replaced = done.output.splitlines()
    assert title == f"Objects and uploads of {stream.name} older than 0s"
    assert aborted == "Unfinished uploads aborted: 1; younger ones kept: 0"
    assert first.endswith(f"+00:00  {upload}")
    assert orphans == "Objects in no manifest: 1, 5 bytes; no reader sees them, none was deleted"
    assert second.split() == ["5", orphan]
    assert ledger == "Ledger agrees with the manifests: 0 manifests in 0 segments, 0 new"
    assert small == "Small files that would be compacted: 0 of 0 ranges, 0 bytes"
    assert replaced == "Replaced objects that would be deleted: 0, 0 bytes; 0 are too young to delete"
    assert (oracle.open_uploads(), list(oracle.keys("data"))) == ([], [orphan])


@pytest.mark.parametrize("options", [[], ["--rebuild-ledger"]])
def test_on_a_terminal_the_command_shows_its_progress(
    settings: Settings, store: ObjectStore, make_stream: MakeStream, options: list[str]
) -> None:
    small = Small(store=store, stream=make_stream(), prefix=settings.prefix)
    for start in range(0, 6, 2):
        small.commit(start, start + 2)
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "100"}
    done = CliRunner().invoke(app, ["maintain", small.stream.name, *options], env=terminal)
    assert done.exit_code == 0, done.output
    output = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.output)
    assert re.search(r"manifests read: 3(?! of).*manifests read: 3 of 3.*small ranges checked: 3", output, re.DOTALL)


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("0s", timedelta(0)),
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        ("1d", timedelta(days=1)),
        ("99999d", timedelta(99999)),
    ],
)
def test_ages_are_parsed(text: str, age: timedelta) -> None:
    assert parse_age(text) == age
    assert datetime.now(UTC) - age > datetime.min.replace(tzinfo=UTC)  # inside datetime's range


@pytest.mark.parametrize("text", ["", "1", "d", "-1d", "1.5h", "1 d", "1w", "100000d", "999999d"])
def test_an_invalid_age_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="invalid age: expected a number up to 99999 and s, m, h or d, such as 12h"):
        parse_age(text)
