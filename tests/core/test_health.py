"""What a layer's heartbeat says of its health, whatever the heartbeat is (no server)."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from tests.core.test_heartbeat import EXAMPLE
from tidemark.core.layout import Layout
from tidemark.inspect.health import LayerHealth, read_layers
from tidemark.inspect.problems import Problem
from tidemark.inspect.status import _layer_problems
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

NOW = datetime(2013, 1, 15, 12, tzinfo=UTC)


def layers(bodies: Mapping[str, bytes]) -> dict[str, LayerHealth]:
    """The health of stream flights whose layers have these heartbeats."""
    layout = Layout(prefix="", stream="flights")
    by_key = {layout.heartbeat_key(layer): body for layer, body in bodies.items()}
    store = cast("ObjectStore", SimpleNamespace(bucket="lake", get=by_key.get))
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
def test_a_heartbeat_from_the_future_says_so_and_not_that_the_layer_runs(
    ahead: timedelta, alive: bool, said: list[str]
) -> None:
    found = layers({"archive": beat(ahead)})
    assert found["archive"].alive is alive
    texts = [(item.kind, item.text) for item in problems(found)]
    assert [kind for kind, _ in texts] == ["archive_stale"] * len(said)
    assert all(part in text for part, (_, text) in zip(said, texts, strict=True))
