"""Whether a seal has every row that was archived before its plan (pure)."""

from datetime import timedelta

import pytest

from tests.core.worlds import DAYS, log, seal_of, sealed_log, span
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.seal import SealedLog
from tidemark.verify.archive import Derived, ListedRange
from tidemark.verify.claims import compare_reach
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


def test_an_archived_row_that_the_seal_calls_lost_is_named_with_the_loss_instead() -> None:
    sealed = sealed_log(log(), 0, 20, lost=[span(10, 15)])
    assert missing(sealed, archived={log(): [(span(8, 18), timedelta(days=1))]}) == []
