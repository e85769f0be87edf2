"""The metrics that Tidemark exports by OpenTelemetry, as values. ``tidemark.telemetry`` exports them."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

STREAM_ATTRIBUTES = ("tidemark.deployment", "tidemark.stream", "tidemark.layer")
STEP_ATTRIBUTES = ("tidemark.deployment", "tidemark.stream", "tidemark.step")


class Instrument(NamedTuple):
    """One metric; name and unit (UCUM) follow OpenTelemetry's conventions."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    about: str


Figures = Mapping[Instrument, float]

BATCHES = Instrument("tidemark.batches", "counter", "{batch}", "Batches committed")
RECORDS = Instrument("tidemark.records", "counter", "{record}", "Records committed")
DEAD_LETTERS = Instrument("tidemark.dead_letters", "counter", "{record}", "Records sent to the dead-letter topic")
IO = Instrument("tidemark.io", "counter", "By", "Bytes of the data objects committed")
FILES = Instrument("tidemark.files", "counter", "{file}", "Data objects committed")
OPEN_FILES = Instrument("tidemark.open_files", "gauge", "{file}", "Most files one task of the batch had open at once")
BATCH_DURATION = Instrument("tidemark.batch.duration", "histogram", "s", "Time per batch")
UPLOAD_DURATION = Instrument(
    "tidemark.s3.upload.duration", "histogram", "s", "Time per uploading call, retries included"
)
RETRIES = Instrument("tidemark.s3.retries", "counter", "{retry}", "S3 requests repeated")
OVERFLOW_ROWS = Instrument(
    "tidemark.overflow.records", "counter", "{record}", "Records in the overflow folder, beyond `archive.max_folders`"
)
OUT_OF_BOUNDS_ROWS = Instrument(
    "tidemark.out_of_bounds.records",
    "counter",
    "{record}",
    "Records whose time field lay beyond `event_time.max_distance_days`",
)
UNREADABLE_TIMES = Instrument(
    "tidemark.unreadable_times.records", "counter", "{record}", "Records whose time field has no time that can be read"
)
LAG_RECORDS = Instrument(
    "tidemark.lag.records", "gauge", "{record}", "Offsets between the position and the topic's end"
)
LAG_TIME = Instrument("tidemark.lag.time", "gauge", "s", "Age of the oldest unread record, 0 without one")
STREAM_INSTRUMENTS = (
    BATCHES,
    RECORDS,
    DEAD_LETTERS,
    IO,
    FILES,
    OPEN_FILES,
    BATCH_DURATION,
    UPLOAD_DURATION,
    RETRIES,
    OVERFLOW_ROWS,
    OUT_OF_BOUNDS_ROWS,
    UNREADABLE_TIMES,
    LAG_RECORDS,
    LAG_TIME,
)

# Every attempt of a step exports one value of each, so the sum of a metric's values over a time is the attempts' sum.
STEP_DURATION = Instrument("tidemark.step.duration", "gauge", "s", "Time of the attempt")
STEP_FAILED = Instrument("tidemark.step.failed", "gauge", "{attempt}", "1 if the attempt failed, 0 if it succeeded")
REFILLED_OFFSETS = Instrument(
    "tidemark.refill.offsets", "gauge", "{offset}", "Missing offsets fetched from Kafka, by step `refill`"
)
REFILL_LOST = Instrument(
    "tidemark.refill.lost", "gauge", "{offset}", "Offsets that retention deleted before step `refill` fetched them"
)
LOST_OFFSETS = Instrument(
    "tidemark.plan.lost", "gauge", "{offset}", "Lost offsets in the plan that step `finalize_plan` made"
)
ROWS_READ = Instrument("tidemark.rebuild.read", "gauge", "{record}", "Archived records that step `rebuild` read")
ROWS_PUBLISHED = Instrument("tidemark.rebuild.published", "gauge", "{record}", "Records in the days' new versions")
ROWS_QUARANTINED = Instrument(
    "tidemark.rebuild.quarantined", "gauge", "{record}", "Records in quarantine, of the days' new versions"
)
DUPLICATES_REMOVED = Instrument(
    "tidemark.rebuild.duplicates", "gauge", "{record}", "Records left out, because another one has the same key"
)
DAYS_HELD_BACK = Instrument(
    "tidemark.audit.held_back", "gauge", "{day}", "Days that keep their version, because they do not pass"
)
CHECKS_FAILED = Instrument("tidemark.audit.failed_checks", "gauge", "{check}", "Checks that did not pass")
DAYS_PUBLISHED = Instrument("tidemark.publish.days", "gauge", "{day}", "Days that step `publish` published")
DAYS_SEALED = Instrument("tidemark.seal.days", "gauge", "{day}", "Days that step `seal` sealed")
VERIFY_DIFFERENCES = Instrument(
    "tidemark.verify.differences", "gauge", "{difference}", "Differences between a day and its seal"
)
FILES_COMPACTED = Instrument(
    "tidemark.maintain.compacted", "gauge", "{file}", "Small data objects that a compaction replaced"
)
OBJECTS_DELETED = Instrument(
    "tidemark.maintain.deleted", "gauge", "{object}", "Replaced data objects that were deleted"
)
STEP_INSTRUMENTS = (
    STEP_DURATION,
    STEP_FAILED,
    REFILLED_OFFSETS,
    REFILL_LOST,
    LOST_OFFSETS,
    ROWS_READ,
    ROWS_PUBLISHED,
    ROWS_QUARANTINED,
    DUPLICATES_REMOVED,
    DAYS_HELD_BACK,
    CHECKS_FAILED,
    DAYS_PUBLISHED,
    DAYS_SEALED,
    VERIFY_DIFFERENCES,
    FILES_COMPACTED,
    OBJECTS_DELETED,
)
