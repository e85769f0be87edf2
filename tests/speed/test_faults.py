"""The speed stream's processes under the faults of ``make soak``, one after the other instead of at random.

``make soak SOAK="--mode exactly_once"`` and ``make soak SOAK="--mode at_least_once"`` are the long, random form.
"""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.soak.faults import Fault
from tests.soak.run import MASTER, Soaked, soak
from tidemark.stack.local import LocalStack

pytestmark = [pytest.mark.timeout(1200), pytest.mark.conformance(22, 23)]


def strike(stack: LocalStack, spark: SparkSession, folder: Path, mode: str, *kinds: str) -> Soaked:
    """Do each fault once while records of a burst are written; the rest is delivered in this process."""
    faults = [Fault(kind=kind, moment="writing", burst=5_000, share=0.6) for kind in kinds]
    return soak(stack, mode, folder, faults, random.Random(22), spark=spark)  # noqa: S311  # not for secrets


def test_at_least_once_loses_nothing_to_a_kill_or_a_killed_broker(
    stack: LocalStack, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_SPARK_MASTER", MASTER)
    found = strike(stack, spark, tmp_path, "at_least_once", "broker killed", "kill the JVM")
    assert found.problems == []
    verdict = found.verdict
    assert verdict.delivered == verdict.expected + verdict.duplicates
    seen = found.struck[1].seen
    assert seen in {"the driver ended with 1", "there was none yet"}
    died = any(ending.startswith("ServiceError: Spark's JVM died") for ending in found.endings)
    assert died or seen == "there was none yet"


def test_exactly_once_loses_nothing_to_a_zombie_an_open_transaction_or_sigterm(
    stack: LocalStack, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_SPARK_MASTER", MASTER)
    found = strike(stack, spark, tmp_path, "exactly_once", "open transaction", "zombie", "terminate")
    assert found.problems == []
    assert found.verdict.delivered == found.verdict.expected
    # All of its processes got SIGTERM, including the workers that deliver.
    assert [struck.seen for struck in found.struck][2] == "it ended with 0"
