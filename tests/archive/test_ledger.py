"""The ledger on the real S3 server: content, concurrent compactions, damage, rebuild."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest
from typer.testing import CliRunner

from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.conftest import MakeStream, unique
from tests.faults import FaultProxy
from tidemark.archive.ledger import ledger
from tidemark.archive.ledger.ledger import compact, read_and_compact, read_archived, rebuild, require_agreement
from tidemark.archive.manifests import commit_batch
from tidemark.cli.app import app
from tidemark.core.errors import ConflictError, FormatError, IncompleteError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.manifest import Manifest, parse_manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.sections import Speed
from tidemark.definitions.stream import Stream
from tidemark.maintenance.archive import maintain_ledger
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

LOG = TopicPartition(topic="orders", topic_id="id-one", partition=0)


class Archive:
    """A stream whose manifests the test writes, one offset range after the other."""

    def __init__(self, store: ObjectStore, stream: Stream | None = None) -> None:
        speed = Speed(topic="orders.live", dead_letter_topic="orders.dead")
        self.stream = stream or Stream(name=unique("ledger"), topic="orders", value_schema="n INT", speed=speed)
        self.store, self.layout = store, Layout(prefix="", stream=self.stream.name)
        self.end = 0

    def commit(self, number: int = 1, *, writer: str = "query-a", first: int = 0) -> None:
        for batch in range(first, first + number):
            commit_batch(
                self.store,
                self.layout,
                self.stream,
                writer=writer,
                batch=batch,
                ranges={LOG: OffsetRange(start=self.end, end=self.end + 10)},
                files=[],
                now_us=batch,
            )
            self.end += 10

    def manifests(self) -> list[Manifest]:
        bodies = [(item.key, self.store.get(item.key)) for item in self.store.list(self.layout.manifest_prefix)]
        return [parse_manifest(body or b"", where=key) for key, body in bodies]

    def read(self) -> ledger.Archived:
        return read_archived(self.store, self.layout, self.stream)

    def compact(self) -> int:
        segment = compact(self.store, self.layout, self.stream, self.read())
        return segment.number if segment else 0

    def segments(self) -> list[str]:
        return [item.key for item in self.store.list(self.layout.ledger_prefix)]


@pytest.fixture
def archive(store: ObjectStore) -> Archive:
    return Archive(store)


def test_of_every_writer_only_manifests_after_the_ledger_are_read(archive: Archive) -> None:
    archive.commit(3)
    archive.commit(2, writer="refill-1")
    assert (archive.read().new, archive.read().manifests) == (5, 5)
    assert archive.compact() == 1
    archive.commit(2, first=3)
    archive.commit(1, writer="another")
    archive.commit(1, writer="refill-1", first=2)  # an old writer continues
    found = archive.read()
    assert (found.new, found.manifests, len(found.history())) == (4, 9, 9)
    assert found.history().extents() == {LOG: (0, 90)}
    assert found.broken_links == ()
    require_agreement(found.segments, archive.manifests())
    assert {writer: (item.batch, item.manifests) for writer, item in found.positions.items()} == {
        "query-a": (4, 5),
        "refill-1": (2, 3),
        "another": (0, 1),
    }


def test_segments_keys_sort_by_number_and_parse_back() -> None:
    layout = Layout(prefix="archive", stream="flights")
    keys = [layout.ledger_key(number) for number in (1, 20, 99_999_999)]
    assert keys[0] == "archive/ledger/flights/00000001.ledger"
    assert keys == sorted(keys)
    assert [layout.parse_ledger_key(key) for key in keys] == [1, 20, 99_999_999]
    with pytest.raises(FormatError, match="not a ledger segment's key"):
        layout.parse_ledger_key("archive/ledger/flights/head.json")


def test_the_listing_skips_a_writers_many_compacted_manifests(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_LISTING_PAGE", 2)
    for writer in ("a", "b", "c"):
        archive.commit(4, writer=writer)
    assert archive.compact() == 1
    assert archive.read().new == 0
    for writer in ("c", "a", "d"):
        archive.commit(3, writer=writer, first=4)
    assert (archive.read().new, archive.read().manifests) == (9, 21)


def test_small_segments_are_merged_and_large_ones_stay(archive: Archive) -> None:
    archive.commit(8)
    assert archive.compact() == 1
    archive.commit(1, first=8)
    assert archive.compact() == 2
    assert [item.number for item in archive.read().segments] == [1, 2]
    archive.commit(1, first=9)
    assert archive.compact() == 3
    found = archive.read()
    assert [(item.number, item.manifests, item.previous and item.previous[0]) for item in found.segments] == [
        (1, 8, None),
        (3, 2, 1),
    ]
    assert found.history().extents() == {LOG: (0, 100)}
    assert len(archive.segments()) == 3


def test_planning_compacts_above_a_number_of_new_manifests(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "COMPACT_AFTER", 3)
    archive.commit(3)
    read_and_compact(archive.store, archive.layout, archive.stream)
    assert archive.segments() == []
    archive.commit(1, first=3)
    read = read_and_compact(archive.store, archive.layout, archive.stream)
    assert (read.new, archive.read().new, archive.read().manifests) == (4, 0, 4)


def test_of_many_compactions_at_once_one_wins_and_nothing_is_lost_or_doubled(
    settings: Settings, proxy: FaultProxy
) -> None:
    archive = Archive(ObjectStore(through(settings, proxy)))  # which lets one conditional write through at a time
    for round_ in range(3):
        archive.commit(4, first=4 * round_)
        archive.commit(1, writer=f"refill-{round_}")
        barrier = Barrier(6)

        def run(number: int, barrier: Barrier = barrier) -> int:
            mine = Archive(archive.store, archive.stream)
            read = mine.read()
            barrier.wait(60)
            segment = compact(mine.store, mine.layout, mine.stream, read)
            return segment.number if segment else 0

        with ThreadPoolExecutor(6) as pool:
            numbers = list(pool.map(run, range(6)))
        assert sorted(numbers) == [0] * 5 + [round_ + 1]
        found = archive.read()
        assert (found.new, found.manifests, len(found.history())) == (0, 5 * (round_ + 1), 5 * (round_ + 1))
        require_agreement(found.segments, archive.manifests())


def test_a_compaction_that_another_one_passed_changes_nothing(archive: Archive) -> None:
    archive.commit(2)
    asleep = archive.read()
    archive.commit(2, first=2)
    assert archive.compact() == 1
    assert compact(archive.store, archive.layout, archive.stream, asleep) is None
    assert archive.read().manifests == 4


def lose_first(archive: Archive) -> None:
    archive.store.delete(archive.segments()[0])


def flip_byte(archive: Archive) -> None:
    body = bytearray(archive.store.get(archive.segments()[1]) or b"")
    body[-20] ^= 1
    archive.store.put(archive.segments()[1], bytes(body))


def truncate(archive: Archive) -> None:
    archive.store.put(archive.segments()[1], (archive.store.get(archive.segments()[1]) or b"")[:-100])


def other_format(archive: Archive) -> None:
    body = archive.store.get(archive.segments()[1]) or b""
    archive.store.put(archive.segments()[1], body.replace(b"tidemark-ledger 3 ", b"tidemark-ledger 4 ", 1))


def nothing_of_ours(archive: Archive) -> None:
    archive.store.put(archive.segments()[1], b"")


def another_first(archive: Archive) -> None:
    other = Archive(archive.store, archive.stream)
    body = replace(archive.read().segments[0], manifests=7).to_bytes()
    other.store.put(archive.segments()[0], body)


def swap(archive: Archive) -> None:
    archive.store.put(archive.segments()[1], archive.store.get(archive.segments()[0]) or b"")


def change_last_manifest(archive: Archive) -> None:
    last = next(item for item in archive.manifests() if item.batch == 8)
    archive.store.put(archive.layout.manifest_key("query-a", 8), replace(last, committed_at_us=99).to_json())


def lose_last_manifest(archive: Archive) -> None:
    archive.store.delete(archive.layout.manifest_key("query-a", 8))


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (lose_first, IncompleteError, r"segment is missing: expected the segment before 2.*00000001\.ledger"),
        (flip_byte, FormatError, r"segment is damaged: expected SHA-256 \w{64}, found \w{64} .*00000002\.ledger"),
        (truncate, FormatError, r"segment is damaged"),
        (other_format, FormatError, r"unknown ledger format: expected 3, found 4 .*00000002\.ledger"),
        (nothing_of_ours, FormatError, r"not a ledger segment"),
        (another_first, ConflictError, r"not the one that the next segment names: expected segment 1, SHA-256 \w{64}"),
        (swap, ConflictError, r"expected segment 2, SHA-256 .* found segment 1"),
        (change_last_manifest, ConflictError, r"was changed or removed: .* found SHA-256 \w{64} .*query-a/0*8\.json"),
        (lose_last_manifest, ConflictError, r"was changed or removed: .* found no object .*query-a/0*8\.json"),
    ],
)
def test_a_damaged_ledger_is_reported_and_can_be_rebuilt_from_the_manifests(
    archive: Archive, damage: Callable[[Archive], None], kind: type[TidemarkError], message: str
) -> None:
    archive.commit(8)
    assert archive.compact() == 1
    archive.commit(1, first=8)
    assert archive.compact() == 2
    archive.commit(1, first=9)
    damage(archive)
    with pytest.raises(kind, match=message) as caught:
        archive.read()
    assert "tidemark maintain STREAM --rebuild-ledger" in str(caught.value)
    assert rebuild(archive.store, archive.layout, archive.stream).number == 3
    found, manifests = archive.read(), archive.manifests()
    assert (found.new, found.manifests) == (0, len(manifests))
    require_agreement(found.segments, manifests)
    # A manifest that is missing, or not the one its successor names, is still reported.
    assert [(link.writer, link.batch) for link in found.broken_links] == (
        [("query-a", 9)] if damage in {change_last_manifest, lose_last_manifest} else []
    )


def test_without_the_newest_segment_the_manifests_are_read_instead(archive: Archive) -> None:
    archive.commit(8)
    archive.compact()
    archive.commit(1, first=8)
    archive.compact()
    archive.store.delete(archive.segments()[1])
    assert (archive.read().new, archive.read().manifests) == (1, 9)
    archive.store.delete(archive.segments()[0])
    assert (archive.read().new, archive.read().manifests) == (9, 9)


@pytest.mark.parametrize("batch", [0, 2])
def test_maintenance_finds_any_compacted_manifest_that_was_removed(archive: Archive, batch: int) -> None:
    archive.commit(4)
    read: list[int] = []
    assert maintain_ledger(archive.store, archive.layout, archive.stream, progress=read.append).new == 4
    assert read == [4]  # new manifests only: there was no ledger to compare
    assert maintain_ledger(archive.store, archive.layout, archive.stream, progress=read.append).new == 0
    assert read[1:] == [1, 2, 3, 4]
    archive.store.delete(archive.layout.manifest_key("query-a", batch))
    assert archive.read().history().extents() == {LOG: (0, 40)}
    with pytest.raises(ConflictError, match=r"disagrees.*expected 4 manifests up to batch 3.*found 3.*rebuild-ledger"):
        maintain_ledger(archive.store, archive.layout, archive.stream)


def test_the_ledger_reports_a_broken_chain(archive: Archive) -> None:
    archive.commit(4)
    archive.store.delete(archive.layout.manifest_key("query-a", 1))
    before = archive.read().broken_links
    assert [(link.batch, link.after) for link in before] == [(2, 0)]
    assert archive.compact() == 1
    assert archive.read().broken_links == before


def test_the_command_compacts_and_rebuilds_the_ledger(
    settings: Settings, make_stream: MakeStream, store: ObjectStore
) -> None:
    stream = make_stream()
    archive = Archive(store, stream)
    archive.commit(3)
    done = CliRunner().invoke(app, ["maintain", stream.name])
    assert done.exit_code == 0, done.output
    assert "Ledger agrees with the manifests: 3 manifests in 1 segments, 3 new\n" in done.output
    archive.store.put(archive.segments()[0], b"rubbish")
    broken = CliRunner().invoke(app, ["maintain", stream.name])
    assert (broken.exit_code, broken.stderr.startswith("FormatError: ")) == (1, True)
    rebuilt = CliRunner().invoke(app, ["maintain", stream.name, "--rebuild-ledger"])
    assert "Ledger rebuilt: 3 manifests in 1 segments, 3 new\n" in rebuilt.output
    assert Oracle(settings, stream.name).keys("ledger") is not None
