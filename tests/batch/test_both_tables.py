"""What two tables show of a day, as values: a whole publication, half of one, and what history has left of it."""

from dataclasses import replace
from datetime import date, timedelta
from json import dumps

import pytest

from tests.core.worlds import log, seal_of, sealed_log
from tidemark.core.errors import ConflictError
from tidemark.core.seal import Seal
from tidemark.current_view.day_states import DayState
from tidemark.inspect.status import _day_problems
from tidemark.pages.days import DayVerdict, readers_verdict
from tidemark.reconcile.rollback import is_intact
from tidemark.tables.day_publications import DayPublication, day_publications, earlier_attempt
from tidemark.tables.main_history import MainHistory, MainSnapshot
from tidemark.verify.claims import Claims
from tidemark.verify.lineage import Basis
from tidemark.verify.readers import compare_publication
from tidemark.verify.result import ProofPart

pytestmark = pytest.mark.conformance(69)

MONDAY = date(2013, 1, 14)
TUESDAY = MONDAY + timedelta(days=1)


def snapshot(number: int, run: str, *days: date, inputs: str = "") -> MainSnapshot:
    """A publication, of inputs that its run alone has; without days, another writer's commit."""
    text = dumps([day.isoformat() for day in days])
    own = {"tidemark.run": run, "tidemark.inputs": inputs or f"of {run}", "tidemark.days": text}
    return MainSnapshot(number, own if days else {"operation": run})


def history(*newest_first: MainSnapshot, whole: bool = True) -> MainHistory:
    return MainHistory(snapshots=newest_first, whole=whole)


def shown(table: MainHistory, quarantine: MainHistory, day: date = MONDAY) -> DayPublication:
    return day_publications(table, quarantine)[day]


def sealed(number: int, run: str = "first") -> Seal:
    """A seal of Monday that names snapshot ``number`` of the table and the one after it of the quarantine."""
    seal = seal_of(MONDAY, [sealed_log(log(), 0, 10)])
    return replace(seal, run=run, snapshot_id=number, quarantine_snapshot_id=number + 1)


FIRST = history(snapshot(10, "first", MONDAY)), history(snapshot(11, "first", MONDAY))
HALF = FIRST[0], history(snapshot(21, "dead", MONDAY, TUESDAY), *FIRST[1].snapshots)


def test_a_publication_in_both_tables_is_the_one_that_its_seal_names() -> None:
    found = shown(*FIRST)
    assert (found.is_half, found.run, found.is_named_by(sealed(10))) == (False, "first", True)
    assert not found.is_named_by(sealed(30))


def test_a_quarantine_beside_an_earlier_publication_is_half_and_no_seal_names_it() -> None:
    found = shown(*HALF)
    assert (found.is_half, found.run) == (True, "dead")
    assert not any(found.is_named_by(seal) for seal in (sealed(10), sealed(20)))
    assert str(found) == "half a publication, the quarantine of run dead and the rows of run first"


def test_half_of_two_days_is_half_of_both_and_of_no_other_day() -> None:
    table = history(snapshot(12, "next", TUESDAY), *FIRST[0].snapshots)
    quarantine = history(snapshot(21, "dead", MONDAY, TUESDAY), snapshot(13, "next", TUESDAY), *FIRST[1].snapshots)
    found = day_publications(table, quarantine)
    assert {day: item.is_half for day, item in found.items()} == {MONDAY: True, TUESDAY: True}
    after = history(snapshot(31, "third", TUESDAY), *quarantine.snapshots)
    found = day_publications(history(snapshot(30, "third", TUESDAY), *table.snapshots), after)
    assert {day: item.is_half for day, item in found.items()} == {MONDAY: True, TUESDAY: False}


def test_the_first_publication_ever_may_be_half() -> None:
    found = shown(history(), history(snapshot(21, "dead", MONDAY)))
    assert (found.is_half, found.run) == (True, "dead")
    assert str(found) == "half a publication, the quarantine of run dead and no rows"


def test_a_run_that_was_rebuilt_and_published_again_by_half_is_half() -> None:
    repaired = history(snapshot(21, "first", MONDAY, inputs="repaired"), *FIRST[1].snapshots)
    assert shown(FIRST[0], repaired).is_half


@pytest.mark.parametrize("named", [10, 30])
def test_what_expired_in_one_table_is_judged_by_the_other(named: int) -> None:
    table, quarantine = FIRST
    expired = history(whole=False)
    for found in (shown(expired, quarantine), shown(table, expired), shown(table, history())):
        assert (found.is_half, found.is_named_by(sealed(named))) == (False, named == 10)
    assert day_publications(expired, expired) == {}


def test_other_writers_commits_change_no_publication() -> None:
    table, quarantine = (history(snapshot(90, "replace"), *item.snapshots) for item in FIRST)
    assert shown(table, quarantine) == shown(*FIRST)


ATTEMPT = snapshot(21, "dead", MONDAY, TUESDAY)


@pytest.mark.parametrize(
    ("newest_first", "expected"),
    [
        ((), None),
        ((ATTEMPT,), 21),
        ((snapshot(22, "replace"), ATTEMPT), 21),
        ((snapshot(22, "other", TUESDAY + timedelta(days=1)), ATTEMPT), 21),
        ((snapshot(22, "dead", MONDAY, TUESDAY, inputs="repaired"), ATTEMPT), None),
        ((snapshot(22, "dead", MONDAY),), None),
        ((snapshot(22, "other", TUESDAY), ATTEMPT), None),
    ],
)
def test_a_repeat_finds_its_publication_as_long_as_readers_see_it(
    newest_first: tuple[MainSnapshot, ...], expected: int | None
) -> None:
    options = {"run": "dead", "inputs": "of dead", "days": (MONDAY, TUESDAY)}
    assert earlier_attempt(newest_first, **options, sealed=False) == expected  # type: ignore[arg-type]


def test_a_repeat_after_the_seal_finds_its_publication_under_a_later_one() -> None:
    found = earlier_attempt(
        (snapshot(31, "later", MONDAY), snapshot(11, "first", MONDAY)),
        run="first",
        inputs="of first",
        days=(MONDAY,),
        sealed=True,
    )
    assert found == 11


def readers(found: DayPublication | None, *seals: Seal) -> tuple[bool, ProofPart]:
    """Whether verification compares rows, and what it says of the publication."""
    check = ProofPart(name="readers")
    claims = Claims(
        key="k",
        version=len(seals),
        seal=seals[-1],
        before=None,
        basis=Basis(planned_at_us=0),
        latest=True,
        snapshots=frozenset((item.snapshot_id, item.quarantine_snapshot_id) for item in seals),
    )
    return compare_publication(found, claims, check, where="both tables"), check


def test_verification_calls_half_a_publication_a_difference_that_names_both_runs() -> None:
    compared, check = readers(shown(*HALF), sealed(10))
    assert (compared, check.status) == (True, "differs")
    (difference,) = check.differences
    assert difference.what == "half a publication: the tables show different publications of the day"
    assert difference.found == "the quarantine of run dead in snapshot 21, the table of run first in snapshot 10"


def test_verification_proves_nothing_while_readers_see_a_publication_without_a_seal() -> None:
    table = history(snapshot(20, "dead", MONDAY), *FIRST[0].snapshots)
    compared, check = readers(shown(table, HALF[1]), sealed(10))
    assert (compared, check.status, check.differences) == (False, "unknown", [])
    assert check.unknown[0].startswith("run dead published the day since and has not sealed it: readers see rows that")


def test_verification_compares_what_a_seal_names_or_what_history_has_lost() -> None:
    for found in (shown(*FIRST), None):
        compared, check = readers(found, sealed(10), sealed(20, "second"))
        assert (compared, check.status) == (True, "holds")


ROLLBACK = "rollback-2013-01-14-2-to-1"


@pytest.mark.parametrize(
    ("table", "quarantine", "intact"),
    [
        ((), (), True),
        ((snapshot(10, "first", MONDAY),), (snapshot(11, "first", MONDAY),), True),
        ((snapshot(10, "first", MONDAY),), (snapshot(21, ROLLBACK, MONDAY),), False),
        ((snapshot(20, ROLLBACK, MONDAY),), (snapshot(21, ROLLBACK, MONDAY),), False),
        ((snapshot(10, "first", MONDAY),), (snapshot(21, "dead", MONDAY),), False),
        ((snapshot(20, ROLLBACK, MONDAY),), (snapshot(31, "dead", MONDAY),), False),
    ],
)
def test_a_rollback_publishes_both_tables_unless_both_show_the_latest_version(
    table: tuple[MainSnapshot, ...], quarantine: tuple[MainSnapshot, ...], *, intact: bool
) -> None:
    found = day_publications(history(*table), history(*quarantine)).get(MONDAY)
    assert is_intact(found, sealed(10), ROLLBACK) is intact


def test_a_rollback_is_refused_where_the_published_rows_are_not_sealed() -> None:
    table = history(snapshot(20, "dead", MONDAY), *FIRST[0].snapshots)
    with pytest.raises(ConflictError, match=r"expected version 1 of run first, found rows of run dead in snapshot 20"):
        is_intact(shown(table, HALF[1]), sealed(10), ROLLBACK)


def test_the_page_of_a_sealed_day_does_not_call_half_a_publication_complete() -> None:
    complete = DayVerdict(state="good", sentence="2013-01-14 is complete.", more=("9 records are published.",))
    assert readers_verdict(MONDAY, complete, None) == complete
    found = readers_verdict(MONDAY, complete, shown(*HALF))
    assert (found.state, found.sentence) == ("attention", "2013-01-14 is published and not proven.")
    assert found.more[0].startswith(
        "Readers see half a publication, the quarantine of run dead and the rows of run first,"
    )
    assert found.more[1:] == complete.more


def test_the_problem_of_unproven_days_names_those_with_only_a_quarantine() -> None:
    days = [
        DayState(day=day, status="unproven", sealed=None, waiting_max=0, unproven_run="dead", half_published=half)
        for day, half in ((MONDAY, False), (TUESDAY, True))
    ]
    (problem,) = _day_problems("rides", days)
    assert problem.text.startswith("rides: days published, not proven: 2013-01-14")
    assert problem.text.endswith("Readers see rows that no seal proves. Of 2013-01-15 only the quarantine is published")
