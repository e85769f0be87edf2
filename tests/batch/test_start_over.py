"""Runs that others overtake start over: one cut off is begun anew, and no row that readers had is lost.

The plain cases are in the default run. The others: ``pytest -m soak tests/batch/test_start_over.py``.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, Log, Produce, at
from tests.batch.steps import pass_audit
from tests.conftest import MakeStream
from tidemark.core.errors import ConflictError, QualityError, ServiceError
from tidemark.core.seal import Difference
from tidemark.reconcile import start_over
from tidemark.reconcile.audit import step as audit
from tidemark.reconcile.audit.checks import CheckOutcome
from tidemark.reconcile.plan import step as plan
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.refill import refill_run
from tidemark.reconcile.seal import seal_run
from tidemark.reconcile.start_over import publish_or_start_over
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.tables.reader import load_table
from tidemark.tables.seals import day_seals

FEW = {"expectation": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 5}}
Patch = Callable[[pytest.MonkeyPatch], None]
SOAK = pytest.mark.soak
READ = "read_and_compact"


class KilledError(Exception):
    """Stands for SIGKILL."""


@pytest.fixture
def make_log(settings: Settings, make_stream: MakeStream, produce: Produce) -> Callable[..., Log]:
    """Four records of a Monday, not archived."""

    def make(*checks: dict[str, Any]) -> Log:
        batch = {"wait_seconds": 0, "checks": list(checks)}
        stream = make_stream(time_zone="America/New_York", value_format="raw", value_schema=None, batch=batch)
        log = Log(stream=stream, settings=settings, produce_records=produce)
        log.produce(4, at(MONDAY, 9))
        return log

    return make


@pytest.fixture
def log(make_log: Callable[..., Log]) -> Log:
    return make_log()


def staged(log: Log, spark: SparkSession, name: str) -> Run:
    """Every step up to the audit. The archive is empty: everything is refilled."""
    run = log.run(name)
    plan.plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    plan.settle_run(run)
    rebuild_run(run, spark)
    pass_audit(run, spark)
    return run


def overtaken(spark: SparkSession, log: Log) -> tuple[Run, Run]:
    """A run up to its audit and another that published the day since, not sealed; two more records by now."""
    other, run = staged(log, spark, "other"), staged(log, spark, "run")
    publish_run(other, spark)
    log.produce(2, at(MONDAY, 20))
    return other, run


def rows_of(log: Log) -> int:
    """How many rows readers have."""
    table = load_table(log.settings, log.stream.table)
    assert table is not None
    return int(table.scan().to_arrow().num_rows)


def away(*_: object, **__: object) -> Any:
    raise ServiceError("S3 is away")


def while_away(step: str, module: Any, name: str) -> Patch:
    """Inside the step, what it needs of a module fails."""

    def patch(patches: pytest.MonkeyPatch) -> None:
        whole = getattr(start_over, step)

        def act(*arguments: Any) -> Any:
            with pytest.MonkeyPatch.context() as inside:
                inside.setattr(module, name, away)
                return whole(*arguments)

        patches.setattr(start_over, step, act)

    return patch


def checks_that_break(patches: pytest.MonkeyPatch) -> None:
    """Spark fails while checks are made, which the library tells as their outcome."""

    def broken(_: object, checks: Any) -> list[CheckOutcome]:
        return [CheckOutcome(expected=item, success=False, observed=None, exception="S3 is away") for item in checks]

    patches.setattr(audit, "evaluate", broken)


def killed(step: str, *, behind: bool) -> Patch:
    """SIGKILL in front of a step, or behind its work, before its result is saved; of a start-over alone."""

    def patch(patches: pytest.MonkeyPatch) -> None:
        whole, save = getattr(start_over, step), Run.save
        dead = False

        def act(run: Run, *arguments: Any) -> Any:
            nonlocal dead
            if run.load("start_over") is None:
                return whole(run, *arguments)
            if behind:
                with pytest.MonkeyPatch.context() as inside:
                    inside.setattr(Run, "save", lambda *_: None)
                    whole(run, *arguments)
            dead = True
            raise KilledError

        def silent(run: Run, name: str, value: dict[str, Any]) -> None:
            if not dead:
                save(run, name, value)

        patches.setattr(start_over, step, act)
        patches.setattr(Run, "save", silent)

    return patch


def test_a_run_whose_day_was_sealed_by_another_starts_over_in_its_publish_step(spark: SparkSession, log: Log) -> None:
    """The other's rows were published before this run settled, so only the seal tells."""
    other = staged(log, spark, "other")
    publish_run(other, spark)
    run = staged(log, spark, "run")
    seal_run(other)
    log.produce(2, at(MONDAY, 20))
    with pytest.raises(ConflictError, match="sealed while this run was rebuilding it"):
        publish_run(run, spark)

    publish_or_start_over(run, spark)

    (seal,) = seal_run(run)
    assert (seal.version, seal.reason, seal.rows_published, seal.refilled_offsets) == (2, "requested", 6, 2)
    assert "sealed while this run was rebuilding it" in run.require("start_over")["because"]
    publish_or_start_over(run, spark)  # the scheduler repeats a step that had succeeded
    assert run.require("publish")["already"] is True


def test_a_run_that_overtakes_another_between_its_publication_and_its_seal_seals_for_it_first(
    spark: SparkSession, log: Log
) -> None:
    other, run = staged(log, spark, "other"), staged(log, spark, "run")
    publish_run(other, spark)
    log.produce(2, at(MONDAY, 20))

    publish_or_start_over(run, spark)

    told = run.require("start_over")
    assert "a day was published by another run that has not sealed it yet" in told["because"]
    assert told["sealed_for"] == {"other": None}
    (second,) = seal_run(run)
    (first,) = seal_run(other)  # its own step comes late, and finds it done
    assert [(item.run, item.version, item.rows_published) for item in (first, second)] == [
        ("other", 1, 4),
        ("run", 2, 6),
    ]
    assert day_seals(run.store, run.layout, MONDAY) == (first, second)


@pytest.mark.soak
def test_a_second_version_that_a_run_has_published_and_not_sealed_is_sealed_for_it_too(
    spark: SparkSession, log: Log
) -> None:
    other = staged(log, spark, "other")
    publish_run(other, spark)
    (first,) = seal_run(other)
    log.produce(2, at(MONDAY, 20))
    other, run = staged(log, spark, "other"), staged(log, spark, "run")
    publish_run(other, spark)
    log.produce(1, at(MONDAY, 21))

    publish_or_start_over(run, spark)

    assert run.require("start_over")["sealed_for"] == {"other": None}
    (third,) = seal_run(run)
    seals = day_seals(run.store, run.layout, MONDAY)
    assert [(item.run, item.version, item.rows_published) for item in seals] == [
        ("other", 1, 4),
        ("other", 2, 6),
        ("run", 3, 7),
    ]
    assert (seals[0], seals[2]) == (first, third)


@pytest.mark.soak
def test_a_run_that_was_rebuilt_and_not_published_again_is_not_sealed_over_its_earlier_rows(
    spark: SparkSession, log: Log
) -> None:
    other, run = staged(log, spark, "other"), staged(log, spark, "run")
    publish_run(other, spark)  # and not sealed
    log.produce(2, at(MONDAY, 20))
    staged(log, spark, "other")  # cleared in the scheduler, and waits to publish

    publish_or_start_over(run, spark)

    told = run.require("start_over")["sealed_for"]["other"]
    assert "the run was rebuilt after it had published" in told
    assert [(item.run, item.version) for item in day_seals(run.store, run.layout, MONDAY)] == []
    (seal,) = seal_run(run)
    assert (seal.version, seal.rows_published) == (1, 6)


@pytest.mark.parametrize(
    ("patch", "error", "left"),
    [
        pytest.param(while_away("plan_run", plan, READ), ServiceError, "plan", id="plan fails", marks=SOAK),
        pytest.param(while_away("settle_run", plan, READ), ServiceError, "settled", id="settle fails", marks=SOAK),
        pytest.param(while_away("audit_run", audit, "evaluate"), ServiceError, "audit", id="audit fails", marks=SOAK),
        pytest.param(checks_that_break, QualityError, "audit", id="checks break", marks=SOAK),
        pytest.param(killed("audit_run", behind=False), KilledError, None, id="killed between rebuild and audit"),
        pytest.param(killed("publish_run", behind=True), KilledError, None, id="killed behind it", marks=SOAK),
    ],
)
def test_a_start_over_that_was_cut_off_is_finished_by_repeating_the_publish_step_alone(
    spark: SparkSession,
    log: Log,
    patch: Patch,
    error: type[Exception],
    left: str | None,
) -> None:
    other, run = overtaken(spark, log)
    with pytest.MonkeyPatch.context() as patches:
        patch(patches)
        with pytest.raises(error):
            publish_or_start_over(run, spark)
    began = run.load("start_over")
    assert began is not None
    assert began["status"] == ("begun" if left is None else "failed")
    if left is not None:
        failed = run.load(left)
        assert failed is not None
        assert failed["status"] == "failed"

    publish_or_start_over(run, spark)

    told = run.require("start_over")
    assert "a day was published by another run that has not sealed it yet" in told["because"]
    if left is not None:
        assert told["sealed_for"] == {"other": None}
    (first,), (second,) = seal_run(other), seal_run(run)
    assert [(item.run, item.version, item.rows_published) for item in (first, second)] == [
        ("other", 1, 4),
        ("run", 2, 6),
    ]


@pytest.mark.soak
def test_what_the_audit_of_a_start_over_found_wrong_stays_however_often_the_step_is_repeated(
    spark: SparkSession, make_log: Callable[..., Log]
) -> None:
    other, run = overtaken(spark, make_log(FEW))
    with pytest.raises(QualityError, match="critical checks did not pass"):
        publish_or_start_over(run, spark)
    began = run.load("start_over")
    for _ in range(2):
        with pytest.raises(QualityError, match=r"only an audited branch is published.*critical checks did not pass"):
            publish_or_start_over(run, spark)
    assert run.load("start_over") == began
    assert [item.rows_published for item in seal_run(other)] == [4]


def test_without_a_start_over_a_failed_audit_ends_the_run_whatever_it_failed_of(spark: SparkSession, log: Log) -> None:
    run = staged(log, spark, "run")
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(audit, "evaluate", away)
        with pytest.raises(ServiceError):
            audit.audit_run(run, spark)
    with pytest.raises(QualityError, match=r"only an audited branch is published.*S3 is away"):
        publish_or_start_over(run, spark)
    assert run.load("start_over") is None


@pytest.mark.soak
def test_who_publishes_between_two_attempts_of_a_start_over_is_sealed_for_too(spark: SparkSession, log: Log) -> None:
    """Also where the first attempt left no settled plan to tell the days by."""
    _, run = overtaken(spark, log)
    with pytest.MonkeyPatch.context() as patches:
        while_away("settle_run", plan, "read_and_compact")(patches)
        with pytest.raises(ServiceError):
            publish_or_start_over(run, spark)
    third = log.run("third")
    plan.plan_run(third, [MONDAY], True)
    plan.settle_run(third)
    rebuild_run(third, spark)
    audit.audit_run(third, spark)
    publish_run(third, spark)

    publish_or_start_over(run, spark)

    assert run.require("start_over")["sealed_for"] == {"other": None, "third": None}
    assert [item.run for item in day_seals(run.store, run.layout, MONDAY)] == ["other", "third"]
    assert (run.plan().unchanged, seal_run(run)) == ((MONDAY,), ())  # it has sealed all there is


@pytest.mark.soak
def test_a_run_that_settles_behind_anothers_unsealed_publication_takes_no_row_away(
    spark: SparkSession, log: Log
) -> None:
    run = log.run("run")
    plan.plan_run(run, [MONDAY], False)
    refill_run(run, spark)
    log.produce(2, at(MONDAY, 20))
    other = staged(log, spark, "other")
    publish_run(other, spark)

    plan.settle_run(run)
    rebuild_run(run, spark)
    audit.audit_run(run, spark)
    assert run.require("rebuild")["days"] != other.require("rebuild")["days"]  # four rows, where readers have six
    publish_or_start_over(run, spark)

    told = run.require("start_over")
    assert "published by another run that has not sealed it yet" in told["because"]
    assert "found rows of run other" in told["because"]
    assert told["sealed_for"] == {"other": None}
    assert (run.plan().unchanged, seal_run(run)) == ((MONDAY,), ())
    (seal,) = day_seals(run.store, run.layout, MONDAY)
    assert (seal.run, seal.version, seal.rows_published) == ("other", 1, 6)
    assert rows_of(log) == 6


@pytest.mark.soak
def test_a_run_that_settles_behind_a_publication_which_can_not_be_sealed_starts_over_once(
    spark: SparkSession, log: Log
) -> None:
    other = staged(log, spark, "other")
    publish_run(other, spark)
    other.store.delete(other.key("publish"))  # killed before it saved that
    log.produce(1, at(MONDAY, 21))
    run = staged(log, spark, "run")

    publish_or_start_over(run, spark)
    publish_or_start_over(run, spark)  # repeated, as where its end was not seen

    told = run.require("start_over")
    assert list(told["sealed_for"]) == ["other"]
    assert "publish" in told["sealed_for"]["other"]
    (seal,) = seal_run(run)
    assert (seal.version, seal.rows_published) == (1, 5)
    assert rows_of(log) == 5


@pytest.mark.soak
def test_a_run_by_force_that_another_overtakes_before_it_settles_takes_no_row_away(
    spark: SparkSession, log: Log
) -> None:
    first = staged(log, spark, "first")
    publish_run(first, spark)
    seal_run(first)
    run = log.run("run")
    plan.plan_run(run, [MONDAY], True)
    log.produce(2, at(MONDAY, 20))
    other = staged(log, spark, "other")
    publish_run(other, spark)
    seal_run(other)

    plan.settle_run(run)
    rebuild_run(run, spark)
    audit.audit_run(run, spark)
    publish_or_start_over(run, spark)

    (seal,) = seal_run(run)
    assert run.load("start_over") is None
    assert (seal.version, seal.rows_published) == (3, 6)
    assert seal.difference == Difference(added=0, removed=0, changed=0)
