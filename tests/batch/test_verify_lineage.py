"""What ``verify`` derives of a compacted archive, on the real S3 server; Kafka and tables are not asked."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.archive.compacting import compaction, delete, make
from tests.archive.small import NOW, START, Small
from tidemark.core.offsets import OffsetRange
from tidemark.s3 import ObjectStore
from tidemark.verify.archive import ArchiveReader, Derived
from tidemark.verify.lineage import Basis, Lineage
from tidemark.verify.result import Mismatch, ProofPart

WEEK = timedelta(days=7)
EVERYTHING = dict.fromkeys(("query-a", "query-b", "refill-1", "compact"), 2**62)


def describe(item: Mismatch) -> str:
    return f"{item.what}: expected {item.expected}, found {item.found} [{item.where}]"


def derived(
    small: Small, last: Mapping[str, int] | None = None, used: tuple[tuple[str, int, int], ...] = ()
) -> tuple[Derived, list[str], str]:
    """The first day's archive, its differences, and their source, for a version that knows the writers' ``last``
    batches, by default all. ``used``: writer, first and last batch."""
    chains, files = ProofPart(name="manifests"), ProofPart(name="objects")
    reader = ArchiveReader(small.store, small.layout, START.date(), small.stream.zone)
    found = reader.derive(
        Basis(
            planned_at_us=0,
            last=EVERYTHING if last is None else last,
            batches={(writer, small.log()): [(first, last)] for writer, first, last in used},
        ),
        chains,
        files,
        lambda _: None,
    )
    return found, [describe(item) for check in (chains, files) for item in check.differences], chains.derived_from


def test_a_value_that_changed_in_an_object_is_found_by_its_checksum(store: ObjectStore) -> None:
    small = make(store)
    (file,) = small.commit(0, 4).files
    other = replace(small, prefix="elsewhere", values=lambda _: b"another", batches={})
    (changed,) = other.commit(0, 4).files
    small.store.put(file.key, small.store.get(changed.key) or b"")
    found, wrong, _ = derived(small)
    assert list(found.rows[small.log()].ranges()) == [OffsetRange(start=0, end=4)]
    assert wrong == [f"checksum of an object's rows: expected {file.checksum}, found {changed.checksum} [{file.key}]"]


@pytest.mark.conformance(53)
def test_rows_count_once_and_are_as_late_as_they_were_before_compaction_and_deletion(store: ObjectStore) -> None:
    """24 rows of the first day in ten-minute steps, the last eight archived later; then rows of the next day."""
    small = make(store)
    sealed = NOW - 3 * WEEK
    for start in range(0, 30, 2):
        small.commit(start, start + 2, at=sealed + timedelta(days=1 if start >= 16 else -1))
    small.commit(3, 7, writer="refill-1", at=sealed)  # rows twice: those ranges stay as they are
    known = {"query-a": 7, "refill-1": 0}
    before, wrong, derived_from = derived(small, known)
    assert (wrong, derived_from) == ([], "16 manifests")
    owner = small.log()
    assert (list(before.rows[owner].ranges()), before.copies[owner], before.late) == (
        [OffsetRange(start=0, end=16)],
        20,
        8,
    )
    assert compaction(small, NOW - 2 * WEEK).run().ranges == 11
    for objects in (11, 0):
        found, wrong, derived_from = derived(small, known)
        assert (wrong, derived_from) == ([], "17 manifests, 11 ranges compacted since")
        assert (list(found.rows[owner].ranges()), found.copies, found.late, found.left_out) == (
            list(before.rows[owner].ranges()),
            before.copies,
            before.late,
            before.left_out,
        )
        assert found.committed(owner) == before.committed(owner) == (OffsetRange(start=0, end=30),)
        assert delete(small, NOW).objects == objects
    everything, wrong, _ = derived(small)
    assert (wrong, list(everything.rows[owner].ranges()), everything.late) == ([], [OffsetRange(start=0, end=24)], 0)


@pytest.mark.parametrize("days", [-1, 0, 1])
def test_a_batch_is_of_the_version_by_its_number_whatever_its_writers_clock_says(store: ObjectStore, days: int) -> None:
    """Of eight batches the version knows five, and the clock of the writer is a day slow, right or a day fast."""
    small = make(store)
    sealed = NOW - 3 * WEEK
    for number in range(8):
        small.commit(2 * number, 2 * number + 2, at=sealed + timedelta(days=days))
    small.commit(0, 4, writer="query-b", at=sealed + timedelta(days=days))  # a second copy that it knows
    small.commit(2, 6, writer="query-c", at=sealed + timedelta(days=days))  # and one that came later
    found, wrong, _ = derived(small, {"query-a": 4, "query-b": 0})
    assert wrong == []
    assert list(found.rows[small.log()].ranges()) == [OffsetRange(start=0, end=10)]
    # Of the rows that it does not know, six are of records that it lacks and four are later copies.
    assert (found.copies[small.log()], found.late, found.left_out) == (14, 10, 6)


def test_a_compaction_of_known_and_later_compactions_is_as_late_as_its_inputs(store: ObjectStore) -> None:
    small = make(store)
    for start in range(0, 6, 2):
        small.commit(start, start + 2)
    compaction(small).run()
    known = {"compact": 0}  # the plan saw the compaction, and no batch of query-a in use
    for start in range(6, 10, 2):
        small.commit(start, start + 2)
    for compacted in (False, True):
        found, wrong, _ = derived(small, known)
        assert (wrong, list(found.rows[small.log()].ranges()), found.late) == ([], [OffsetRange(start=0, end=6)], 4)
        if not compacted:
            assert compaction(small).run().ranges > 0


@pytest.mark.parametrize("writers", [("query-a", "query-b"), ("query-b", "query-a")])
def test_an_object_that_a_later_manifest_lists_again_is_as_old_as_it_was(
    store: ObjectStore, writers: tuple[str, str]
) -> None:
    """A stream without its checkpoint cuts as before, finds its objects there and lists them once more."""
    small = make(store)
    sealed = NOW - 3 * WEEK
    manifests = [
        small.commit(0, 4, writer=writer, at=sealed + timedelta(days=days))
        for writer, days in zip(writers, (-1, 1), strict=True)
    ]
    assert [item.key for item in manifests[0].files] == [item.key for item in manifests[1].files]
    found, wrong, _ = derived(small, {writers[0]: 0})
    assert (wrong, list(found.rows[small.log()].ranges()), found.late) == ([], [OffsetRange(start=0, end=4)], 0)


def test_a_range_that_the_version_used_is_part_of_it_however_late_its_manifest_says_it_is(store: ObjectStore) -> None:
    small = make(store)
    sealed = NOW - 3 * WEEK
    for start in range(0, 6, 2):
        small.commit(start, start + 2, at=sealed + timedelta(seconds=2))
    used = (("query-a", 0, 1),)
    for compacted in (False, True):
        found, wrong, _ = derived(small, {}, used)
        assert (wrong, list(found.rows[small.log()].ranges()), found.late) == ([], [OffsetRange(start=0, end=4)], 2)
        if not compacted:
            assert compaction(small, NOW - 2 * WEEK).run().ranges == 3


@pytest.mark.parametrize("used", ["refill-run-1", "refill-run-2"])
def test_an_object_that_two_runs_refilled_is_part_of_the_version_that_used_either_listing(
    store: ObjectStore, used: str
) -> None:
    small = make(store)
    planned = NOW - 3 * WEEK
    for at, writer in enumerate(("refill-run-2", "refill-run-1"), start=1):
        small.commit(0, 4, writer=writer, at=planned + timedelta(seconds=at))
    found, wrong, _ = derived(small, {}, ((used, 0, 0),))
    assert (wrong, list(found.rows[small.log()].ranges()), found.late) == ([], [OffsetRange(start=0, end=4)], 0)


def test_an_altered_manifest_of_a_replaced_range_is_named_with_the_one_that_replaced_it(store: ObjectStore) -> None:
    small = make(store)
    inputs = [small.commit(start, start + 2) for start in range(0, 6, 2)]
    compaction(small).run()
    key = small.layout.manifest_key("query-a", 2)
    (file,) = inputs[2].files
    small.store.put(key, replace(inputs[2], files=(replace(file, checksum="another"),)).to_json())
    _, wrong, _ = derived(small)
    assert len(wrong) == 2
    assert "the digest of a replaced range's manifest" in wrong[0]
    assert "the files of a replaced range" in wrong[1]
    assert all(f"[{key}, replaced by compact/0]" in item for item in wrong)


def test_a_replaced_range_with_nothing_in_its_place_is_named(store: ObjectStore) -> None:
    small = make(store)
    for start in range(0, 6, 2):
        small.commit(start, start + 2)
    compaction(small).run()
    check = ProofPart(name="manifests")
    Lineage(small.compactions()).compare(small.log(), (OffsetRange(start=0, end=3),), check)
    first, second = map(describe, check.differences)
    assert "expected a complete range in place of [2, 4) of query-a/1, found none with [3, 4)" in first
    assert "expected a complete range in place of [4, 6) of query-a/2, found none with [4, 6)" in second
    assert "[compact/0, orders-0]" in first
