"""The records of the output topics, counted without the product's reading or auditing code."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from tests.soak.feed import delivered_value_of, is_good, key_of

TIMEOUT_S = 120
EXAMPLES = 5
Position = tuple[int, int]


@dataclass(kw_only=True)
class Verdict:
    """``delivered`` counts records; the lists have wrong records by kind.

    ``hostile`` counts the acknowledged records whose timestamps are not of the time of the soak, and
    ``hostile_duplicates`` their duplicates.
    """

    expected: int
    delivered: int
    rolled_back: int
    duplicates: int
    hostile: int
    hostile_duplicates: int
    missing: list[Position] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def problems(self, *, once: bool) -> list[str]:
        """The errors, with examples. ``once``: duplicates are errors too."""
        found = [
            f"{len(items)} {name}, such as {items[:EXAMPLES]}"
            for name, items in (("missing", self.missing), ("unexpected", self.unexpected), ("wrong", self.wrong))
            if items
        ]
        if once and self.duplicates:
            found.append(f"{self.duplicates} duplicates")
        if not self.expected:
            found.append("nothing was produced: this says nothing")
        return found


def judge(
    bootstrap: str, live: str, dead: str, topic_id: str, produced: Mapping[Position, int], *, ordered: bool
) -> Verdict:
    """Compare both topics, as a read_committed consumer sees them, with what was acknowledged.

    ``ordered``: records of a source partition must also come in its order in each partition of an output topic.
    """
    counts: Counter[Position] = Counter()
    unexpected, wrong = [], []
    newest: dict[tuple[str, int, int], int] = {}
    visible = 0
    for message in _messages(bootstrap, (live, dead), "read_committed"):
        visible += 1
        headers = dict(message.headers() or ())
        place = f"{message.topic()}+{message.partition()}+{message.offset()}"
        log, source = _source(headers)
        if source not in produced or log != topic_id:
            unexpected.append(f"{place} {headers}")
            continue
        counts[source] += 1
        n = produced[source]
        value, topic = (delivered_value_of(n), live if is_good(n) else dead)
        if (message.topic(), message.key(), message.value()) != (topic, key_of(n), value):
            wrong.append(f"{place}: {message.key()!r} {message.value()!r} of {source}, record {n}")
        if ("tidemark.reason" in headers) == is_good(n):
            wrong.append(f"{place}: reason {headers.get('tidemark.reason')!r}, record {n}")
        lane = (message.topic() or "", message.partition() or 0, source[0])
        if ordered and source[1] < newest.get(lane, -1):
            wrong.append(f"{place}: {source} after offset {newest[lane]}")
        newest[lane] = source[1]
    everything = sum(1 for _ in _messages(bootstrap, (live, dead), "read_uncommitted"))
    return Verdict(
        expected=len(produced),
        delivered=visible,
        rolled_back=everything - visible,
        duplicates=sum(copies - 1 for copies in counts.values()),
        hostile=sum(n < 0 for n in produced.values()),
        hostile_duplicates=sum(copies - 1 for source, copies in counts.items() if produced[source] < 0),
        missing=sorted(produced.keys() - counts.keys()),
        unexpected=unexpected,
        wrong=wrong,
    )


def _source(headers: Mapping[str, Any]) -> tuple[str, Position]:
    """Topic id, partition and offset in the headers; (-1, -1) without them."""
    parts = headers.get("tidemark.source", b"").decode().split(":")
    return (parts[1], (int(parts[2]), int(parts[3]))) if len(parts) == 4 else ("", (-1, -1))


# Called while brokers are killed and restarted.
@retry(
    retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(TIMEOUT_S), wait=wait_fixed(0.1), reraise=True
)
def ends(bootstrap: str, *topics: str) -> int:
    """The sum of the topics' ends, whatever is committed up to there."""
    consumer = _consumer(bootstrap, "read_uncommitted")
    try:
        return sum(
            consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)[1]
            for partition in _partitions(consumer, topics)
        )
    finally:
        consumer.close()


def _messages(bootstrap: str, topics: tuple[str, ...], isolation: str) -> Iterator[Message]:
    """Every record of the topics up to their ends, in log order per partition."""
    consumer = _consumer(bootstrap, isolation)
    try:
        wanted = _partitions(consumer, topics)
        consumer.assign(wanted)
        left = {(item.topic, item.partition) for item in wanted}
        deadline = time.monotonic() + TIMEOUT_S
        while left:
            for message in consumer.consume(10_000, timeout=0.5):
                deadline = time.monotonic() + TIMEOUT_S
                error = message.error()
                if error is None:
                    yield message
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard((message.topic() or "", message.partition() or 0))
            assert time.monotonic() < deadline, f"{left} did not reach their end"
    finally:
        consumer.close()


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "soak-oracle",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )


def _partitions(consumer: Consumer, topics: tuple[str, ...]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number, 0)
        for topic in topics
        for number in consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    ]
