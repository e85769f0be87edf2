"""Sinks for exactly-once delivery, each with its own group and marker topic."""

import pytest

from tests.conftest import unique
from tests.speed.delivering import LOG, MakeSink, span
from tidemark.settings import Settings
from tidemark.speed.exactly_once.marker import Sink, ensure_markers
from tidemark.speed.exactly_once.transactions import deliver


@pytest.fixture(scope="session")
def make_sink(settings: Settings) -> MakeSink:
    """Run a first transaction on the broker: it takes seconds, longer than the time-outs of some tests."""

    def make(*, records: int = 100, timeout_s: float = 120, batch_bytes: int = 1_000_000) -> Sink:
        name = unique("markers")
        ensure_markers(settings.kafka, name, LOG.partition + 1)
        return Sink(
            kafka=settings.kafka,
            group=f"group-{name}",
            marker_topic=name,
            records=records,
            timeout_s=timeout_s,
            batch_bytes=batch_bytes,
        )

    deliver([], span(0, 0, first=True), make())
    return make
