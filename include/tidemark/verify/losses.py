"""Compare a seal's losses with Kafka, whose log must start after each of them."""

from tidemark.core.errors import ServiceError
from tidemark.core.loss_text import loss_text, truncation_text
from tidemark.core.offsets import count, subtract
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import logs_of
from tidemark.settings import Settings
from tidemark.verify.archive import Derived
from tidemark.verify.result import ProofPart


def compare_losses(settings: Settings, stream: Stream, seal: Seal, archive: Derived, check: ProofPart) -> None:
    """A loss holds if Kafka no longer has its offsets: its log starts after them, or was deleted.

    Each loss is noted. One that has been archived since holds too: the next run adds its records.
    """
    lost = [(item.log, gap) for item in seal.logs for gap in item.gaps]
    check.notes += (f"known loss: {truncation_text(item)}" for item in seal.truncated)
    check.derived_from = f"{count(gap.range for _, gap in lost):,} offsets lost, in {len(lost):,} ranges"
    if not lost:
        return
    kafka = settings.kafka
    try:
        logs = [log for topic in sorted({log.topic for log, _ in lost}) for log in logs_of(kafka, topic)]
        starts = {mark.log: mark.log_start for mark in watermarks(kafka, logs)}
    except ServiceError as error:
        check.unknown.append(str(error))
        return
    for log, gap in lost:
        start = starts.get(log)
        if start is not None and start < gap.range.end:
            check.differs(
                "Kafka still holds offsets that the seal calls lost",
                expected=f"a log that starts at {gap.range.end} or after",
                found=f"a log that starts at {start}",
                where=f"{log}, offsets {gap.range}",
            )
            continue
        since = start is None and not gap.topic_deleted
        deleted = "; its topic was deleted or recreated since, with all of its records" if since else ""
        check.notes.append(f"known loss: {loss_text(log, gap, stream.zone)}{deleted}")
        batches = archive.batches.get(log, {}).values()
        there = subtract([gap.range], subtract([gap.range], [one.range for own in batches for one in own.values()]))
        if there:
            named = ", ".join(map(str, there))
            check.notes.append(f"{log} {named} is archived by now: the next run of the day makes a version with it")
