"""The history tables: what each sealed version leaves in them, once, whatever is repeated or happens at once."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException

from tests.batch.logs import MONDAY, TUESDAY, Log
from tests.batch.steps import ended
from tests.batch.test_seal import PASSED, finalized, finish, two_days
from tests.core.worlds import span
from tidemark.core.errors import FormatError, ServiceError
from tidemark.installation import PROJECT
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.results import REFILL, SEAL, RefilledRange, RefillResult
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings
from tidemark.tables import history
from tidemark.tables.history import VersionHistory, write_history
from tidemark.tables.history_columns import CHECKS, HISTORY_TABLES, REASONS, RECONCILIATION, RUNS, HistoryTable
from tidemark.tables.reader import load_table

JANUARY_31, FEBRUARY_1 = date(2013, 1, 31), date(2013, 2, 1)
AT_ONCE = 4
CONFLICTS = (CommitFailedException, ValidationException)


@contextmanager
def opened(settings: Settings) -> Iterator[Catalog]:
    """A catalog in a SQLite file, with tables in the file's folder: no server is needed."""
    file = settings.catalog_uri.removeprefix("jdbc:sqlite:")
    catalog = SqlCatalog("tidemark", uri=f"sqlite:///{file}", warehouse=f"file://{Path(file).parent}")
    try:
        yield catalog
    finally:
        catalog.engine.dispose()


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    nowhere = "127.0.0.1:9"
    settings = Settings(
        kafka_bootstrap=nowhere,
        bucket="lake",
        catalog_uri=f"jdbc:sqlite:{tmp_path}/catalog.db",
        s3_endpoint=f"http://{nowhere}",
    )
    with opened(settings):  # which makes the catalog's own tables, as the first run does
        pass
    monkeypatch.setattr(history, "open_catalog", opened)
    return settings


def version(
    stream: str, day: date, number: int, *, run: str = "run-1", reasons: Sequence[str] = (), repeats: int | None = None
) -> VersionHistory:
    """A version with a row in each table, and a row for each reason."""
    own = {"stream": stream, "day": day, "version": number, "run": run}
    return VersionHistory(
        day=day,
        version=number,
        run=run,
        rows={
            RUNS: [{**own, "rows_published": 10 * number, "rolled_back_to": repeats}],
            **(
                {}
                if repeats
                else {
                    CHECKS: [{**own, "expectation": "expect_a", "success": None}],
                    RECONCILIATION: [{**own, "kafka_partition": 0, "end_offset": 7 * number}],
                    REASONS: [{**own, "reason": reason, "row_count": 3} for reason in reasons],
                }
            ),
        },
        repeats=repeats,
    )


def rows(settings: Settings, table: HistoryTable, *columns: str) -> list[tuple[Any, ...]]:
    with opened(settings) as catalog:
        found = catalog.load_table((settings.namespace, table.name)).scan().to_arrow().to_pylist()
    return sorted(tuple(row[name] for name in ("stream", "day", "version", *columns)) for row in found)


def commits(settings: Settings, *tables: HistoryTable) -> list[int]:
    """The number of snapshots of each table."""
    with opened(settings) as catalog:
        found = [catalog.load_table((settings.namespace, item.name)) for item in tables or HISTORY_TABLES]
    return [len(table.metadata.snapshots) for table in found]


def test_each_version_has_its_rows_in_every_table(local: Settings) -> None:
    write_history(
        local,
        "a",
        [version("a", JANUARY_31, 1, reasons=["bad"]), version("a", FEBRUARY_1, 1, reasons=["bad", "worse"])],
    )
    write_history(local, "a", [version("a", JANUARY_31, 2, run="run-2")])
    write_history(local, "b", [version("b", JANUARY_31, 1, reasons=["other"])])
    assert rows(local, RUNS, "run", "rows_published") == [
        ("a", JANUARY_31, 1, "run-1", 10),
        ("a", JANUARY_31, 2, "run-2", 20),
        ("a", FEBRUARY_1, 1, "run-1", 10),
        ("b", JANUARY_31, 1, "run-1", 10),
    ]
    assert rows(local, REASONS, "reason", "row_count") == [
        ("a", JANUARY_31, 1, "bad", 3),
        ("a", FEBRUARY_1, 1, "bad", 3),
        ("a", FEBRUARY_1, 1, "worse", 3),
        ("b", JANUARY_31, 1, "other", 3),
    ]
    assert [row[3] for row in rows(local, RECONCILIATION, "end_offset")] == [7, 14, 7, 7]
    assert [row[3:] for row in rows(local, CHECKS, "expectation", "success")] == [("expect_a", None)] * 4


def test_the_same_versions_again_make_no_commit(local: Settings) -> None:
    both = [version("a", JANUARY_31, 1, reasons=["bad"]), version("a", FEBRUARY_1, 1, reasons=["bad"])]
    write_history(local, "a", both)
    before = commits(local)
    write_history(local, "a", both)
    write_history(local, "a", both[:1])
    assert commits(local) == before


def test_a_repeat_replaces_what_a_cut_off_attempt_wrote(local: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(history, "HISTORY_TABLES", HISTORY_TABLES[:2])
        write_history(local, "a", [version("a", JANUARY_31, 1)])
    write_history(local, "a", [version("a", JANUARY_31, 1, reasons=["bad"])])
    assert [len(rows(local, table)) for table in HISTORY_TABLES] == [1, 1, 1, 1]


def test_a_rollback_repeats_the_rows_of_its_version(local: Settings) -> None:
    write_history(local, "a", [version("a", JANUARY_31, 1, reasons=["bad"])])
    write_history(local, "a", [version("a", JANUARY_31, 2, run="run-2", reasons=["worse"])])
    rollback = version("a", JANUARY_31, 3, run="rollback", repeats=1)
    write_history(local, "a", [rollback])
    write_history(local, "a", [rollback])
    assert rows(local, RUNS, "run", "rolled_back_to")[-1] == ("a", JANUARY_31, 3, "rollback", 1)
    assert rows(local, REASONS, "run", "reason") == [
        ("a", JANUARY_31, 1, "run-1", "bad"),
        ("a", JANUARY_31, 2, "run-2", "worse"),
        ("a", JANUARY_31, 3, "rollback", "bad"),
    ]
    assert [row[3] for row in rows(local, RECONCILIATION, "end_offset")] == [7, 14, 7]


def test_streams_that_seal_at_once_lose_no_row(local: Settings) -> None:
    streams = [f"stream_{number}" for number in range(AT_ONCE)]

    def seal(stream: str) -> None:
        for day in (JANUARY_31, FEBRUARY_1):
            write_history(local, stream, [version(stream, day, 1, reasons=["bad"])])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(seal, streams))
    expected = [(stream, day, 1) for stream in streams for day in (JANUARY_31, FEBRUARY_1)]
    assert [rows(local, table) for table in HISTORY_TABLES] == [expected] * 4


@pytest.mark.parametrize("before", ["no table", "no row of the month", "rows of the month"])
def test_two_attempts_of_a_run_at_once_leave_its_rows_once(local: Settings, before: str) -> None:
    """The second one has read the month before the first one's commit."""
    if before != "no table":
        write_history(local, "a" if before == "rows of the month" else "b", [version("a", JANUARY_31, 1)])
    own = version("a", JANUARY_31, 2)
    with opened(local) as catalog:
        late = history._loaded(catalog, local, RUNS)
        write_history(local, "a", [own])
        with pytest.raises(CONFLICTS):
            history._replace(late, RUNS, "a", [own])
    write_history(local, "a", [own])
    assert rows(local, RUNS).count(("a", JANUARY_31, 2)) == 1


def test_a_streams_month_is_one_file(local: Settings, tmp_path: Path) -> None:
    name = "a_stream_with_a_name_that_is_longer_than_bounds_of_files"
    for day in range(1, 6):
        write_history(local, name, [version(name, date(2013, 1, day), 1)])
    with opened(local) as catalog:
        table = catalog.load_table((local.namespace, RUNS.name))
        files = [item.file.file_path for item in table.scan().plan_files()]
        kinds = {item.summary.operation.value for item in table.metadata.snapshots if item.summary}
    assert len(files) == 1
    assert kinds == {"append", "delete"}  # no file was read once more to leave out some of its rows
    assert ds.dataset(files[0].removeprefix("file://")).count_rows() == 5
    assert len(list((tmp_path / local.namespace / RUNS.name / "metadata").glob("*.metadata.json"))) <= 21


def test_a_missing_file_is_an_error_that_names_it_and_the_way_out(local: Settings) -> None:
    write_history(local, "a", [version("a", JANUARY_31, 1)])
    with opened(local) as catalog:
        table = catalog.load_table((local.namespace, RUNS.name))
        (file,) = (item.file.file_path for item in table.scan().plan_files())
    Path(file.removeprefix("file://")).unlink()
    what = (
        rf"^the days are sealed, .*: a table's file is missing .*{Path(file).name}.*table {RUNS.name}.*drop this table"
    )
    with pytest.raises(FormatError, match=what):
        write_history(local, "a", [version("a", JANUARY_31, 2)])
    write_history(local, "b", [version("b", JANUARY_31, 1)])
    with opened(local) as catalog:
        catalog.drop_table((local.namespace, RUNS.name))
    write_history(local, "a", [version("a", JANUARY_31, 2)])
    assert rows(local, RUNS) == [("a", JANUARY_31, 2)]
    assert len(rows(local, CHECKS)) == 3


def test_an_unavailable_catalog_is_an_error_that_says_the_days_are_sealed(settings: Settings, tmp_path: Path) -> None:
    nowhere = settings.model_copy(update={"catalog_uri": f"jdbc:sqlite:{tmp_path}/no/catalog.db"})
    with pytest.raises(ServiceError, match=r"^the days are sealed, but their history is not written: the catalog "):
        write_history(nowhere, "a", [version("a", JANUARY_31, 1)])


def test_of_many_snapshots_only_the_newest_stay_and_no_row_is_lost(
    local: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "SNAPSHOTS_MAX", 8)
    monkeypatch.setattr(history, "_SNAPSHOTS_KEPT", 3)
    monkeypatch.setattr(history, "HISTORY_TABLES", (RUNS,))
    days = [date(2013, 1, day) for day in range(1, 9)]
    most = 0
    for day in days:
        write_history(local, "a", [version("a", day, 1)])
        most = max(most, commits(local, RUNS)[0])
    assert 3 <= commits(local, RUNS)[0] < most <= 8
    assert rows(local, RUNS) == [("a", day, 1) for day in days]


def test_every_column_says_what_it_holds() -> None:
    for table in HISTORY_TABLES:
        names = [name for name, _, _ in table.columns]
        assert len(set(names)) == len(names)
        assert all(meaning for _, _, meaning in table.columns)


def test_the_reference_lists_the_columns_of_every_table() -> None:
    page = (PROJECT / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
    first, *parts = page.partition("## History of all streams")[2].split("\n### ")
    shared = _listed(first)
    assert [part.partition("\n")[0].strip("`") for part in parts] == [table.name for table in HISTORY_TABLES]
    assert [shared + _listed(part) for part in parts] == [list(table.columns) for table in HISTORY_TABLES]


def _listed(text: str) -> list[tuple[str, ...]]:
    return re.findall(r"(?m)^\| `(\w+)` \| (\w+) \| (.+) \|$", text)


def test_a_seal_writes_the_rows_of_its_version_and_a_repeat_mends_them(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_days(log)
    run = finalized(log, "run-1", MONDAY, TUESDAY)
    with run.step(REFILL) as refill:
        ranges = (RefilledRange(log=log.owner(), range=part, batch=0) for part in (span(3, 7), span(9, 10)))
        refill.result = RefillResult(ranges=tuple(ranges), rows=5, files=2, lost=())
    expected = Expected(expectation="expect_b", kwargs={"column": "id"}, severity="warning", built_in=False)
    counted = {"unexpected_count": 2, "element_count": 9, "missing_count": 0}
    finish(
        run,
        {MONDAY: 10, TUESDAY: 5},
        checks=(
            CheckOutcome(expected=expected, day=MONDAY, success=False, observed=counted),
            CheckOutcome(expected=expected, day=TUESDAY, success=None, observed=1.5, without_history=True),
            PASSED,
        ),
    )
    with monkeypatch.context() as patch:
        patch.setattr(history, "HISTORY_TABLES", (*HISTORY_TABLES[:1], "killed"))
        with pytest.raises(AttributeError):
            seal_run(run)
    assert [item.day for item in ended(run, SEAL)[1].seals] == [MONDAY, TUESDAY]  # sealed all the same
    monday, tuesday = seal_run(run)

    runs, checks, logs, reasons = (_of_stream(log, table) for table in HISTORY_TABLES)
    assert [row["seal_sha256"] for row in runs] == [monday.digest(), tuesday.digest()]
    first = runs[0]
    assert first.pop("work_seconds") > 0
    assert first == {
        "stream": log.stream.name,
        "day": MONDAY,
        "version": 1,
        "run": "run-1",
        "day_ended_at": datetime(2013, 1, 15, 5, tzinfo=UTC),
        "planned_at": datetime.fromtimestamp(monday.planned_at_us / 1e6, UTC),
        "sealed_at": datetime.fromtimestamp(monday.sealed_at_us / 1e6, UTC),
        "reason": "requested",
        "rolled_back_to": None,
        "quality": "warnings",
        "approved_by": None,
        "rows_read": 10,
        "rows_published": 9,
        "rows_quarantined": 1,
        "duplicates_removed": 0,
        "duplicates_trimmed": 2,
        "rows_added": None,
        "rows_removed": None,
        "rows_changed": None,
        "refilled_offsets": 5,
        "lost_offsets": 0,
        "lost_offsets_of_day": 0,
        "unexplained_offsets": 0,
        "snapshot_id": 77,
        "quarantine_snapshot_id": 88,
        "seal_sha256": monday.digest(),
    }
    names = ("day", "expectation", "column_name", "success", "passes", "observed", "observed_number", "unexpected_rows")
    assert [tuple(row[name] for name in names) for row in checks] == [
        (MONDAY, "expect_b", "id", False, False, "2 of 9 unexpected", None, 2),
        (MONDAY, "expect_a", None, True, True, None, None, None),
        (TUESDAY, "expect_b", "id", None, True, "1.5", 1.5, None),
        (TUESDAY, "expect_a", None, True, True, None, None, None),
    ]
    figures = ("kafka_partition", "start_offset", "end_offset", "used_offsets", "refilled_offsets", "lost_offsets")
    assert [(row["day"], *(row[name] for name in figures)) for row in logs] == [
        (day, partition, 0, end, end, refilled, 0)
        for day in (MONDAY, TUESDAY)
        for partition, end, refilled in ((0, 15, 5), (1, 0, 0))
    ]
    # This rebuild has kept no reasons: their rows are in one row without a name.
    assert [(row["day"], row["reason"], row["row_count"]) for row in reasons] == [(MONDAY, None, 1), (TUESDAY, None, 1)]


def _of_stream(log: Log, table: HistoryTable) -> list[dict[str, Any]]:
    loaded = load_table(log.settings, table.name)
    assert loaded is not None
    rows: list[dict[str, Any]] = loaded.scan(row_filter=f"stream = '{log.stream.name}'").to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["day"], row["version"]))
