"""Where a task may resume, on generated histories with attempts that are killed anywhere or wake up late."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.speed.delivering import LOG, span
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import PositionError, ServiceError
from tidemark.speed.exactly_once.marker import Marker, Sink, TaskRange, read_marker, resume_at

pytestmark = pytest.mark.conformance(23)

SINK = Sink(
    kafka=KafkaConnection.plain("kafka:9092"),
    group="tidemark-speed-x-id",
    marker_topic="live.markers",
    records=3,
    timeout_s=60,
)


class FencedError(Exception):
    """The broker knows a later epoch of the transactional id."""


@dataclass
class Broker:
    """Kafka's guarantees: one live epoch per transactional id, and records and offset that become visible together."""

    visible: list[int] = field(default_factory=list)
    marker: Marker | None = None
    epoch: int = 0
    open: list[int] = field(default_factory=list)

    def fence(self) -> int:
        self.open.clear()
        self.epoch += 1
        return self.epoch

    def produce(self, epoch: int, offset: int) -> None:
        self._check(epoch)
        self.open.append(offset)

    def commit(self, epoch: int, marker: Marker) -> None:
        self._check(epoch)
        self.visible += self.open
        self.open.clear()
        self.marker = marker

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise FencedError


def attempt(broker: Broker, wanted: TaskRange, rows: list[int]) -> Iterator[None]:
    """One task, which may be paused or killed at every ``yield``."""
    yield
    epoch = broker.fence()
    yield
    found = broker.marker
    yield
    left = [offset for offset in rows if offset >= resume_at(found, wanted, SINK)]
    while left:
        chunk, left = left[: SINK.records], left[SINK.records :]
        for offset in chunk:
            broker.produce(epoch, offset)
            yield
        broker.commit(epoch, Marker(position=chunk[-1] + 1 if left else wanted.until, batch=wanted.batch))
        yield
    if broker.marker is None or broker.marker.position < wanted.until:
        broker.commit(epoch, Marker(position=wanted.until, batch=wanted.batch))
        yield


def run(broker: Broker, rows: list[int], ends: list[int], chance: Random) -> None:
    """Batches one after the other, as in Spark; attempts may outlive their batch and wake up at any time."""
    alive: list[tuple[int, Iterator[None]]] = []
    for number, (start, until) in enumerate(pairwise(ends)):
        wanted = span(start, until, number=number, first=number == 0)
        own = [offset for offset in rows if start <= offset < until]
        runs = 1 + chance.randrange(2)  # the last batch may run again after a restart
        while runs:
            if chance.random() < 0.1 or all(of != number for of, _ in alive):
                alive.append((number, attempt(broker, wanted, own)))
            of, task = chosen = chance.choice(alive)
            killed = chance.random() < 0.03
            try:
                if not killed:
                    next(task)
                    continue
            except FencedError:
                pass
            except PositionError:
                assert of < number  # stale: more than its range is there
            except StopIteration:
                runs -= of == number
            alive.remove(chosen)


@settings(max_examples=400)
@given(
    ends=st.sets(st.integers(0, 30), min_size=2, max_size=5).map(sorted),
    holes=st.sets(st.integers(0, 30)),
    seed=st.integers(0, 2**32),
)
def test_no_record_is_lost_or_duplicated_wherever_attempts_are_killed_or_wake_up(
    ends: list[int], holes: set[int], seed: int
) -> None:
    rows = [offset for offset in range(ends[0], ends[-1]) if offset not in holes]
    broker = Broker()
    run(broker, rows, ends, Random(seed))  # noqa: S311  # a schedule, no secret
    assert broker.visible == rows
    assert broker.marker == Marker(position=ends[-1], batch=len(ends) - 2)


@given(start=st.integers(0, 40), length=st.integers(0, 40), position=st.integers(0, 90), first=st.booleans())
def test_delivery_resumes_at_a_marker_in_the_range_and_refuses_any_other(
    *, start: int, length: int, position: int, first: bool
) -> None:
    wanted = span(start, start + length, number=7, first=first)
    found = Marker(position=position, batch=6)
    if start <= position <= start + length:
        assert resume_at(found, wanted, SINK) == position
        return
    with pytest.raises(PositionError) as caught:
        resume_at(found, wanted, SINK)
    text = str(caught.value)
    assert f"[{start}, {start + length}] of the checkpoint's batch 7" in text
    assert f"found marker {position} of batch 6" in text
    assert str(LOG) in text
    assert LOG.topic_id in text
    assert SINK.group in text
    assert text.endswith(f": tidemark markers STREAM --set {LOG.partition}=OFFSET")


def test_without_a_marker_only_the_first_batch_may_start() -> None:
    assert resume_at(None, span(5, 9, first=True), SINK) == 5
    with pytest.raises(PositionError, match=r"there is no marker.*found marker none"):
        resume_at(None, span(5, 9, number=3), SINK)


def test_an_error_beside_a_marker_does_not_count_as_a_missing_marker() -> None:
    """The client gives an error per partition, beside an offset that says "none"."""
    answer = SimpleNamespace(error=KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT), offset=-1001, metadata=None)
    consumer: Any = SimpleNamespace(committed=lambda *_, **__: [answer])
    with pytest.raises(ServiceError, match=r"Kafka did not return a marker: found .*UNSTABLE_OFFSET_COMMIT"):
        read_marker(consumer, SINK, LOG)


@pytest.mark.parametrize(("start", "until"), [(-1, 4), (4, 3)])
def test_a_range_that_ends_before_its_start_is_refused(start: int, until: int) -> None:
    with pytest.raises(PositionError, match="a range ends before its start"):
        span(start, until)
