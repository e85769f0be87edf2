"""The demo's data in a deployment: ``python -m tidemark.demo.deployment send``, and ``check`` after the run.

``send`` puts the two days into the topic of the stream ``flights``, once more with every call. ``check`` compares what
readers find with the source file; it expects that they were sent once, and that both days are published.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from tidemark.core.errors import TidemarkError
from tidemark.definitions.stream import Stream, load_stream
from tidemark.demo.produce import EventLog
from tidemark.demo.source import DAYS, MALFORMED_AFTER, events
from tidemark.demo.verify import Statement, expected_rows, published, read_topic, topic_statements, values_statement
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings, settings

STREAM = "flights"


def send(connections: Settings, stream: Stream) -> str:
    """Send all events; how many Kafka acknowledged. Raises TidemarkError."""
    log = EventLog(connections.kafka, stream.topic)
    log.produce(events(), check=lambda: None)
    return f"{len(log.sent)} events of {DAYS[0]} and {DAYS[-1]} are in the topic {stream.topic}."


def check(connections: Settings, stream: Stream) -> tuple[Statement, ...]:
    """What must be true of the published days, the live topic and the dead letters. Raises TidemarkError."""
    marks = watermarks(connections.kafka, describe_topic(connections.kafka, stream.topic))
    sent = sum(mark.high_watermark for mark in marks)
    expected, found = expected_rows(), published(connections, stream)
    good, bad = set(found.places), set(found.quarantined)
    live = read_topic(connections.speed_kafka, stream.speed.topic, lambda: None)
    dead = read_topic(connections.speed_kafka, stream.speed.dead_letter_topic, lambda: None)
    in_live, in_dead = topic_statements(good, live, bad, dead)
    rows = len(found.places) + len(found.quarantined)
    return (
        Statement(
            claim="every record of the topic is published or quarantined, once",
            holds=sent == rows == len(good | bad) > 0,
            detail=f"{sent} records, {rows} rows, {len(good | bad)} places",
        ),
        values_statement(found, expected),
        in_live,
        replace(in_dead, holds=in_dead.holds and len(bad) == len(MALFORMED_AFTER)),
    )


def main(arguments: Sequence[str]) -> int:
    """Do what the argument says, and print the answer. 1 if a statement is false."""
    connections = settings()
    stream = load_stream(STREAM, connections.streams_dir)
    if list(arguments) == ["send"]:
        print(send(connections, stream))  # noqa: T201 - the command's answer
        return 0
    found = check(connections, stream)
    for item in found:
        print(f"{str(item.holds).lower():<5}  {item.claim}: {item.detail}")  # noqa: T201
    return 0 if all(item.holds for item in found) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TidemarkError as error:
        sys.exit(f"{type(error).__name__}: {error}")
