"""What a stream's requests to S3 cost: its definition's settings, with the load that Kafka shows if it is asked."""

from datetime import datetime, timedelta

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.capacity import DAY_S, ArchiveSettings, Load
from tidemark.core.costs import StreamCosts
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import positions_at, watermarks
from tidemark.kafka.topics import logs_of

UNKNOWN_LOAD = Load(partitions=1)


def stream_costs(stream: Stream, load: Load = UNKNOWN_LOAD) -> StreamCosts:
    """The costs of a stream; without a load those of one partition that always has records."""
    archive = {name: getattr(stream.archive, name) for name in ArchiveSettings.__slots__}
    return StreamCosts(
        archive=ArchiveSettings(**archive),
        speed_trigger_seconds=stream.speed.trigger_seconds,
        exactly_once=stream.speed.delivery == "exactly_once",
        load=load,
    )


def last_day(kafka: KafkaConnection, stream: Stream, now: datetime) -> Load:
    """The topic's partitions, and the offsets of the day before ``now`` (with a zone) as an even load.

    Record timestamps decide. Sizes and folders stay unknown, and count as none and one. UNKNOWN_LOAD if the topic does
    not exist yet. Raises ServiceError if Kafka does not answer.
    """
    logs = logs_of(kafka, stream.topic)
    if not logs:
        return UNKNOWN_LOAD
    first = positions_at(kafka, logs, now - timedelta(days=1))
    ends = {item.log: item.high_watermark for item in watermarks(kafka, logs)}
    records = sum(max(ends[log] - start, 0) for log, start in first.items() if start is not None)
    return Load(partitions=len(logs), records_per_second=records / DAY_S)
