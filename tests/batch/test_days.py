"""Which days of a stream are sealed, and which should be."""

from datetime import date, datetime, timedelta

import pytest

from tests.batch.logs import MONDAY, TUESDAY, ZONE, Log, at
from tests.batch.test_seal import finalized, finish, two_days
from tidemark.core.errors import RequestError
from tidemark.current_view.day_states import DayState, read_day_states
from tidemark.reconcile.seal import seal_run

pytestmark = pytest.mark.conformance(55)

WEDNESDAY = TUESDAY + timedelta(days=1)


@pytest.fixture
def sealed(log: Log) -> Log:
    """Monday and Tuesday are sealed."""
    two_days(log)
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    finish(run, {MONDAY: 10, TUESDAY: 5})
    seal_run(run)
    return log


def thursday(hour: int) -> datetime:
    return datetime(2013, 1, 17, hour, tzinfo=ZONE)


def states(
    log: Log, *, first: date | None = None, last: date | None = None, grace: int = 0, hour: int = 5
) -> dict[date, DayState]:
    found = read_day_states(
        log.settings, log.stream, first=first, last=last, grace=timedelta(hours=grace), now=thursday(hour)
    )
    return {item.day: item for item in found}


@pytest.mark.parametrize(("hour", "state"), [(5, "unsealed"), (7, "overdue")])
def test_a_day_without_a_seal_is_overdue_after_its_grace_period(sealed: Log, hour: int, state: str) -> None:
    found = states(sealed, grace=6, hour=hour)
    assert list(found) == [MONDAY, TUESDAY, WEDNESDAY]
    monday = found[MONDAY]
    assert monday.sealed is not None
    assert (monday.status, monday.sealed.version, monday.sealed.published) == ("sealed", 1, 9)
    assert monday.waiting_max == 10  # there is no table here
    assert found[WEDNESDAY].status == state


@pytest.mark.parametrize(("moment", "state"), [((2, 14), "unsealed"), ((2, 16), "overdue")])
def test_a_day_without_a_seal_is_overdue_after_the_deadline_of_its_stream(
    sealed: Log, moment: tuple[int, int], state: str
) -> None:
    stream = sealed.run(sealed_by="02:15").stream
    now = datetime(2013, 1, 17, *moment, tzinfo=ZONE)
    found = read_day_states(sealed.settings, stream, first=None, last=None, grace=timedelta(), now=now)
    assert [item.status for item in found] == ["sealed", "sealed", state]


def test_requested_days_before_the_first_seal_are_overdue(sealed: Log) -> None:
    found = states(sealed, first=date(2013, 1, 12), last=date(2013, 1, 17))
    overdue = [day for day, item in found.items() if item.status == "overdue"]
    assert overdue == [date(2013, 1, 12), date(2013, 1, 13), date(2013, 1, 16)]
    assert found[date(2013, 1, 17)].status == "not_over"
    with pytest.raises(RequestError, match=r"expected 2013-01-17 at the latest, found 9999-12-31"):
        states(sealed, last=date(9999, 12, 31))
    with pytest.raises(RequestError, match=r"expected 3660 at most, found 0001-01-01 to 2013-01-16"):
        states(sealed, first=date(1, 1, 1))
    with pytest.raises(RequestError, match=r"a sealed or archived day up to 2013-01-13, found 2013-01-14 .*--from"):
        states(sealed, last=date(2013, 1, 13))


def test_a_day_sealed_without_rows_before_the_first_rows_makes_no_day_overdue(sealed: Log) -> None:
    empty = date(2012, 12, 25)
    run = finalized(sealed, "run-2", empty)
    finish(run, {empty: 0})
    seal_run(run)
    found = states(sealed)
    assert [day for day, item in found.items() if item.status == "sealed"] == [empty, MONDAY, TUESDAY]
    assert [day for day, item in found.items() if item.status == "overdue"] == [WEDNESDAY]


def test_an_archived_day_before_the_first_sealed_one_is_overdue(sealed: Log) -> None:
    sealed.produce(3, at(MONDAY - timedelta(days=3), 9))
    sealed.archive(15, 18)
    found = states(sealed, last=TUESDAY, grace=6)
    assert list(found) == [MONDAY + timedelta(days=number) for number in range(-3, 2)]
    # Nobody has a record of the two days between.
    assert (found[date(2013, 1, 11)].status, found[date(2013, 1, 11)].waiting_max) == ("overdue", 3)
    assert found[date(2013, 1, 12)].status == "unsealed"


def test_the_last_days_of_a_stream_without_later_records_stay_in_view(sealed: Log) -> None:
    now = datetime(2013, 6, 1, 12, tzinfo=ZONE)
    found = read_day_states(sealed.settings, sealed.stream, first=None, last=None, grace=timedelta(), now=now)
    days = [item.day for item in found]
    assert days[:3] == [MONDAY, TUESDAY, date(2013, 5, 2)]
    assert days[-1] == date(2013, 5, 31)
