"""The short form of ``make soak``: a few of its faults per mode, drawn from a fixed seed."""

import random
from pathlib import Path

import pytest

from tests.soak.faults import draw
from tests.soak.run import MASTER, soak
from tidemark.stack.local import LocalStack

SEED = 22

pytestmark = pytest.mark.timeout(1800)


def test_at_least_once_loses_nothing_to_a_kill_and_a_broker_that_is_killed(
    stack: LocalStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_SPARK_MASTER", MASTER)
    chance = random.Random(SEED)  # noqa: S311  # not for secrets
    faults = draw(("kill", "broker killed"), 2, chance)
    found = soak(stack, "at_least_once", tmp_path, faults, chance, audit=True)
    assert found.problems == []
    verdict = found.verdict
    assert verdict.delivered == verdict.expected + verdict.duplicates


def test_exactly_once_a_kill_a_zombie_and_an_open_transaction_cost_no_record_and_make_none_twice(
    stack: LocalStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_SPARK_MASTER", MASTER)
    chance = random.Random(SEED)  # noqa: S311  # not for secrets
    faults = draw(("kill", "zombie", "open transaction"), 3, chance)
    found = soak(stack, "exactly_once", tmp_path, faults, chance, audit=True)
    assert found.problems == []
    assert found.verdict.delivered == found.verdict.expected
