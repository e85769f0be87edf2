"""Step ``delivery``, whose last result of a stream the watch announces."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.core.delivery import DELIVERY, DeliveryAudit
from tidemark.core.outcome import Attempt
from tidemark.run import Run


@contextmanager
def delivery_step(run: Run) -> Iterator[Attempt[DeliveryAudit]]:
    """``run.step``, after which the run's result is the stream's last one, also a failure."""
    try:
        with run.step(DELIVERY) as attempt:
            yield attempt
    finally:
        run.store.put(run.layout.last_delivery_key, run.name.encode(), content_type="text/plain")
