"""A day that late records reopened and that can't be rebuilt holds up no other one."""

import re
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from tests.batch.steps import ended, pass_audit
from tests.batch.test_current import archived, pinned, rows
from tests.batch.test_held import archive, finished, planned, reconciled, sealed, seals_of
from tests.batch.test_report import page_of
from tests.batch.world import TRANSFORM, World, january, moment, value
from tidemark.core.errors import (
    ConfigError,
    ConflictError,
    FormatError,
    IncompleteError,
    ServiceError,
    TidemarkError,
    TransformError,
)
from tidemark.core.seal import Difference
from tidemark.current_view.frame import frame
from tidemark.inspect.locate import RecordStatus, record_status
from tidemark.reconcile.held_days import days_to_hold_back
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.results import AUDIT, REBUILD, DayDifference, final_plan
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.spark.failures import rebuild_error
from tidemark.tables.reader import load_table
from tidemark.tables.seals import latest_seals, read_seal

pytestmark = pytest.mark.conformance(47)

FAILING = {
    "a cast": (
        TRANSFORM.replace('"event.id"', "F.expr('CAST(if(event.id = 2, event.name, 1) AS INT)').alias('id')"),
        "[CAST_INVALID_INPUT] The value 'row' ",
    ),
    "a function": (
        TRANSFORM.replace(
            "def transform",
            "@F.udf('int')\ndef one(number):\n    return number // (number - 2)\n\n\ndef transform",
        ).replace('"event.id"', 'one("event.id").alias("id")'),
        "ZeroDivisionError: integer division or modulo by zero",
    ),
    "an error": (
        TRANSFORM.replace('"event.id"', "F.expr(\"if(event.id = 2, CAST(raise_error('no') AS INT), event.id) AS id\")"),
        "[USER_RAISED_EXCEPTION] no",
    ),
}


@pytest.fixture
def world(spark: SparkSession, settings: Settings, tmp_path: Path) -> World:
    return World.make(spark, settings, tmp_path)


def objects_of(world: World, *days: int) -> list[str]:
    """Two records for each of the days, in an object of its own; the keys."""
    keys = []
    for day in days:
        start = len(world.records)
        world.produce([(moment(day), value(start)), (moment(day), value(start + 1))])
        keys.append(world.archive(start, start + 2))
    return keys


def reopened(world: World, name: str, *days: int) -> None:
    """Sealed days and a late record for each of them."""
    sealed(world, name, *days)
    for day in days:
        archive(world, day, value(100 + day))


def damage(world: World, key: str, how: str) -> bytes:
    """Damage an object. Returns what it held."""
    store = world.run("any").store
    body = store.get(key)
    assert body is not None
    if how == "missing":
        store.delete(key)
    else:
        store.put(key, body[: len(body) // 2])
    return body


def test_a_reopened_day_with_a_bad_object_keeps_its_version_until_it_is_restored(
    world: World,
) -> None:
    """Here it is cut off; in the next test one is missing."""
    key, _ = objects_of(world, 13, 14)
    reopened(world, "first", 13, 14)
    body = damage(world, key, "cut off")
    archive(world, 15, value(1), b"broken")
    report = reconciled(world, "second", 15)
    assert seals_of(world, 13, 14, 15) == [(january(13), 1), (january(14), 1), (january(14), 2), (january(15), 1)]
    before = world.expected_rows(january(13))[:-1]  # without the late one
    assert world.published() == [*before, *world.expected_rows(january(14), january(15))]
    assert report["verdict"]["status"] == "days held back"
    assert report["verdict"]["title"].endswith("; 2013-01-13 keeps its version")
    sentence = report["verdict"]["sentences"][0]
    assert sentence.startswith("2013-01-13 keeps the version that it has: 2013-01-13: a file is damaged")
    assert key in sentence
    assert [(item["day"], bool(item["held"]), bool(item["seal"])) for item in report["days"]] == [
        ("2013-01-13", True, False),
        ("2013-01-14", False, True),
        ("2013-01-15", False, True),
    ]
    page = page_of(world.run("second"), world.run("second").layout.run_key("second", "report.html"))
    assert "Held back, so readers keep the version that they have: 2013-01-13: " in page.text
    # The rows of the sealed version come from the table and need no object.
    assert rows(frame(world.spark, pinned(world))) == archived(world)

    world.run("any").store.put(key, body)
    archive(world, 16, value(2))
    assert reconciled(world, "third", 16)["verdict"]["status"] == "complete"
    assert world.published() == world.expected_rows(*(january(day) for day in range(13, 17)))
    assert seals_of(world, 13) == [(january(13), 1), (january(13), 2)]


def test_days_with_damage_are_left_out_one_after_the_other(world: World) -> None:
    """One object is cut off, one is missing, one has fewer rows than its manifest lists."""
    first, _, third, fourth = objects_of(world, 10, 11, 12, 13)
    shorter = world.run("any").store.get(world.archive(6, 7, writer="other"))
    reopened(world, "first", 10, 11, 12, 13)
    damage(world, first, "cut off")
    damage(world, third, "missing")
    assert shorter is not None
    world.run("any").store.put(fourth, shorter)
    archive(world, 14, value(1))
    reconciled(world, "second", 14)
    held = {item.day: item.because for item in world.run("second").require(AUDIT).held}
    assert held.keys() == {january(10), january(12), january(13)}
    assert "a file is damaged" in held[january(10)]
    assert first in held[january(10)]
    assert "archive objects of the plan are missing" in held[january(12)]
    assert third in held[january(12)]
    assert "expected 3 rows read, found 2 published" in held[january(13)]
    assert seals_of(world, 10, 11, 12, 13, 14) == [
        (january(10), 1),
        (january(11), 1),
        (january(11), 2),
        (january(12), 1),
        (january(13), 1),
        (january(14), 1),
    ]


def failing(folder: Path, world: World, reason: str) -> str:
    """The error of a run where the transformation fails on the newest record, which is of a requested day.

    Spark knows the line of a Python function, and not that of an expression in SQL.
    """
    path, offset = folder / f"{world.name}.py", len(world.records) - 1
    lines = path.read_text(encoding="utf-8").splitlines()
    raised = [number for number, line in enumerate(lines, 1) if "return number //" in line]
    place = re.escape(", line ".join([str(path), *map(str, raised)]))
    found = f"topic {world.name}, partition 0, offset {offset}: {re.escape(reason)}"
    return rf"^the transformation fails on a record: expected .*, found {found}.* \[{place}\]\. Return null instead"


def test_a_late_record_on_which_the_transformation_fails_holds_up_no_requested_day(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    transform, reason = FAILING["a function"]
    world = World.make(spark, settings, tmp_path, transform=transform)
    archive(world, 13, value(0))
    sealed(world, "first", 13)
    archive(world, 13, value(2))
    archive(world, 14, value(3))
    report = reconciled(world, "second", 14)
    sentence = report["verdict"]["sentences"][0]
    assert sentence.startswith(
        "2013-01-13 keeps the version that it has: 2013-01-13: the transformation fails on a record: "
    )
    assert reason in sentence
    assert seals_of(world, 13, 14) == [(january(13), 1), (january(14), 1)]
    archive(world, 15, value(2))
    with pytest.raises(TransformError, match=failing(tmp_path, world, reason)):
        planned(world, "third", 15)


@pytest.mark.parametrize(("transform", "reason"), FAILING.values(), ids=FAILING)
def test_a_record_on_which_the_transformation_fails_is_reported_with_its_reason(
    spark: SparkSession, settings: Settings, tmp_path: Path, transform: str, reason: str
) -> None:
    world = World.make(spark, settings, tmp_path, transform=transform)
    archive(world, 15, *map(value, (5, 1, 7, 2)))
    with pytest.raises(TransformError, match=failing(tmp_path, world, reason)):
        planned(world, "first", 15)


def test_a_day_that_the_run_can_not_do_without_stops_it(world: World) -> None:
    key, other = objects_of(world, 13, 14)
    reopened(world, "first", 13, 14)

    def is_stopped(name: str, day: int, *, force: bool = False) -> None:
        with pytest.raises((FormatError, IncompleteError), match=r"a file is damaged|are missing"):
            planned(world, name, day, force=force)

    damage(world, key, "cut off")
    is_stopped("forced", 13, force=True)
    damage(world, other, "missing")
    is_stopped("alone", 14)  # no day is left
    damage(world, objects_of(world, 15)[0], "cut off")
    is_stopped("requested", 15)


def test_a_day_without_a_sealed_version_is_not_left_out(world: World) -> None:
    (key,) = objects_of(world, 13)
    reopened(world, "first", 13)
    archive(world, 14, value(1))
    other = planned(world, "other", 14)
    pass_audit(other, world.spark)
    publish_run(other, world.spark)
    damage(world, key, "cut off")
    archive(world, 13, value(2))
    archive(world, 15, value(3))
    with pytest.raises(FormatError, match=r"a file is damaged.*\. 2013-01-13 can't keep its .* rows of run other"):
        planned(world, "run", 15)
    seal_run(other)
    assert seals_of(world, 13, 14) == [(january(13), 1), (january(13), 2), (january(14), 1)]


def test_a_run_that_left_out_a_day_cannot_publish_it_after_its_seals(world: World) -> None:
    key, _ = objects_of(world, 13, 14)
    reopened(world, "first", 13, 14)
    body = damage(world, key, "missing")
    archive(world, 15, value(1))
    run = planned(world, "second", 15)
    pass_audit(run, world.spark)
    publish_run(run, world.spark)
    seal_run(run)
    before = world.published()
    world.run("any").store.put(key, body)
    world.rebuild(run)
    pass_audit(run, world.spark)
    with pytest.raises(ConflictError, match="this run has sealed the day already, over other rows"):
        publish_run(run, world.spark)
    assert world.published() == before


def test_rows_that_a_transformation_drops_of_every_day_stop_the_run_at_once(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    world = World.make(spark, settings, tmp_path)
    for day in (13, 14):
        archive(world, day, value(0))
    reopened(world, "first", 13, 14)
    archive(world, 15, value(1))
    code = world.settings.streams_dir / f"{world.name}.py"
    code.write_text(TRANSFORM.replace("return records", "return records.where('event.id % 100 <> 1')"))
    for day in (13, 14):
        archive(world, day, value(1))
    with pytest.raises(IncompleteError, match=r"not conserved: .*\[2013-01-13, 2013-01-14, 2013-01-15\]"):
        planned(world, "second", 15)
    assert ended(world.run("second"), REBUILD)[1].held == ()


def test_a_rebuild_mends_a_damaged_table_file_and_reports_no_difference_to_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    objects_of(world, 12, 13, 14)
    reopened(world, "first", 12, 13, 14)
    with world.table_of_another_reader() as table:
        files = [task.file.file_path for task in table.scan().plan_files()]
    for day, how in ((12, "cut off"), (13, "missing")):
        (url,) = [url for url in files if f"_day={january(day)}" in url]
        damage(world, url.removeprefix(f"s3://{world.settings.bucket}/"), how)
    archive(world, 15, value(1))
    run = planned(world, "second", 15)
    pass_audit(run, world.spark)
    assert finished(world, run)["verdict"]["status"] == "complete"
    assert world.published() == world.expected_rows(*map(january, (12, 13, 14, 15)))
    one_more = DayDifference(day=january(14), rows=Difference(added=1, removed=0, changed=0), examples=())
    assert run.require(REBUILD).differences == (one_more,)
    for day in (12, 13):
        assert f"2013-01-{day}: not compared with the earlier version" in caplog.text


def test_a_missing_table_file_is_an_error_that_says_what_a_forced_run_does(world: World) -> None:
    archive(world, 13, value(0), b"broken")
    sealed(world, "first", 13)
    run = world.run("second")
    files = []
    for name in (world.name, f"{world.name}_quarantine"):
        loaded = load_table(world.settings, name)
        assert loaded is not None
        (file,) = [task.file.file_path for task in loaded.scan().plan_files()]
        files.append(file.removeprefix(f"s3://{world.settings.bucket}/"))
    bodies = [damage(world, file, "missing") for file in files]

    def stands(version: int, offset: int) -> RecordStatus | None:
        """Offset 0 is published, 1 is in the quarantine. Each table's statistics exclude the other."""
        seal = read_seal(run.store, run.layout, january(13), version)
        assert seal is not None
        return record_status(world.settings, run.stream, seal, world.log(), offset)

    for offset in (0, 1):
        with pytest.raises(FormatError, match=r"missing or damaged: .* Restore it .* day with force publishes a new"):
            stands(1, offset)
    run = planned(world, "second", 13, force=True)
    pass_audit(run, world.spark)
    publish_run(run, world.spark)
    seal_run(run)
    assert (world.published(), world.quarantined()) == (
        world.expected_rows(january(13)),
        world.expected_quarantine(january(13)),
    )
    for offset in (0, 1):
        assert stands(2, offset) is not None
        with pytest.raises(FormatError, match="versions that have it stay unreadable"):
            stands(1, offset)
    for file, body in zip(files, bodies, strict=True):
        run.store.put(file, body)
    assert [stands(1, offset) for offset in (0, 1)] == [stands(2, offset) for offset in (0, 1)]


@pytest.fixture(scope="module")
def reopened_run(spark: SparkSession, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A planned run of the 14th and of the 13th, which is sealed and has a late record. Tests only read it."""
    world = World.make(spark, settings, tmp_path_factory.mktemp("reopened"))
    objects_of(world, 13)
    reopened(world, "first", 13)
    archive(world, 14, value(1))
    run = world.run("second")
    return world.plan("second", [january(14)], seals=latest_seals(run.store, run.layout))


def worker_died_of(raised: str) -> TidemarkError:
    """What Spark makes of an exception in a Python worker, as the rebuild passes it on."""
    text = f"An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File a\n{raised}"
    return rebuild_error(PythonException(text), archive="the archive", code=Path("code.py"), personal=False)


@pytest.mark.parametrize(
    "error",
    [
        ServiceError("S3 is away"),
        ConflictError("others"),
        ConfigError("all"),
        *map(
            worker_died_of,
            [
                "OSError: disk full",
                "tidemark.core.errors.ServiceError: S3 get failed: found 503",
                "tidemark.core.errors.FormatError: a file of no writer",
                "pyarrow.lib.ArrowMemoryError: malloc of size 64 failed",
                "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 1. GiB",
                "ssl.SSLError: unexpected end",
                "RuntimeError: can't start new thread",
            ],
        ),
    ],
)
def test_no_day_is_left_out_for_what_is_not_its_fault(reopened_run: Run, error: TidemarkError) -> None:
    run = reopened_run
    assert days_to_hold_back(run, final_plan(run), error) == []
    found = days_to_hold_back(run, final_plan(run), IncompleteError("of an unknown day"))
    assert [item.day for item in found] == [january(13)]
    assert days_to_hold_back(run, final_plan(run), IncompleteError("of one", days=(january(14),))) == []
