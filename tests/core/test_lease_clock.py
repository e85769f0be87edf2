"""A lease that was taken under a wrong clock blocks no run for long (no server)."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from tests.core.memory import Memory
from tidemark.core.days import micros
from tidemark.core.layout import Layout
from tidemark.reconcile import lease
from tidemark.reconcile.lease import read_holder, take
from tidemark.run import Run
from tidemark.s3 import ObjectStore

pytestmark = pytest.mark.conformance(33)
LAYOUT = Layout(prefix="", stream="flights")
NOW = datetime(2013, 1, 15, 12, tzinfo=UTC)


def run(store: Memory, name: str) -> Run:
    return cast("Run", SimpleNamespace(name=name, store=store, layout=LAYOUT, stream=SimpleNamespace(name="flights")))


@pytest.mark.parametrize(
    ("clock_is_ahead", "held"),
    [
        (timedelta(0), True),
        (timedelta(minutes=29), True),
        (timedelta(minutes=31), False),
        (timedelta(days=365), False),
        (timedelta(minutes=-29), True),
        (timedelta(minutes=-31), False),
    ],
)
def test_a_lease_is_held_only_by_a_renewal_within_half_an_hour_of_now(
    monkeypatch: pytest.MonkeyPatch, clock_is_ahead: timedelta, held: bool
) -> None:
    store = Memory()
    monkeypatch.setattr(lease, "_now", lambda: micros(NOW + clock_is_ahead))
    assert take(run(store, "first")) is None
    monkeypatch.setattr(lease, "_now", lambda: micros(NOW))
    assert (read_holder(cast("ObjectStore", store), LAYOUT, NOW) is not None) is held
    holder = take(run(store, "second"))
    assert (holder.run if holder else None) == ("first" if held else None)
