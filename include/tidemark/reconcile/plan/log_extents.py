"""The offsets that the archive stream and runs have seen in Kafka, which outlive a deleted or truncated log."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from tidemark.archive.heartbeats import readable_heartbeat
from tidemark.core.log_extents import SeenLogs, extents_json, lost_ends, parse_extents, widen
from tidemark.core.loss_text import truncation_text
from tidemark.core.offsets import TopicPartition, range_or_none
from tidemark.core.plan import LogRange, Truncation
from tidemark.core.targets import DayEnd
from tidemark.kafka.log_ends import LogEnds
from tidemark.kafka.positions import first_records
from tidemark.logs import log_range
from tidemark.run import Run

_logger = logging.getLogger(__name__)
Ends = Mapping[TopicPartition, DayEnd]


def read_seen(run: Run) -> SeenLogs:
    """What runs and the archive stream have seen so far.

    A heartbeat that does not parse adds nothing: a run must not wait for its repair. Earlier runs have recorded what
    earlier heartbeats reported.
    """
    known = _parse(run.store.get(run.layout.log_extents_key), run.layout.log_extents_key)
    beat = readable_heartbeat(run.store, run.layout, "archive")
    return replace(known, extents=widen(known.extents, () if beat is None else beat.extents))


def record_seen(
    run: Run, before: SeenLogs, ends: Ends, earlier: Ends, archived: Mapping[TopicPartition, int]
) -> SeenLogs:
    """Persist what a run has seen of the topic, with what logs have lost since ``before``, and return all of it.

    ``before`` must have been read before Kafka was asked for the ends. ``archived`` are the ends of the archived
    offsets. What is new in ``earlier`` topics, which the stream no longer reads, is not recorded: others may continue
    with them.
    """
    now = [
        LogRange(log=log, range=own)
        for log, found in ends.items()
        if (own := range_or_none(found.log_start, found.high_watermark)) is not None
    ]
    lost = _truncated(run, before, {**earlier, **ends}, archived)
    back = {item for item in before.truncated if _is_back(run, item, {**earlier, **ends})}

    def change(body: bytes | None) -> bytes | None:
        known = _parse(body, run.layout.log_extents_key)
        truncated = sorted({*known.truncated, *lost} - back, key=lambda item: (item.log, item.range))
        wider = SeenLogs(extents=widen(known.extents, before.extents, now), truncated=tuple(truncated))
        return None if wider == known else extents_json(wider)

    return _parse(run.store.update(run.layout.log_extents_key, change), run.layout.log_extents_key)


def _truncated(
    run: Run, before: SeenLogs, ends: Ends, archived: Mapping[TopicPartition, int]
) -> tuple[Truncation, ...]:
    """What the logs have lost from their ends since ``before``; each is logged as well."""
    lost = lost_ends(before, {log: found.high_watermark for log, found in ends.items()}, archived)
    if not lost:
        return ()
    leaders = LogEnds(run.settings.kafka).ask({item.log for item in lost})
    found = tuple(
        Truncation(
            log=item.log,
            range=item.range,
            archived=archived.get(item.log, ends[item.log].log_start),
            leader_epoch=leaders[item.log].leader_epoch,
        )
        for item in lost
    )
    for item in found:
        _logger.warning("%s", truncation_text(item), extra=log_range(item.log, item.range))
    return found


def _is_back(run: Run, lost: Truncation, ends: Ends) -> bool:
    """Whether Kafka has the records again: their leader epoch is lower than that of the leader without them.

    A broker that was just restarted may report an end for a moment that is too low.
    """
    if lost.leader_epoch is None or lost.log not in ends or ends[lost.log].high_watermark <= lost.range.start:
        return False
    # The first of them may be a transaction's marker, or compacted, and no client gets those.
    there = first_records(run.settings.kafka, {lost.log: lost.range.start}, committed=False).get(lost.log)
    return (
        there is not None
        and there.offset in lost.range
        and there.leader_epoch is not None
        and there.leader_epoch < lost.leader_epoch
    )


def _parse(body: bytes | None, key: str) -> SeenLogs:
    return SeenLogs() if body is None else parse_extents(body, where=key)
