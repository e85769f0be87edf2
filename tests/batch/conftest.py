"""A stream of two partitions over a real topic, for the steps that plan against Kafka."""

from collections.abc import Callable

import pytest

from tests.batch.logs import Log, Produce
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings


@pytest.fixture
def log(settings: Settings, make_stream: Callable[..., Stream], produce: Produce) -> Log:
    stream = make_stream(
        partitions=2, time_zone="America/New_York", archive={"flush_size": 4}, batch={"wait_seconds": 0}
    )
    return Log(stream=stream, settings=settings, produce_records=produce)
