"""An endless feed: some records at a time, bursts on demand, aborted transactions; keeps what Kafka acknowledged.

Records have numbers. Those at their limits (``tests.hostile``), which come on demand, have negative ones.
"""

import json
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, Producer

from tests.hostile import HostileRecord, hostile_records

PAUSE_S = 0.02
TRICKLE = 4  # records per pause
ABORTED_VALUE = b'{"n":-1}'
# Of a topic with records of all times.
ANY_TIME = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
HOSTILE = {-1 - number: record for number, record in enumerate(hostile_records())}


def key_of(n: int) -> bytes | None:
    if n < 0:
        return HOSTILE[n].key
    return None if n % 7 == 0 else b"key %d" % (n % 50)


def value_of(n: int, moment_ms: int | None = None) -> bytes | None:
    """One in seventeen is not JSON, but still has its number. The time, if there is one, is the field ``t``."""
    if n < 0:
        return HOSTILE[n].value
    if not is_good(n):
        return b"{broken %d" % n
    return b'{"n":%d}' % n if moment_ms is None else b'{"n":%d,"t":%d}' % (n, moment_ms)


def delivered_value_of(n: int) -> bytes | None:
    """The value in an output topic: the columns of a good record, the bytes of a dead letter."""
    value = value_of(n)
    return b'{"n":%d}' % json.loads(value or b"")["n"] if is_good(n) else value


def is_good(n: int) -> bool:
    return HOSTILE[n].good if n < 0 else n % 17 != 0


class Feeder:
    """A thread that produces to a topic during the block. ``acknowledged`` is complete after the block.

    ``moment_ms`` gives each number its timestamp, which its value has too. ``twins`` gives the numbers that another
    producer with some wrong clock sends after a number of a burst. ``aborting``: a burst starts with a transaction that
    is aborted, whose marker has the current time.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        moment_ms: Callable[[int], int] | None = None,
        twins: Callable[[int, int], Iterable[int]] = lambda _n, _clock: (),
        trickle: int = TRICKLE,
        aborting: bool = True,
    ) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}  # (partition, offset) of the source to the record's number
        self.in_order = 0  # acknowledged records without the twins and the hostile ones
        self.hostile = 0  # acknowledged hostile records
        self._bootstrap, self._topic, self._partitions, self._moment_ms = bootstrap, topic, partitions, moment_ms
        self._twins = twins
        self._trickle, self._aborts = trickle, aborting
        self._wanted: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self._stop = Event()
        self._failure: BaseException | None = None
        self._number = 0
        # A broker's restart must not lose a record: records wait until they are acknowledged.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 900_000,
                "log_level": 0,
            }
        )
        self._aborting: Producer | None = None
        self._thread = Thread(target=self._run, name=f"feeder {topic}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(900) == 0, "Kafka did not take what was produced"
        if self._failure is not None:
            raise self._failure

    def burst(self, records: int, clock: int = 0) -> None:
        """Send that many records at once, and the twins that the clock gives them."""
        self._wanted.put((records, clock))

    def burst_of_hostile(self) -> None:
        """Send each record of ``HOSTILE``."""
        self._wanted.put((0, 0))

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE_S):
                try:
                    records, clock = self._wanted.get_nowait()
                    if not records:
                        for n, record in HOSTILE.items():
                            self._send(n, record, in_order=False)
                    elif self._aborts:
                        self._abort_some()
                except Empty:
                    records, clock = self._trickle, 0
                for n in range(self._number, self._number + records):
                    self._send(n)
                    for twin in self._twins(n, clock):
                        self._send(twin, in_order=False)
                self._number += records
        except BaseException as error:  # noqa: BLE001  # raised where the feeder ends
            self._failure = error

    def _send(self, n: int, hostile: HostileRecord | None = None, *, in_order: bool = True) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged[message.partition(), message.offset()] = n
                self.in_order += in_order
                self.hostile += n < 0
            else:
                self._failure = KafkaException(error)

        moment = None if self._moment_ms is None or hostile else self._moment_ms(n)
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value_of(n, moment),
                    key_of(n),
                    n % self._partitions,
                    on_delivery=delivered,
                    timestamp=hostile.timestamp_ms if hostile else moment or 0,  # 0 is the present time
                    headers=list(hostile.headers) if hostile else [],
                )
                break
            except BufferError:  # the broker is unavailable
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _abort_some(self) -> None:
        """Records that no reader may see. An unavailable broker is no failure."""
        try:
            if self._aborting is None:
                producer = Producer(
                    {"bootstrap.servers": self._bootstrap, "transactional.id": f"feeder-{self._topic}", "log_level": 0}
                )
                producer.init_transactions(20)
                self._aborting = producer
            self._aborting.begin_transaction()
            for number in range(20):
                self._aborting.produce(self._topic, ABORTED_VALUE, partition=number % self._partitions)
            self._aborting.flush(10)
            self._aborting.abort_transaction(20)
        except KafkaException:
            self._aborting = None
            time.sleep(PAUSE_S)
