"""What tests of runs under a real Airflow share."""

from collections.abc import Iterator

import pytest

from tests.faults import FaultProxy
from tidemark.stack.local import LocalStack


@pytest.fixture(scope="module")
def proxy(stack: LocalStack) -> Iterator[FaultProxy]:
    """A proxy for the S3 server, for everything that Airflow runs."""
    with FaultProxy(str(stack.settings.s3_endpoint)) as running:
        yield running
