"""Step ``delivery`` of a run that has sealed a day, with faults planted on the live topic."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.conftest import MakeStream, Produce, unique
from tests.core.test_heartbeat import EXAMPLE
from tests.report.samples import make_plan, outcome
from tests.speed.delivered import Delivery, ms_of
from tidemark.core.delivery import DELIVERY
from tidemark.core.errors import FormatError
from tidemark.core.plan import MainSnapshots
from tidemark.inspect.watch_findings import LastAudit, audit_problem, read_last_audit
from tidemark.orchestration.compared_days import nothing_to_compare, unreadable_days
from tidemark.orchestration.delivery import delivery_run
from tidemark.reconcile.results import PLAN, SEAL, ArchiveState, PlanResult, SealedVersion, SealResult
from tidemark.run import Run
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(54)


def run_of(log: Delivery, *days: date) -> Run:
    """A scheduled run that has sealed the days."""
    run = Run(stream=log.stream, settings=log.settings, store=log.store, layout=log.layout, name=unique("scheduled"))
    plan = PlanResult(
        requested=days,
        force=False,
        scheduled=True,
        main=MainSnapshots(published=None, quarantine=None),
        plan=make_plan(),
        archive=ArchiveState(manifests=1, broken_links=()),
        holes=None,
        refill=(),
    )
    sealed = SealResult(seals=tuple(SealedVersion(day=day, version=1, key="seal", sha256="") for day in days))
    run.save(PLAN, outcome(plan))
    run.save(SEAL, outcome(sealed))
    return run


def beat(log: Delivery, time: datetime) -> None:
    """The last heartbeat of the speed layer."""
    heartbeat = replace(EXAMPLE, stream=log.stream.name, layer="speed", state="stopped", time=time)
    log.store.put(log.layout.heartbeat_key("speed"), heartbeat.to_json())


def test_a_run_finds_faults_in_their_hours_the_watch_announces_them_and_deleted_days_are_left_out(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    log = Delivery.make(make_stream, settings, produce)
    log.write_sources([(0, ms_of(f"2013-01-14T{9 + n // 4:02}:10") + n, b'{"n":%d0}' % (n + 1)) for n in range(12)])
    log.archive("a", 0, 0, 12)
    run = run_of(log, date(2013, 1, 14))
    asked = run.require(PLAN)
    four_days = tuple(date(2013, 1, day) for day in (14, 15, 16, 17))
    for requested, because in (
        ((date(2013, 1, 15),), "The run has sealed no day that it was asked for"),
        (four_days, "A person or a backfill asked for more than 3 days"),
    ):
        run.save(PLAN, outcome(replace(asked, requested=requested, scheduled=False)))
        assert nothing_to_compare(run) == because
    run.save(PLAN, outcome(asked))
    assert nothing_to_compare(run) == "The speed layer has delivered nothing"
    assert read_last_audit(settings, log.stream.name) is None
    log.store.put(f"{log.layout.checkpoint_prefix('speed')}source.json", b"{")
    with pytest.raises(FormatError):
        nothing_to_compare(run)
    failed = run.outcome(DELIVERY)
    assert failed is not None
    assert (failed.status, failed.kind) == ("failed", "FormatError")
    announced = read_last_audit(settings, log.stream.name)
    assert announced is not None
    assert (announced.run, announced.error) == (run.name, failed.error)
    log.stand_at({0: 12})
    rights = [log.right(source) for source in log.sources.values()]
    missing, twice, changed = rights[1], rights[5], replace(rights[9], value=b"something else")
    log.deliver([*(item for item in rights if item is not missing), twice, changed])

    start = datetime(2013, 1, 14, 5, tzinfo=UTC)  # of the day, in New York
    beat(log, start - timedelta(seconds=1))
    off = "The speed layer last ran at 2013-01-14 04:59:59 UTC, before 2013-01-14 began"
    assert nothing_to_compare(run) == off
    assert read_last_audit(settings, log.stream.name) == LastAudit(run=run.name, days=(), error=None)
    beat(log, start)
    assert nothing_to_compare(run) is None
    delivery_run(run, spark)

    (day,) = run.require(DELIVERY).days
    hours = [(item.hour, item.live, item.missing, item.duplicated, item.unexpected) for item in day.hours]
    assert hours == [(9, 3, 1, 0, 0), (10, 4, 0, 1, 0), (11, 4, 0, 0, 1)]
    assert (day.day, day.verdict, day.archived) == (date(2013, 1, 14), "findings", 12)
    last = read_last_audit(settings, log.stream.name)
    assert last is not None
    (problem,) = audit_problem(log.stream.name, last)
    assert (last.run, problem.marks) == (run.name, ("2013-01-14",))
    assert "2013-01-14: 1 missing, 1 duplicated, 1 unexpected." in problem.problem.text

    first = TopicPartition(log.stream.speed.topic, 0, 3)
    admin = AdminClient({"bootstrap.servers": settings.kafka_bootstrap})  # no answer comes once it is collected
    admin.delete_records([first])[first].result()
    assert str(nothing_to_compare(run)).startswith("Kafka has deleted what was written to the live topic before")
    assert run.require(DELIVERY).days == ()


def test_of_several_days_those_that_began_after_the_speed_layer_ended_are_not_compared(
    settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    log = Delivery.make(make_stream, settings, produce)
    log.stand_at({0: 12})
    beat(log, datetime(2013, 1, 14, 12, tzinfo=UTC))
    run = run_of(log, date(2013, 1, 14), date(2013, 1, 15))
    assert nothing_to_compare(run) is None
    (ended,) = unreadable_days(run)
    assert (ended.day, ended.verdict) == (date(2013, 1, 15), "unknown")
    assert ended.sentences == ("The speed layer last ran at 2013-01-14 12:00:00 UTC, before 2013-01-15 began",)
