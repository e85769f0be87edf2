"""Sealed days to verify, what ``verify`` finds of them, and objects that are replaced for a while."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, Log, at
from tests.batch.steps import pass_audit
from tests.conftest import MakeStream, Produce, Record
from tidemark.archive.stream.driver import archive
from tidemark.core.seal import Seal
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.seal import seal_run
from tidemark.settings import Settings
from tidemark.verify.day import verify_day
from tidemark.verify.result import ProofPart, Verification

NINE = at(MONDAY, 9)
GOOD: Record = (b"k", b'{"n": 1}', NINE, 0, [])


def seal(log: Log, spark: SparkSession, name: str) -> Seal:
    """Monday, of everything that is archived."""
    run = log.run(name)
    plan_run(run, [MONDAY], False)
    finalize_plan_run(run)
    for step in (rebuild_run, pass_audit, publish_run):
        step(run, spark)
    (sealed,) = seal_run(run)
    return sealed


def sealed_in_turn(
    settings: Settings, make_stream: MakeStream, produce: Produce, spark: SparkSession, numbers: Mapping[str, int]
) -> tuple[Log, list[Seal]]:
    """A new stream, and a version of Monday by each of the runs, with so many records more."""
    stream = make_stream(time_zone="America/New_York", batch={"wait_seconds": 0})
    log = Log(stream=stream, settings=settings, produce_records=produce)
    seals = []
    for name, number in numbers.items():
        produce(stream.topic, [GOOD] * number)
        archive(spark, stream, settings, available_now=True)
        seals.append(seal(log, spark, name))
    return log, seals


def verify(log: Log, version: int | None = None) -> Verification:
    return verify_day(log.settings, log.stream.name, MONDAY, version)


def check(found: Verification, name: str) -> ProofPart:
    return next(item for item in found.checks if item.name == name)


def differences(found: Verification) -> str:
    """Every difference, a line each."""
    return "\n".join(
        f"{item.name}: {one.what}: expected {one.expected}, found {one.found} [{one.where}]"
        for item in found.checks
        for one in item.differences
    )


@contextmanager
def replaced(log: Log, key: str, body: bytes | None) -> Iterator[None]:
    """Another object at the key, or none, for a while."""
    before = log.store.get(key)
    assert before is not None
    if body is None:
        log.store.delete(key)
    else:
        log.store.put(key, body)
    yield
    log.store.put(key, before)
