"""A lease that was taken under a wrong clock blocks no run for long (no server)."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from tests.core.memory import Memory
from tidemark.core.days import micros
from tidemark.core.errors import ConflictError
from tidemark.core.layout import Layout
from tidemark.reconcile import lease
from tidemark.reconcile.lease import holding, read_holder, release, take
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


def test_a_run_that_a_paused_dag_keeps_for_a_week_holds_up_no_command_and_then_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Memory()
    paused, other, command = (run(store, name) for name in ("paused", "other", "command"))
    monkeypatch.setattr(lease, "_now", lambda: micros(NOW))
    assert take(paused) is None
    monkeypatch.setattr(lease, "_now", lambda: micros(NOW + timedelta(days=7)))
    in_airflow = take(other, lambda _: False)  # Airflow knows that the paused run has not ended
    assert in_airflow is not None
    assert in_airflow.run == "paused"
    assert take(command) is None
    with pytest.raises(ConflictError, match="found run command"), holding(paused):
        pass
    release(command)
    with holding(paused):
        holder = read_holder(cast("ObjectStore", store), LAYOUT, NOW + timedelta(days=7))
        assert holder is not None
        assert holder.run == "paused"
