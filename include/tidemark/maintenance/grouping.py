"""Which adjacent ranges are compacted into one. Pure: values in, values out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark.core.layout import Layout
from tidemark.core.logged_record import LoggedRecord
from tidemark.core.manifest import DataFile, Replaced
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.sections import Archive

# A file is small if it has less than one in SMALL of archive.max_bytes. A group ends when its files reach max_bytes.
SMALL = 4
INPUTS_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A small complete range: its entry in the new manifest, its files, and its last record if Kafka gave it.

    ``day_settings`` decided the days of its rows.
    """

    replaced: Replaced
    files: tuple[DataFile, ...]
    last: LoggedRecord | None = None
    day_settings: str | None = None

    def replaced_as(self, etags: Mapping[str, str]) -> Replaced:
        """Its entry, with the ETags by key of the objects that were read."""
        files = tuple((key, checksum, etags[key]) for key, checksum, _ in self.replaced.files)
        return replace(self.replaced, files=files)

    @property
    def bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        """Rows of its files."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeGroup:
    """Adjacent ranges of one log and of equal day settings, in order, that are compacted into one."""

    inputs: tuple[Input, ...]

    @property
    def log(self) -> TopicPartition:
        """The log of all ranges."""
        return self.inputs[0].replaced.log

    @property
    def range(self) -> OffsetRange:
        """All ranges as one."""
        return OffsetRange(start=self.inputs[0].replaced.range.start, end=self.inputs[-1].replaced.range.end)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files of all ranges, in order."""
        return tuple(file for item in self.inputs for file in item.files)

    def by_path(self, layout: Layout) -> dict[str, list[DataFile]]:
        """The files of each folder, in offset order."""
        found: dict[str, list[DataFile]] = {}
        for file in sorted(self.files, key=lambda file: file.first_offset):
            found.setdefault(layout.parse_data_key(file.key).path, []).append(file)
        return dict(sorted(found.items()))


def group_inputs(inputs: Iterable[Input], archive: Archive, layout: Layout) -> Iterator[RangeGroup]:
    """Groups of adjacent inputs, which come log by log in offset order.

    A group must at least halve the number of files, as far as manifests show: files that the stream's settings make
    small stay small. A first range with more rows than all others together waits for a later group; otherwise the same
    rows would be rewritten every day. Rows count, not bytes: an object of one row is nearly as large as one of a
    hundred.
    """
    pending: list[Input] = []
    size = 0
    for item in inputs:
        if pending and (not _follows(pending[-1], item) or size >= archive.max_bytes or len(pending) == INPUTS_MAX):
            yield from _worth_it(pending, archive, layout)
            pending, size = [], 0
        pending.append(item)
        size += item.bytes
    yield from _worth_it(pending, archive, layout)


def _follows(before: Input, item: Input) -> bool:
    one, other = before.replaced, item.replaced
    adjacent = one.log == other.log and one.range.end == other.range.start
    return adjacent and before.day_settings == item.day_settings


def _worth_it(inputs: Sequence[Input], archive: Archive, layout: Layout) -> Iterator[RangeGroup]:
    left = sum(item.rows for item in inputs)
    first = 0
    while len(inputs) - first > 1 and 2 * inputs[first].rows > left:
        left -= inputs[first].rows
        first += 1
    if len(inputs) - first < 2:
        return
    group = RangeGroup(inputs=tuple(inputs[first:]))
    if 2 * sum(_files_needed(files, archive) for files in group.by_path(layout).values()) <= len(group.files):
        yield group


def _files_needed(files: Sequence[DataFile], archive: Archive) -> int:
    """The least number of files for one folder."""
    needed = -(-sum(file.rows for file in files) // archive.flush_size)
    if archive.rotate_interval_seconds is not None:
        span_us = max(file.max_timestamp_us for file in files) - min(file.min_timestamp_us for file in files)
        needed = max(needed, int(span_us / (archive.rotate_interval_seconds * 1_000_000)) + 1)
    return needed
