"""Today's code reads, verifies and rebuilds what each released version wrote. Kafka has none of it any more."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY
from tests.batch.steps import pass_audit
from tests.catalog import another_catalog
from tests.upgrades.kept import Kept, kept_versions
from tidemark.archive.ledger.ledger import read_archived, rebuild
from tidemark.core.layout import Layout
from tidemark.current_view.day_states import read_day_states
from tidemark.definitions.stream import Stream, load_stream
from tidemark.kafka.topics import ensure_topic
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.s3 import ObjectStore, ensure_bucket
from tidemark.settings import Settings
from tidemark.tables.versions import day_versions
from tidemark.verify.day import verify_day
from tidemark.verify.result import Verification

pytestmark = pytest.mark.conformance(66)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A released version's fixture in the S3 server and the catalog of the tests."""

    kept: Kept
    settings: Settings
    stream: Stream

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(self.settings)

    @property
    def layout(self) -> Layout:
        return Layout(prefix=self.kept.prefix, stream=self.kept.stream)

    @property
    def sealed(self) -> list[tuple[date, int]]:
        """Day and version of each seal."""
        return [(day, number) for day, all_of in self.kept.versions.items() for number in range(1, len(all_of) + 1)]

    def rows(self, table: str, snapshot: int | None, day: date, columns: Sequence[str]) -> list[list[Any]]:
        """The day's rows of a snapshot, read by pyiceberg."""
        with another_catalog(self.settings) as catalog:
            scan = catalog.load_table((self.settings.namespace, table)).scan(
                f"_day = '{day}'", selected_fields=tuple(columns), snapshot_id=snapshot
            )
            return sorted([row[name] for name in columns] for row in scan.to_arrow().to_pylist())

    def verify(self, day: date, number: int) -> Verification:
        return verify_day(self.settings, self.stream.name, day, number)


@pytest.fixture(scope="module", params=kept_versions())
def released(
    request: pytest.FixtureRequest, settings: Settings, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    kept = Kept.read(request.param)
    streams = tmp_path_factory.mktemp("released") / "streams"
    streams.mkdir()
    for name, body in kept.definition().items():
        (streams / name).write_bytes(body)
    own = {"bucket": kept.bucket, "prefix": kept.prefix, "namespace": kept.namespace, "deployment": ""}
    made = Settings.model_validate({**settings.model_dump(), **own, "streams_dir": streams})
    ensure_bucket(made)
    store = ObjectStore(made)
    for key, body in kept.objects().items():
        store.put(key, body)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {made.catalog}.{made.namespace}")
    for name, metadata in kept.tables.items():
        table = f"{made.namespace}.{name}"
        spark.sql(f"CALL {made.catalog}.system.register_table(table => '{table}', metadata_file => '{metadata}')")
    yield Deployment(kept=kept, settings=made, stream=load_stream(kept.stream, streams))
    for name in kept.tables:
        spark.sql(f"DROP TABLE {made.catalog}.{made.namespace}.{name}")


def doubts(found: Verification) -> dict[str, str]:
    """What does not hold, and why."""
    return {
        check.name: "; ".join([check.status, *check.unknown, *(str(item) for item in check.differences)])
        for check in found.checks
        if check.status != "holds"
    }


def test_days_and_versions_are_listed(released: Deployment) -> None:
    states = read_day_states(
        released.settings,
        released.stream,
        first=min(released.kept.versions),
        last=max(released.kept.versions),
        grace=timedelta(),
        now=datetime.now(UTC),
    )
    sealed = [(item.day, item.status, item.sealed.version if item.sealed else 0) for item in states]
    assert sealed == [(day, "sealed", len(versions)) for day, versions in released.kept.versions.items()]
    for day, versions in released.kept.versions.items():
        found = day_versions(released.settings, released.stream, day).versions
        assert [(item.seal.version, item.published) for item in found] == [
            (number, number == len(versions)) for number in range(1, len(versions) + 1)
        ]
        assert [(item.seal.rows_published, item.seal.rows_quarantined) for item in found] == [
            (len(item["rows"]), len(item["quarantined"])) for item in versions
        ]


def test_every_version_has_the_rows_that_were_produced(released: Deployment) -> None:
    columns = ("_kafka_partition", "_offset", "id", "name", "delay")
    for day, versions in released.kept.versions.items():
        found = day_versions(released.settings, released.stream, day).versions
        for item, expected in zip(found, versions, strict=True):
            rows = released.rows(released.stream.table, item.snapshot_id, day, columns)
            assert rows == expected["rows"]
            aside = released.rows(released.stream.quarantine_table, item.quarantine_snapshot_id, day, columns[:2])
            assert aside == expected["quarantined"]


def test_every_version_is_proven_as_far_as_kafka_is_not_needed(released: Deployment) -> None:
    for day, number in released.sealed:
        found = released.verify(day, number)
        assert doubts(found) == {"kafka": "expired"}, (day, number)
        assert found.verdict == "proven"
        assert found.lost == sum(end - start for _, start, end in released.kept.lost)


def test_the_ledger_is_rebuilt_from_the_manifests(released: Deployment) -> None:
    before = read_archived(released.store, released.layout, released.stream)
    manifests = len(list(released.store.list(released.layout.manifest_prefix)))
    assert (before.manifests, before.broken_links) == (manifests, ())
    assert 0 < before.new < manifests  # the rest is in the fixture's own ledger
    assert rebuild(released.store, released.layout, released.stream).manifests == manifests
    after = read_archived(released.store, released.layout, released.stream)
    assert (after.new, after.newest) == (0, before.newest + 1)
    assert after.history().extents() == before.history().extents()


def test_a_rebuild_gives_a_new_proven_version_with_the_same_rows(released: Deployment, spark: SparkSession) -> None:
    """Kafka is new: its topic has the old one's name, and no records."""
    ensure_topic(released.settings.kafka, released.stream.topic, partitions=2, config={"retention.ms": "-1"})
    run = Run.open(released.stream.name, "today", released.settings)
    plan_run(run, [MONDAY], True)
    finalize_plan_run(run)
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, spark)
    (seal,) = seal_run(run)
    versions = released.kept.versions[MONDAY]
    assert seal.version == len(versions) + 1
    assert released.kept.topic_id in {item.log.topic_id for item in seal.logs}
    found = released.verify(MONDAY, seal.version)
    assert (found.verdict, doubts(found)) == ("proven", {"kafka": "expired"})
    columns = ("_kafka_partition", "_offset", "id", "name", "delay")
    assert released.rows(released.stream.table, seal.snapshot_id, MONDAY, columns) == versions[-1]["rows"]
    assert all(released.verify(day, number).verdict == "proven" for day, number in released.sealed)
