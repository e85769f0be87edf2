"""Compaction of small files on the real S3 server: results, exceptions, crashes, concurrency."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from threading import Barrier
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.archive.compacting import WEEK, compaction, delete, make
from tests.archive.conftest import through
from tests.archive.small import NOW, ZONE, Small, hour, micros, time_of
from tests.conftest import MakeStream
from tests.faults import FaultProxy
from tidemark.archive.ledger.ledger import compact, read_archived, rebuild
from tidemark.cli.app import app
from tidemark.core.errors import ConflictError, FormatError
from tidemark.core.manifest import CommittedRange, DayRows, digest
from tidemark.core.offsets import OffsetRange
from tidemark.definitions.sections import Archive
from tidemark.maintenance import replaced as replaced_objects
from tidemark.maintenance.archive import maintain
from tidemark.maintenance.compaction import TRIES, CompactedFiles
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(53)

YOUNG = "are too young to delete"
DAY_ONE, DAY_TWO = date(2013, 1, 14), date(2013, 1, 15)


def test_small_files_become_one_per_folder_with_every_row_in_order(store: ObjectStore) -> None:
    small = make(store)
    before = [small.commit(start, start + 2, writer=f"query-{start // 16}") for start in range(0, 32, 2)]
    small.commit(0, 3, log=small.log(1))  # alone in its partition
    compact(small.store, small.layout, small.stream, read_archived(small.store, small.layout, small.stream))
    there = small.objects()
    before.append(small.commit(32, 34))  # not in the ledger

    done = compaction(small).run()

    (made,) = small.compactions()
    assert made.ranges == (CommittedRange(log=small.log(), range=OffsetRange(start=0, end=34), rows=34),)
    assert (made.batch, made.previous, made.committed_at_us) == (0, None, micros(NOW))
    assert made.last == before[-1].last
    assert [(item.log, item.offset) for item in made.last] == [(small.log(), 33)]
    assert [(item.writer, item.batch, item.digest) for item in made.replaces] == [
        (item.writer, item.batch, digest(item.to_json())) for item in before
    ]
    hours = [range(start, min(start + 6, 34)) for start in range(0, 34, 6)]
    files = sorted(made.files, key=lambda file: file.first_offset)
    assert [small.layout.parse_data_key(file.key).path for file in files] == [hour(time_of(own.start)) for own in hours]
    assert [small.rows(file.key) for file in files] == [small.expected(own) for own in hours]
    assert [file.days for file in files] == [
        (
            DayRows(
                day=DAY_ONE if own.start < 24 else DAY_TWO, rows=len(own), first_offset=own.start, last_offset=own[-1]
            ),
        )
        for own in hours
    ]
    assert there.items() <= small.objects().items()  # nothing was touched
    assert (done.batches, done.ranges, done.files, done.files_written) == (1, 17, 17, 6)

    # Replaced ranges are in a segment. The new range is not in the ledger, in the next segment, in a rebuilt one.
    assert small.ranges_in_use() == [(0, 34)]
    assert compact(small.store, small.layout, small.stream, read_archived(small.store, small.layout, small.stream))
    assert small.ranges_in_use() == [(0, 34)]
    rebuild(small.store, small.layout, small.stream)
    assert small.ranges_in_use() == [(0, 34)]
    # Neither inputs nor outputs are orphans, and there is nothing more to do.
    assert maintain(small.store, small.layout, before=datetime.now(UTC) + WEEK).orphans == ()
    assert (compaction(small).run().batches, len(small.compactions())) == (0, 1)


@pytest.mark.conformance(76)
@pytest.mark.parametrize("all_counted", [True, False])
def test_a_compaction_keeps_how_many_times_of_a_day_could_not_be_read(store: ObjectStore, all_counted: bool) -> None:
    """The second day's last batch may be of an earlier version, which did not count them."""
    small = make(store)
    unreadable = frozenset({1, 2, 3, 17, 22, 23, 24, 30})
    for start in range(0, 32, 4):
        small.commit(start, start + 4, unreadable=unreadable)
    small.commit(32, 34, unreadable=frozenset() if all_counted else None)

    def per_day() -> dict[date, int | None]:
        history = read_archived(small.store, small.layout, small.stream).history()
        found: dict[date, int | None] = {}
        for day in (DAY_ONE, DAY_TWO):
            own = [rows.unreadable_times for file in history.files_of(day) for rows in file.days if rows.day == day]
            counts = [number for number in own if number is not None]
            found[day] = sum(counts) if len(counts) == len(own) else None
        return found

    expected = {DAY_ONE: 6, DAY_TWO: 2 if all_counted else None}
    assert per_day() == expected
    compaction(small).run()
    (made,) = small.compactions()
    assert json.loads(made.to_json())["format"] == 3
    assert len(made.files) == 6
    assert all((rows.unreadable_times or 0) <= rows.rows for file in made.files for rows in file.days)
    assert per_day() == expected


def test_ranges_that_are_young_of_other_settings_or_with_holes_stay(store: ObjectStore) -> None:
    small = make(store)
    otherwise = small.stream.model_copy(update={"archive": Archive(flush_size=1_000)})
    small.commit(0, 2)
    small.commit(2, 4, stream=otherwise)
    small.commit(4, 6)
    small.commit(6, 8, without=frozenset({7}))  # a hole
    small.commit(8, 10)
    small.commit(8, 10, writer="refill-1")  # archived twice
    small.commit(10, 12, at=NOW - timedelta(hours=23))
    small.commit(12, 14)
    small.commit(15, 17)  # after a gap
    seen = small.objects()
    found = compaction(small).preview()
    assert found == CompactedFiles(young=1, other_settings=1, has_holes=1)
    assert compaction(small).run() == found
    assert (small.compactions(), small.objects()) == ([], seen)


def test_the_command_shows_why_a_transactional_topic_is_not_compacted(
    settings: Settings, store: ObjectStore, make_stream: MakeStream
) -> None:
    small = Small(store=store, stream=make_stream(time_zone=str(ZONE)), prefix=settings.prefix, path=lambda _: "p")
    for start in range(0, 12, 3):
        small.commit(start, start + 3, without=frozenset({start + 2}))  # the marker
    small.commit(0, 3, log=small.log(1), without=frozenset({2}))  # without a neighbour
    shown = CliRunner().invoke(app, ["maintain", small.stream.name])
    assert shown.exit_code == 0, shown.output
    small_files, alone, *_ = shown.output.splitlines()[-3:]
    assert small_files == "Small files that would be compacted: 0 of 0 ranges, 0 bytes"
    assert alone == "  small ranges skipped: 4 with holes"


def test_after_a_crash_before_the_manifest_the_same_objects_are_reused(store: ObjectStore) -> None:
    small = make(store)
    for start in range(0, 12, 2):
        small.commit(start, start + 2)
    crashed = compaction(small)
    (group,) = crashed._groups(read_archived(small.store, small.layout, small.stream).history(), CompactedFiles())
    crashed.write(group)
    left = small.objects()
    assert small.ranges_in_use() == [(start, start + 2) for start in range(0, 12, 2)]  # no reader sees them

    assert compaction(small).run().batches == 1

    assert small.objects() == left  # reused unchanged
    (made,) = small.compactions()
    assert {file.key for file in made.files} < left.keys()
    assert small.ranges_in_use() == [(0, 12)]


def test_two_compactions_at_once_replace_no_range_twice(settings: Settings, proxy: FaultProxy) -> None:
    """Both choose overlapping groups before either commits; one of them also has younger ranges."""
    small = make(ObjectStore(through(settings, proxy)))  # which lets one conditional write through at a time
    for start in range(0, 16, 2):
        small.commit(start, start + 2, at=NOW - timedelta(days=3 if start < 10 else 1))
    barrier = Barrier(2)

    def run(now: datetime) -> CompactedFiles:
        waiting = [True]

        def meet(_: int) -> None:
            if waiting:
                waiting.clear()
                barrier.wait(300)

        return compaction(small, now, meet).run()

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(run, (NOW - timedelta(days=1), NOW)))

    made = small.compactions()
    replaced = [(item.writer, item.batch) for manifest in made for item in manifest.replaces]
    assert len(replaced) == len(set(replaced))
    assert sum(item.batches for item in done) == len(made)
    in_use = small.ranges_in_use()
    assert [start for start, _ in in_use] == [0, *(end for _, end in in_use[:-1])]  # adjacent, without overlap
    assert in_use[-1][1] == 16
    assert [item.previous for item in made[1:]] == [digest(item.to_json()) for item in made[:-1]]


@pytest.mark.conformance(31)
def test_a_compaction_that_never_commits_first_ends_with_an_explained_error(settings: Settings) -> None:
    class OthersFirst(ObjectStore):
        """A bucket where the next manifest of a compaction is always another one's."""

        manifests = 0

        def put_if_absent(self, key: str, body: bytes, **options: Any) -> bool:
            if "/compact/" not in key:
                return super().put_if_absent(key, body, **options)
            self.manifests += 1
            assert self.manifests <= TRIES
            return False

    others = OthersFirst(settings)
    small = make(others)
    for start in range(0, 8, 2):
        small.commit(start, start + 2)
    with pytest.raises(ConflictError, match="other compactions of this archive commit first") as caught:
        compaction(small).run()
    assert others.manifests == TRIES
    assert "Let the other maintenance of the stream finish" in str(caught.value)
    small.store = ObjectStore(settings)
    assert compaction(small).run().batches == 1


def test_a_damaged_input_is_named_and_nothing_becomes_visible(store: ObjectStore) -> None:
    small = make(store)
    manifests = [small.commit(start, start + 2) for start in range(0, 8, 2)]
    (damaged,) = manifests[2].files
    other = make(store)
    other.stream = other.stream.model_copy(update={"name": small.stream.name})
    other.values = lambda offset: b"other %d" % offset
    good = small.store.get(damaged.key)
    assert good is not None
    small.store.delete(damaged.key)
    deleted = f"can't be compacted: found .*: a committed object is missing: .*{damaged.key}".replace("+", r"\+")
    with pytest.raises(FormatError, match=deleted):
        compaction(small).run().require_fit()
    other.commit(4, 6, writer="somebody")  # other rows under the same key
    small.store.delete(small.layout.manifest_key("somebody", 0))
    seen = small.objects()
    with pytest.raises(FormatError, match="an object's rows are not those in its manifest") as caught:
        compaction(small).run().require_fit()
    assert damaged.key in str(caught.value)
    assert (small.compactions(), small.objects()) == ([], seen)
    small.store.put(damaged.key, good)
    assert compaction(small).run().batches == 1


def test_a_damaged_input_does_not_prevent_the_compaction_of_other_logs(store: ObjectStore) -> None:
    small = make(store)
    for partition in (0, 1):
        made = [small.commit(start, start + 2, log=small.log(partition)) for start in range(0, 8, 2)]
        if partition == 0:
            small.store.delete(made[2].files[0].key)
    with pytest.raises(FormatError, match=r"can't be compacted: found .*-0 \[0, 8\): a committed object is missing"):
        compaction(small).run().require_fit()
    assert [item.ranges[0].log.partition for item in small.compactions()] == [1]


def test_an_earlier_output_is_compacted_again_once_as_many_rows_follow(store: ObjectStore) -> None:
    small = make(store)
    small.path = lambda _: "p"
    for start in range(0, 8, 2):
        small.commit(start, start + 2)
    compaction(small).run()
    small.commit(8, 10)
    later = NOW + timedelta(days=2)
    assert compaction(small, later).run().batches == 0
    for start in range(10, 18, 2):
        small.commit(start, start + 2)
    assert compaction(small, later).run().ranges == 6
    assert small.ranges_in_use() == [(0, 18)]
    made = small.compactions()
    assert made[1].replaces[0].writer == "compact"
    assert delete(small, later + WEEK).objects == 10
    assert small.objects().keys() == {made[1].files[0].key}
    assert small.rows(made[1].files[0].key) == small.expected(range(18))


def test_the_command_shows_what_it_would_do_and_does_it(
    settings: Settings, store: ObjectStore, make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaced_objects, "DELETED_AFTER", timedelta(0))  # the test has just written them
    stream = make_stream(time_zone=str(ZONE))
    small = Small(store=store, stream=stream, prefix=settings.prefix, path=lambda _: "p")
    now = datetime.now(UTC)
    for start in range(0, 8, 2):
        small.commit(start, start + 2, at=now - timedelta(days=20))
    compaction(small, now - timedelta(days=10)).run()
    for start in range(8, 16, 2):
        small.commit(start, start + 2, at=now - timedelta(days=5))
    small.commit(16, 18, at=now)
    before = small.objects()
    sizes = [file.bytes for item in small.manifests() if item.writer != "compact" for file in item.files]
    old, new, made = sum(sizes[:4]), sum(sizes[4:8]), small.compactions()[0].files[0].bytes
    shown = CliRunner().invoke(app, ["maintain", stream.name])
    assert shown.exit_code == 0, shown.output
    assert small.objects() == before
    small_files, alone, replaced, hint = shown.output.splitlines()[-4:]
    assert small_files == f"Small files that would be compacted: 5 of 5 ranges, {made + new} bytes"
    assert alone == "  small ranges skipped: 1 younger than a day"
    assert replaced == f"Replaced objects that would be deleted: 4, {old} bytes; 0 {YOUNG}"
    assert hint == "No file was changed. Run with --compact to do what is shown."

    done = CliRunner().invoke(app, ["maintain", stream.name, "--compact"])

    assert done.exit_code == 0, done.output
    (_, second) = small.compactions()
    assert (
        f"Small files compacted: 5 of 5 ranges, {made + new} bytes, into 1 files of {second.files[0].bytes} bytes\n"
        in done.output
    )
    assert f"Replaced objects deleted: 4, {old} bytes; 5 {YOUNG}\n" in done.output
    assert small.ranges_in_use() == [(0, 16), (16, 18)]
    assert small.rows(second.files[0].key) == small.expected(range(16))
    assert len(small.objects()) == len(before) - 4 + 1
