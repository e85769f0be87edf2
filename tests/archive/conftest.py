"""A proxy before the S3 server, for faults."""

from collections.abc import Iterator

import pytest

from tests.faults import FaultProxy
from tidemark.settings import Settings
from tidemark.spark import monitor


@pytest.fixture
def proxy(settings: Settings) -> Iterator[FaultProxy]:
    assert settings.s3_endpoint is not None
    with FaultProxy(settings.s3_endpoint) as running:
        yield running


def through(settings: Settings, proxy: FaultProxy) -> Settings:
    """The settings with the proxy for a store: of Python's requests, not of Spark's own."""
    return settings.model_copy(update={"s3_endpoint": proxy.url})


@pytest.fixture(autouse=True)
def _kafka_may_be_slow_to_tell_the_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine too a lag is a number."""
    monkeypatch.setattr(monitor, "LAG_TIMEOUT_S", 120.0)
