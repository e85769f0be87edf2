"""Compare a day's offsets with Kafka: the checks ``kafka`` and ``holes``."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from tidemark.core.days import day_end, day_spans, day_start
from tidemark.core.errors import ServiceError
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, subtract
from tidemark.core.seal import Seal, SealedLog
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import positions_at, watermarks
from tidemark.kafka.topics import logs_of
from tidemark.settings import Settings
from tidemark.verify.archive import ArchiveReader, Derived
from tidemark.verify.claims import doubtful, proven_by_seal
from tidemark.verify.kafka_records import NAMED, Held, KafkaBacklog, LogSide, compare_with_kafka, spans
from tidemark.verify.result import ProofPart


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSide:
    """The archive's side, and the two checks to fill."""

    settings: Settings
    stream: Stream
    seal: Seal
    reader: ArchiveReader
    archive: Derived
    kafka: ProofPart
    holes: ProofPart

    def compare(self, progress: Callable[[str], None]) -> None:
        """Compare every log. If Kafka does not answer, both checks are unknown."""
        if self.archive.all_missing:
            for check in (self.kafka, self.holes):
                check.unknown.append("nothing of the day is left in the archive to compare with")
            return
        total = Held()
        try:
            held = self._held()
            days = self._day_in_kafka(held)
            sealed = {item.log: item for item in self.seal.logs}
            for log in sorted(self.archive.rows.keys() | sealed.keys()):
                found = self._compare_log(log, sealed.get(log), held.get(log), days.get(log), progress)
                total.add(found)
                if found.unexplained:
                    named = ", ".join(map(str, found.ranges[:NAMED]))
                    self.holes.unknown.append(
                        f"{log}: {found.unexplained:,} offsets have no row and no proven cause: {named}"
                    )
            if self._timestamp_decides:
                KafkaBacklog(kafka=self.settings.kafka, held=held, archive=self.archive, progress=progress).note(
                    day_spans(self.seal.day, self.stream.zone), self.kafka
                )
        except ServiceError as error:
            self.kafka.unknown.append(str(error))
            self.holes.unknown.append("Kafka does not answer")
            return
        source = (
            f"{total.records:,} records at {total.offsets:,} offsets that Kafka still holds of the day,"
            f" {total.compared:,} rows compared by offset and timestamp"
        )
        if not total.offsets:
            self.kafka.expired = any(map(len, self.archive.rows.values()))
            source = "nothing: retention deleted the day" if self.kafka.expired else "the day has no row to look for"
        self.kafka.derived_from = source
        self.holes.derived_from = f"{total.holes:,} offsets without a row among the day's"
        if total.sealed:
            self.holes.notes.append(f"{total.sealed:,} of them are past Kafka's retention: the seal's evidence counts")

    def _compare_log(
        self,
        log: TopicPartition,
        sealed: SealedLog | None,
        held: OffsetRange | None,
        day: OffsetRange | None,
        progress: Callable[[str], None],
    ) -> Held:
        stretches = self._stretches(log, sealed, day)
        if not stretches:
            return Held()
        side = LogSide(
            kafka=self.settings.kafka,
            log=log,
            held=held,
            lost=tuple(gap.range for gap in sealed.gaps) if sealed is not None else (),
            archived=partial(self.reader.rows, log=log, found=self.archive, check=self.kafka),
            proven=partial(proven_by_seal, sealed),
        )
        return compare_with_kafka(side, stretches, self.kafka, progress)

    def _stretches(self, log: TopicPartition, sealed: SealedLog | None, day: OffsetRange | None) -> OffsetSet:
        """The offsets of the day's rows; then the other offsets in the seal with a timestamp of the day; then unproven
        holes of the seal next to these. A record that the archive lacks may be the day's first, last or only one."""
        own = tuple(spans(self.archive.rows[log])) if log in self.archive.rows else ()
        if sealed is None:
            return own
        known = (*own, *([day] if day is not None else []))
        first, last = min((item.start for item in known), default=0), max((item.end for item in known), default=None)
        near = [item for item in doubtful(sealed) if last is None or (item.start <= last and item.end >= first)]
        wanted = normalise([*known, *near])
        unproven = subtract(wanted, [used.range for used in sealed.used])
        return (*own, *subtract(subtract(wanted, unproven), own))

    @property
    def _timestamp_decides(self) -> bool:
        """Whether a record's Kafka timestamp decides its day."""
        return self.stream.event_time.extractor == "record"

    def _day_in_kafka(self, held: dict[TopicPartition, OffsetRange]) -> dict[TopicPartition, OffsetRange]:
        """By log, the offsets from the first timestamp on or after the day to the first one after it.

        A record with a future timestamp ends no day. Before the day it hides the day's start, which is noted.
        """
        if not held or not self._timestamp_decides:
            return {}
        day, zone = self.seal.day, self.stream.zone
        moments = (day_start(day, zone), day_end(day, zone), datetime.now(UTC))
        first, last, future = (positions_at(self.settings.kafka, tuple(held), moment) for moment in moments)
        found = {}
        for log, there in held.items():
            start, end = first[log], last[log]
            if start is not None and start == future[log]:
                self.kafka.notes.append(
                    f"{log}: the record at offset {start} has a future timestamp, so Kafka can't find the day's first"
                    " record by time: only offsets near the archived ones were checked"
                )
                continue
            end = there.end if end is None or end == future[log] else min(end, there.end)
            if start is not None and start < end:
                found[log] = OffsetRange(start=start, end=end)
        return found

    def _held(self) -> dict[TopicPartition, OffsetRange]:
        """The offsets in Kafka of the stream's topic, and of other logs in the seal."""
        kafka = self.settings.kafka
        sealed = {item.log for item in self.seal.logs}
        logs = [
            log
            for topic in sorted({self.stream.topic, *(log.topic for log in sealed)})
            for log in logs_of(kafka, topic)
            if topic == self.stream.topic or log in sealed
        ]
        return {
            mark.log: OffsetRange(start=mark.log_start, end=mark.high_watermark)
            for mark in watermarks(kafka, logs)
            if mark.log_start < mark.high_watermark
        }
