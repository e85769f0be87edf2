"""``tidemark days``: which days are sealed, and which should be."""

from datetime import datetime, timedelta

import pytest

from tests.batch.logs import MONDAY, TUESDAY, ZONE, Log, at
from tests.batch.test_seal import finalized, finish, two_days
from tests.tables import read_tables
from tidemark.cli import days as command
from tidemark.core.errors import RequestError
from tidemark.reconcile.seal import seal_run

pytestmark = pytest.mark.conformance(55)

WEDNESDAY = TUESDAY + timedelta(days=1)


@pytest.fixture
def sealed(log: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    """Monday and Tuesday are sealed."""
    monkeypatch.setattr(command, "connect_s3", lambda _: log.settings)
    monkeypatch.setenv("COLUMNS", "80")
    two_days(log)
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    finish(run, {MONDAY: 10, TUESDAY: 5})
    seal_run(run)
    return log


def thursday(hour: int) -> datetime:
    return datetime(2013, 1, 17, hour, tzinfo=ZONE)


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    """The other cells of each day's row."""
    return {row.pop("Day"): row for row in read_tables(capsys.readouterr().out, "Day")}


@pytest.mark.parametrize(("hour", "well", "state"), [(5, True, "not sealed yet"), (7, False, "not sealed")])
def test_a_day_without_a_seal_is_overdue_after_its_grace_period(
    sealed: Log, capsys: pytest.CaptureFixture[str], hour: int, well: bool, state: str
) -> None:
    found = command.print_days(None, sealed.stream.name, from_day=None, to_day=None, grace_hours=6, now=thursday(hour))
    assert found is well
    rows = shown(capsys)
    assert list(rows) == [str(MONDAY), str(TUESDAY), str(WEDNESDAY)]
    assert rows[str(MONDAY)] == {
        "State": "sealed, v1",
        "Published": "9",
        "Quarantined": "1",
        "Checks": "passed",
        "Notes": "≤ 10 waiting",  # there is no table here
    }
    assert rows[str(WEDNESDAY)]["State"] == state


def test_requested_days_before_the_first_seal_are_overdue(sealed: Log, capsys: pytest.CaptureFixture[str]) -> None:
    name = sealed.stream.name
    assert not command.print_days(
        None, name, from_day="2013-01-12", to_day="2013-01-17", grace_hours=0, now=thursday(5)
    )
    out = capsys.readouterr().out
    assert "Not sealed, and over for more than 0 h: 2013-01-12 to 2013-01-13, 2013-01-16." in out
    assert f"for days without a run, start tidemark_backfill, or run tidemark reconcile {name} --from 2013-01-12" in out
    assert "not over" in out
    with pytest.raises(RequestError, match=r"expected 2013-01-17 at the latest, found 9999-12-31"):
        command.print_days(None, name, from_day=None, to_day="9999-12-31", grace_hours=0, now=thursday(5))
    with pytest.raises(RequestError, match=r"expected 3660 at most, found 0001-01-01 to 2013-01-16"):
        command.print_days(None, name, from_day="0001-01-01", to_day=None, grace_hours=0, now=thursday(5))
    with pytest.raises(RequestError, match=r"a sealed or archived day up to 2013-01-13, found 2013-01-14 .*--from"):
        command.print_days(None, name, from_day=None, to_day="2013-01-13", grace_hours=0, now=thursday(5))


def test_an_archived_day_before_the_first_sealed_one_is_overdue(
    sealed: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed.produce(3, at(MONDAY - timedelta(days=3), 9))
    sealed.archive(15, 18)
    name = sealed.stream.name
    assert not command.print_days(None, name, from_day=None, to_day=str(TUESDAY), grace_hours=6, now=thursday(5))
    rows = shown(capsys)
    assert list(rows) == [str(MONDAY + timedelta(days=number)) for number in range(-3, 2)]
    # Nobody has a record of the two days between.
    assert (rows["2013-01-11"]["State"], rows["2013-01-11"]["Notes"]) == ("not sealed", "≤ 3 waiting")
    assert rows["2013-01-12"]["State"] == "not sealed yet"
