"""Sinks for exactly-once delivery, each with a group and a marker topic of its own."""

import pytest

from tests.conftest import unique
from tests.speed.delivering import LOG, MakeSink
from tidemark.settings import Settings
from tidemark.speed.transactions import Sink, ensure_markers


@pytest.fixture
def make_sink(settings: Settings) -> MakeSink:
    def make(*, records: int = 100, timeout_s: float = 120, batch_bytes: int = 1_000_000) -> Sink:
        name = unique("markers")
        ensure_markers(settings.kafka_bootstrap, name, LOG.partition + 1)
        return Sink(
            bootstrap=settings.kafka_bootstrap,
            group=f"group-{name}",
            marker_topic=name,
            records=records,
            timeout_s=timeout_s,
            batch_bytes=batch_bytes,
        )

    return make
