"""A layer's health by its heartbeat: recent, too old, from the future, or unreadable (no server)."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from tests.core.memory import Memory
from tests.core.test_heartbeat import EXAMPLE
from tests.core.worlds import log
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import LogRange
from tidemark.delivery_audit.readable import last_ran
from tidemark.inspect.health import LayerHealth, read_layers
from tidemark.inspect.problems import Problem
from tidemark.inspect.status import _layer_problems
from tidemark.inspect.status_metrics import STATE, _layer
from tidemark.inspect.status_rows import layer_row
from tidemark.reconcile.plan.log_extents import read_seen, record_seen
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

NOW = datetime(2013, 1, 15, 12, tzinfo=UTC)


def layers(bodies: Mapping[str, bytes]) -> dict[str, LayerHealth]:
    """The health of the layers of stream flights that have these heartbeats."""
    layout = Layout(prefix="", stream="flights")
    store = cast("ObjectStore", Memory({layout.heartbeat_key(layer): body for layer, body in bodies.items()}))
    settings = cast("Settings", SimpleNamespace(prefix=""))
    found = read_layers(settings, store, "flights", stale_seconds=60, now=NOW)
    return {item.layer: item for item in found}


def beat(ahead: timedelta = timedelta(0)) -> bytes:
    return replace(EXAMPLE, time=NOW + ahead).to_json()


def problems(found: Mapping[str, LayerHealth]) -> list[Problem]:
    return [problem for item in found.values() for problem in _layer_problems(item, sealed=True)]


@pytest.mark.conformance(33)
@pytest.mark.parametrize(
    ("ahead", "alive", "said"),
    [
        (timedelta(0), True, []),
        (timedelta(seconds=59), True, []),
        (timedelta(seconds=-59), True, []),
        (timedelta(seconds=-61), False, ["its last heartbeat is from 2013-01-15 11:58 UTC"]),
        (timedelta(seconds=61), False, ["has a heartbeat from the future, of 2013-01-15 12:01 UTC"]),
        (timedelta(days=365), False, ["has a heartbeat from the future, of 2014-01-15 12:00 UTC"]),
    ],
)
def test_a_heartbeat_from_the_future_is_reported_and_its_layer_is_not_alive(
    ahead: timedelta, alive: bool, said: list[str]
) -> None:
    found = layers({"archive": beat(ahead)})
    assert found["archive"].alive is alive
    texts = [(item.kind, item.text) for item in problems(found)]
    assert [kind for kind, _ in texts] == ["archive_stale"] * len(said)
    assert all(part in text for part, (_, text) in zip(said, texts, strict=True))


@pytest.mark.conformance(66)
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "a heartbeat does not parse"),
        (b'{"format": 9}', "unknown heartbeat format: expected 3, found 9"),
        (b"", "a heartbeat does not parse"),
    ],
)
def test_an_unreadable_heartbeat_is_named_and_the_other_layers_are_shown(body: bytes, reason: str) -> None:
    found = layers({"archive": body, "speed": beat(), "departures": body})
    assert {name: item.alive for name, item in found.items()} == {"archive": False, "speed": True, "departures": False}
    said = problems(found)
    assert [item.kind for item in said] == ["unknown", "unknown"]
    for item, layer in zip(said, ("archive", "departures"), strict=True):
        start = f"Cannot find out whether the {layer} layer of flights runs: {reason}"
        assert item.text.startswith(start)
        assert f"[s3://lake/heartbeats/flights/{layer}.json]" in item.text
    row = layer_row(found["archive"])
    assert (row.state, row.alive, row.error) == ("unreadable", False, found["archive"].unreadable)


@pytest.mark.conformance(66)
@pytest.mark.parametrize("body", [b"{", b'{"format": 9}'])
def test_what_can_continue_without_a_heartbeat_continues_and_names_it(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    layout = Layout(prefix="", stream="flights")
    store = cast("ObjectStore", Memory({layout.heartbeat_key("speed"): body}))
    with caplog.at_level(logging.WARNING):
        assert last_ran(store, layout) is None
    assert "continuing without the heartbeat of the speed layer: " in caplog.text
    assert "s3://lake/heartbeats/flights/speed.json" in caplog.text


@pytest.mark.conformance(66)
def test_what_a_heartbeat_says_of_deleted_topics_outlives_it() -> None:
    layout = Layout(prefix="", stream="flights")
    seen = (LogRange(log=log(), range=OffsetRange(start=0, end=9)),)
    store = Memory({layout.heartbeat_key("archive"): replace(EXAMPLE, extents=seen).to_json()})
    run = cast("Run", SimpleNamespace(store=store, layout=layout))
    assert record_seen(run, read_seen(run), {}, {}, {}).extents == seen
    store.objects[layout.heartbeat_key("archive")] = b"{"
    assert record_seen(run, read_seen(run), {}, {}, {}).extents == seen


@pytest.mark.conformance(55, 66)
def test_metrics_distinguish_an_unreadable_heartbeat_from_a_layer_that_never_ran() -> None:
    labels = ("prod", "flights", "archive")
    for body, state in ((b"{", "unreadable"), (None, "never_started"), (beat(), "running")):
        item = layers({} if body is None else {"archive": body})["archive"]
        states = {sample.labels[-1] for sample in _layer(item, labels) if sample.metric is STATE and sample.value}
        assert states == {state}
