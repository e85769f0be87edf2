"""Whether a seal has every row that was archived before its plan (pure)."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from tests.core.worlds import DAYS, LAYOUT, log, seal_of, sealed_log, span
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.seal import SealedLog
from tidemark.objects.bits import OffsetBits
from tidemark.verify.archive import Derived, ListedRange
from tidemark.verify.claims import compare_copies, compare_lost, compare_reach
from tidemark.verify.lineage import CLOCK_SKEW_MAX, Basis
from tidemark.verify.result import ProofPart

pytestmark = pytest.mark.conformance(48)

PLANNED = timedelta(days=20_000)
OTHER = log(1)


def missing(
    *logs: SealedLog, archived: dict[TopicPartition, list[tuple[OffsetRange, timedelta]]], last: int = -1
) -> list[str]:
    """The places of the rows that the seal lacks; ``archived`` has the day's rows with the age of their manifest.
    ``last`` is the last batch that the seal names."""
    derived = Derived()
    for owner, batches in archived.items():
        derived.batches[owner] = {
            "query-a": {
                number: ListedRange(
                    range=rows,
                    rows=len(rows),
                    replaced=number % 2 == 1,
                    committed_at_us=(PLANNED - age) // timedelta(microseconds=1),
                    of_day=(rows,),
                )
                for number, (rows, age) in enumerate(batches)
            }
        }
    check = ProofPart(name="ranges")
    basis = Basis(planned_at_us=PLANNED // timedelta(microseconds=1), last={"query-a": last})
    compare_reach(seal_of(DAYS[0], logs), basis, derived, check)
    assert {item.what for item in check.differences} <= {"rows of the day were archived before the plan"}
    return [item.where for item in check.differences]


@pytest.mark.parametrize(("age", "found"), [(timedelta(days=1), ["flights-0, offsets [10, 20)"]), (timedelta(0), [])])
def test_rows_that_a_seal_stops_before_disprove_it_unless_they_came_later(age: timedelta, found: list[str]) -> None:
    rows = [(span(0, 10), timedelta(days=2)), (span(10, 20), age)]
    assert missing(sealed_log(log(), 0, 10), archived={log(): rows}) == found
    assert missing(sealed_log(log(), 0, 20), archived={log(): rows}) == []


@pytest.mark.parametrize("age", [timedelta(days=-1), timedelta(0), timedelta(seconds=1)])
def test_a_batch_that_the_seal_names_is_never_late(age: timedelta) -> None:
    """Its writer's clock is fast by a day, or the plan was made a moment later."""
    rows = [(span(0, 10), age), (span(10, 20), age), (span(20, 30), age)]
    assert missing(sealed_log(log(), 0, 10), archived={log(): rows}, last=1) == ["flights-0, offsets [10, 20)"]
    assert missing(sealed_log(log(), 0, 20), archived={log(): rows}, last=1) == []


def test_rows_before_a_seals_start_and_of_a_log_that_it_does_not_know_disprove_it() -> None:
    day = timedelta(days=1)
    assert missing(sealed_log(log(), 5, 10), archived={log(): [(span(0, 10), day)], OTHER: [(span(3, 4), day)]}) == [
        "flights-0, offsets [0, 5)",
        "flights-1, offsets [3, 4)",
    ]


def test_a_manifest_written_about_the_time_of_the_plan_may_be_late() -> None:
    """Its time is its writer's, and it was visible a little later."""
    for age, number in ((CLOCK_SKEW_MAX, 0), (CLOCK_SKEW_MAX + timedelta(seconds=1), 1)):
        assert len(missing(sealed_log(log(), 0, 10), archived={log(): [(span(10, 20), age)]})) == number


def test_an_archived_row_that_the_seal_calls_lost_disproves_it_unless_it_came_later() -> None:
    sealed = sealed_log(log(), 0, 20, lost=[span(10, 15)])
    for age, found in ((timedelta(days=1), ["flights-0, offsets [10, 15)"]), (timedelta(0), [])):
        assert missing(sealed, archived={log(): [(span(8, 18), age)]}) == found


def test_a_batch_with_lost_offsets_from_before_the_plan_is_named_with_offsets_manifest_and_seal() -> None:
    sealed = seal_of(DAYS[0], [sealed_log(log(), 0, 40, lost=[span(10, 15), span(20, 30)])])
    old, new = ((PLANNED - age) // timedelta(microseconds=1) for age in (timedelta(days=1), timedelta(days=-1)))
    batches = {
        writer: ListedRange(range=rows, rows=1, replaced=False, committed_at_us=time_us)
        for writer, rows, time_us in (
            ("old", span(12, 22), old),
            ("named", span(28, 33), new),
            ("new", span(10, 30), new),
        )
    }
    derived = Derived(batches={log(): {writer: {7: batch} for writer, batch in batches.items()}})
    check = ProofPart(name="losses")
    basis = Basis(planned_at_us=PLANNED // timedelta(microseconds=1), last={"named": 7, "new": 6})
    compare_lost(sealed, basis, derived, LAYOUT, check)
    assert [(item.found, item.where) for item in check.differences] == [
        (LAYOUT.manifest_key("old", 7), "flights-0, offsets [12, 15)"),
        (LAYOUT.manifest_key("old", 7), "flights-0, offsets [20, 22)"),
        (LAYOUT.manifest_key("named", 7), "flights-0, offsets [28, 30)"),
    ]
    assert {item.expected for item in check.differences} == {
        f"no manifest with offsets that {LAYOUT.seal_key(DAYS[0], 1)} calls lost"
    }


@pytest.mark.parametrize(
    ("claimed", "undated", "unused", "deleted", "status", "note"),
    [
        (3, 0, 0, 0, "holds", None),
        (3, 9, 0, 0, "holds", None),  # the run counted no copy that it did not name
        (4, 0, 0, 0, "differs", None),  # all later copies came after the seal
        (2, 9, 0, 0, "differs", None),  # fewer than it named
        (12, 9, 0, 0, "holds", "9 archived rows of the day came at about the time of the run"),
        (13, 9, 0, 0, "differs", None),
        (4, 0, 2, 0, "holds", "2 rows of the day at offsets that it did not use"),
        (4, 0, 0, 1, "holds", "manifests were deleted, which may have had copies"),
        (2, 0, 0, 1, "differs", None),
    ],
)
def test_copies_are_counted_as_the_run_did_or_a_note_says_why_not(
    claimed: int, undated: int, unused: int, deleted: int, status: str, note: str | None
) -> None:
    """Ten rows of the version with three copies that its plan knew, and nine that came later."""
    bits = OffsetBits(span(0, 10))
    bits.add(np.arange(10))
    derived = Derived(rows={log(): bits}, copies={log(): 13}, late=9, undated=undated, unused=unused, deleted=deleted)
    check = ProofPart(name="counts")
    compare_copies(replace(seal_of(DAYS[0], []), duplicates_trimmed=claimed), derived, check)
    assert check.status == status
    assert [note is not None and note in item for item in check.notes] == [True] * (note is not None)
