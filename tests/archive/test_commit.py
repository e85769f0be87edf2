"""Manifests: written once, chained, and refused if the batch was committed with other ranges."""

import hashlib
import json
from urllib.parse import quote

import pytest

from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.conftest import unique
from tests.faults import FaultProxy, Rule
from tidemark.archive.manifests import commit_batch, last_manifest, read_manifests
from tidemark.core.errors import ConflictError
from tidemark.core.layout import Layout
from tidemark.core.manifest import CommittedRange, DataFile, Manifest
from tidemark.core.manifest_chain import broken_links
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.sections import Speed
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

LOG = TopicPartition(topic="orders", topic_id="id-one", partition=0)


@pytest.fixture
def stream() -> Stream:
    speed = Speed(topic="orders.live", dead_letter_topic="orders.dead")
    return Stream(name=unique("commit"), topic="orders", value_schema="n INT", speed=speed)


def commit(store: ObjectStore, stream: Stream, batch: int, start: int, end: int, *files: DataFile) -> Manifest:
    return commit_batch(
        store,
        Layout(prefix="", stream=stream.name),
        stream,
        writer="writer",
        batch=batch,
        ranges={LOG: OffsetRange(start=start, end=end)} if end > start else {},
        files=files,
        now_us=1_000 + batch,
    )


def test_each_manifest_has_the_digest_of_its_writers_last_one(
    store: ObjectStore, settings: Settings, stream: Stream
) -> None:
    written = [commit(store, stream, 0, 0, 5), commit(store, stream, 1, 5, 5), commit(store, stream, 2, 5, 9)]
    oracle = Oracle(settings, stream.name)
    bodies = [oracle.body(f"manifests/{stream.name}/writer/{batch:012}.json") for batch in range(3)]
    assert [json.loads(body)["previous"] for body in bodies] == [
        None,
        hashlib.sha256(bodies[0]).hexdigest(),
        hashlib.sha256(bodies[1]).hexdigest(),
    ]
    assert [item.ranges for item in written] == [
        (CommittedRange(log=LOG, range=OffsetRange(start=0, end=5), rows=0),),
        (),
        (CommittedRange(log=LOG, range=OffsetRange(start=5, end=9), rows=0),),
    ]
    read = read_manifests(store, Layout(prefix="", stream=stream.name))
    assert read == tuple(written)
    assert broken_links(read) == ()


def test_a_repeated_batch_keeps_its_first_manifest(store: ObjectStore, stream: Stream) -> None:
    first = commit(store, stream, 3, 0, 5)
    assert commit(store, stream, 3, 0, 5) == first
    with pytest.raises(ConflictError) as caught:
        commit(store, stream, 3, 0, 6)
    assert "expected orders-0 [0, 6), found orders-0 [0, 5)" in str(caught.value)
    assert read_manifests(store, Layout(prefix="", stream=stream.name)) == (first,)


def test_a_batch_that_another_writer_commits_first_keeps_that_manifest(
    store: ObjectStore, settings: Settings, stream: Stream, proxy: FaultProxy
) -> None:
    """Another writer commits after this one found no manifest and before it writes its own."""
    theirs: list[Manifest] = []
    proxy.add(Rule(method="PUT", pattern="/manifests/", action=lambda _: theirs.append(commit(store, stream, 0, 0, 6))))
    with pytest.raises(ConflictError, match=r"expected orders-0 \[0, 5\), found orders-0 \[0, 6\)"):
        commit(ObjectStore(through(settings, proxy)), stream, 0, 0, 5)
    assert read_manifests(store, Layout(prefix="", stream=stream.name)) == tuple(theirs)


def test_an_unfinished_manifest_is_not_read(store: ObjectStore, stream: Stream) -> None:
    """S3Proxy lists an unfinished object under its key and a UUID."""
    first = commit(store, stream, 0, 0, 5)
    layout = Layout(prefix="", stream=stream.name)
    store.put(f"{layout.manifest_key('writer', 1)}-de2ee8ea-085c-495d-8d56-0126025c94c0", b"{")
    assert read_manifests(store, layout) == (first,)
    assert last_manifest(store, layout, "writer") == first


def test_the_chain_continues_after_a_lost_manifest(store: ObjectStore, stream: Stream) -> None:
    first = commit(store, stream, 0, 0, 5)
    commit(store, stream, 1, 5, 7)
    store.delete(Layout(prefix="", stream=stream.name).manifest_key("writer", 1))
    third = commit(store, stream, 2, 7, 9)
    assert third.previous == hashlib.sha256(first.to_json()).hexdigest()


@pytest.mark.parametrize("near", [-1, 0, 1, 2, 7])
def test_the_newest_manifest_is_found_from_any_batch_near_it(store: ObjectStore, stream: Stream, near: int) -> None:
    manifests = [commit(store, stream, batch, batch, batch + 1) for batch in range(3)]
    assert last_manifest(store, Layout(prefix="", stream=stream.name), "writer", near=near) == manifests[-1]


def test_a_listing_for_the_newest_manifest_starts_near_it(
    store: ObjectStore, settings: Settings, stream: Stream, proxy: FaultProxy
) -> None:
    for batch in range(3):
        commit(store, stream, batch, batch, batch + 1)
    layout = Layout(prefix="", stream=stream.name)
    last_manifest(ObjectStore(through(settings, proxy)), layout, "writer", near=1)
    (listing, _) = proxy.log
    assert f"start-after={quote(layout.manifest_key('writer', 1), safe='')}" in listing[1]


def test_a_file_of_another_range_is_refused(store: ObjectStore, stream: Stream) -> None:
    file = DataFile(
        key="data/x/a.parquet",
        log=LOG,
        range=OffsetRange(start=0, end=4),
        rows=0,
        bytes=1,
        first_offset=0,
        last_offset=0,
        min_timestamp_us=0,
        max_timestamp_us=0,
        days=(),
        checksum="",
        sha256="",
    )
    with pytest.raises(ConflictError, match=r"expected \[0, 5\), found \[0, 4\) \[data/x/a.parquet\]"):
        commit(store, stream, 0, 0, 5, file)
    assert read_manifests(store, Layout(prefix="", stream=stream.name)) == ()
