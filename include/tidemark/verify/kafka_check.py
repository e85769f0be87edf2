"""Which offsets of a day's proof are held against Kafka, and what comes of it: the checks ``kafka`` and ``holes``."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from tidemark.core.days import day_end, day_start
from tidemark.core.errors import ServiceError
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, subtract
from tidemark.core.seal import Seal, SealedLog
from tidemark.definitions.stream import Stream
from tidemark.kafka.positions import positions_at, watermarks
from tidemark.kafka.topics import logs_of
from tidemark.objects.bits import OffsetBits
from tidemark.settings import Settings
from tidemark.verify.archive import ArchiveReader, Derived
from tidemark.verify.claims import doubtful, proven_by_seal
from tidemark.verify.kafka_records import NAMED, Held, KafkaBacklog, LogSide, Moments, compare_with_kafka, spans
from tidemark.verify.result import ProofPart


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSide:
    """What is needed to ask Kafka: the archive's side and the two checks it fills."""

    settings: Settings
    stream: Stream
    seal: Seal
    reader: ArchiveReader
    archive: Derived
    kafka: ProofPart
    holes: ProofPart

    def compare(self, progress: Callable[[str], None]) -> None:
        """Every log's stretches. Kafka that does not answer leaves both checks unknown."""
        if self.archive.all_gone:
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
                        f"{log}: {found.unexplained:,} offsets have no row and nothing proves why: {named}"
                    )
            if self._stamp_tells:
                KafkaBacklog(
                    bootstrap=self.settings.kafka_bootstrap, held=held, archive=self.archive, progress=progress
                ).note(self._moments, self.kafka)
        except ServiceError as error:
            self.kafka.unknown.append(str(error))
            self.holes.unknown.append("Kafka does not answer")
            return
        told = f"{total.records:,} records at {total.offsets:,} offsets that Kafka still holds of the day"
        if not total.offsets:
            self.kafka.gone = any(map(len, self.archive.rows.values()))
            told = "nothing: retention took the day" if self.kafka.gone else "no row of the day to look for"
        self.kafka.looked_at = told
        self.holes.looked_at = f"{total.holes:,} offsets without a row among the day's"
        if total.sealed:
            self.holes.notes.append(f"{total.sealed:,} of them are past Kafka's retention: the seal's evidence stands")

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
            bootstrap=self.settings.kafka_bootstrap,
            log=log,
            held=held,
            lost=tuple(gap.range for gap in sealed.gaps) if sealed is not None else (),
            archived=partial(self._archived, log),
            proven=partial(proven_by_seal, sealed),
        )
        return compare_with_kafka(side, stretches, self.kafka, progress)

    def _stretches(self, log: TopicPartition, sealed: SealedLog | None, day: OffsetRange | None) -> OffsetSet:
        """Where the day's rows are; then what the seal proves of the offsets that Kafka stamped on the day, and where
        next to those it has holes itself that nothing explains: a record that the archive lacks may be at the day's
        very edge, or all that there is of the day in a log."""
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
    def _stamp_tells(self) -> bool:
        """Whether a record's stamp tells its day."""
        return self.stream.event_time.extractor == "record"

    @property
    def _moments(self) -> Moments:
        return day_start(self.seal.day, self.stream.zone), day_end(self.seal.day, self.stream.zone)

    def _day_in_kafka(self, held: dict[TopicPartition, OffsetRange]) -> dict[TopicPartition, OffsetRange]:
        """Per log from the first record stamped on the day or later to the first one stamped past it. One stamped in
        the future ends no day; in front of the day it hides where that begins, and a note says so."""
        if not held or not self._stamp_tells:
            return {}
        moments = (*self._moments, datetime.now(UTC))
        first, last, future = (positions_at(self.settings.kafka_bootstrap, tuple(held), moment) for moment in moments)
        found = {}
        for log, there in held.items():
            start, end = first[log], last[log]
            if start is not None and start == future[log]:
                self.kafka.notes.append(
                    f"{log}: the record at offset {start} is stamped in the future, so that Kafka can't tell by time"
                    " where the day's begin: they were looked for where the archive has some"
                )
                continue
            end = there.end if end is None or end == future[log] else min(end, there.end)
            if start is not None and start < end:
                found[log] = OffsetRange(start=start, end=end)
        return found

    def _held(self) -> dict[TopicPartition, OffsetRange]:
        """What Kafka holds of the stream's topic, and of others that the seal tells of."""
        bootstrap = self.settings.kafka_bootstrap
        sealed = {item.log for item in self.seal.logs}
        logs = [
            log
            for topic in sorted({self.stream.topic, *(log.topic for log in sealed)})
            for log in logs_of(bootstrap, topic)
            if topic == self.stream.topic or log in sealed
        ]
        return {
            mark.log: OffsetRange(start=mark.log_start, end=mark.high_watermark)
            for mark in watermarks(bootstrap, logs)
            if mark.log_start < mark.high_watermark
        }

    def _archived(self, log: TopicPartition, window: OffsetRange) -> OffsetBits:
        return self.reader.offsets(window, log, self.archive, self.kafka)
