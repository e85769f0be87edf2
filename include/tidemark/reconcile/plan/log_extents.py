"""The offsets that the archive stream and reconcile runs have seen in Kafka, which outlive a deleted topic."""

from collections.abc import Mapping

from tidemark.archive.heartbeats import readable_heartbeat
from tidemark.core.log_extents import LogExtents, extents_json, parse_extents, widen
from tidemark.core.offsets import TopicPartition, range_or_none
from tidemark.core.plan import LogRange
from tidemark.core.targets import DayEnd
from tidemark.run import Run


def record_extents(run: Run, ends: Mapping[TopicPartition, DayEnd]) -> LogExtents:
    """Persist the offsets that a run and the stream have seen in the topic, and return all that were ever seen.

    A topic that the stream no longer reads is not recorded: others may continue with it. A heartbeat that does not
    parse adds nothing: a run must not wait for its repair. Earlier runs have recorded what earlier heartbeats reported.
    """
    now = [
        LogRange(log=log, range=own)
        for log, found in ends.items()
        if (own := range_or_none(found.log_start, found.high_watermark)) is not None
    ]
    beat = readable_heartbeat(run.store, run.layout, "archive")
    key = run.layout.log_extents_key

    def change(body: bytes | None) -> bytes | None:
        known = () if body is None else parse_extents(body, where=key)
        wider = widen(known, now, () if beat is None else beat.extents)
        return None if wider == known else extents_json(wider)

    recorded = run.store.update(key, change)
    return () if recorded is None else parse_extents(recorded, where=key)
