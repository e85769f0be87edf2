"""A streaming query's checkpoint in S3: the ranges that Spark has planned, and the query's id."""

from dataclasses import dataclass

from tidemark.core.checkpoint import (
    INITIAL_OFFSETS,
    METADATA,
    batch_ranges,
    commit_name,
    offsets_name,
    parse_batch_time_us,
    parse_initial_offsets,
    parse_offsets,
    parse_query_id,
)
from tidemark.core.errors import FormatError
from tidemark.core.markers import CheckpointPosition
from tidemark.core.offsets import OffsetRange
from tidemark.s3 import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One query's checkpoint.

    Methods raise FormatError if a file is missing or does not parse, and ConflictError for another topic's positions.
    """

    store: ObjectStore
    prefix: str
    topic: str

    def writer(self) -> str | None:
        """The query's id; None before its first start."""
        body = self.store.get(self.prefix + METADATA)
        return None if body is None else parse_query_id(body, where=self._where(METADATA))

    def ranges(self, batch: int) -> dict[int, OffsetRange]:
        """The offsets of a batch by partition, from the write-ahead log."""
        return batch_ranges(self._start(batch), self._end(batch), where=self._where(offsets_name(batch)))

    def batch_time_us(self, batch: int) -> int:
        """When Spark planned the batch, in µs since the epoch; the same for every attempt."""
        name = offsets_name(batch)
        return parse_batch_time_us(self._body(name), where=self._where(name))

    def position(self) -> dict[int, int] | None:
        """Where the next or the interrupted batch starts, by partition; None before the first batch."""
        newest = self.newest()
        if newest is None:
            return None
        return self._end(newest) if self._is_done(newest) else self._start(newest)

    def at_start(self) -> CheckpointPosition | None:
        """The positions that a start of the query finds; None before the first batch."""
        newest = self.newest()
        if newest is None:
            return None
        end = self._end(newest)
        start = end if self._is_done(newest) else self._start(newest)
        return CheckpointPosition(initial=self.initial(), start=start, end=end)

    def interrupted(self) -> dict[int, OffsetRange]:
        """The offsets of the batch that began and was not committed, by partition; empty if there is none."""
        newest = self.newest()
        return {} if newest is None or self._is_done(newest) else self.ranges(newest)

    def initial(self) -> dict[int, int]:
        """Where the first batch starts, by partition; a partition that was added later starts at 0."""
        body = self._body(INITIAL_OFFSETS)
        return parse_initial_offsets(body, topic=self.topic, where=self._where(INITIAL_OFFSETS))

    def newest(self) -> int | None:
        """The last batch that Spark planned; None before the first one."""
        folder = f"{self.prefix}offsets/"
        names = (item.key.removeprefix(folder) for item in self.store.list(folder))
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _is_done(self, batch: int) -> bool:
        return self.store.get(self.prefix + commit_name(batch)) is not None

    def _start(self, batch: int) -> dict[int, int]:
        return self._end(batch - 1) if batch > 0 else self.initial()

    def _end(self, batch: int) -> dict[int, int]:
        name = offsets_name(batch)
        return parse_offsets(self._body(name), topic=self.topic, where=self._where(name))

    def _body(self, name: str) -> bytes:
        body = self.store.get(self.prefix + name)
        if body is None:
            raise FormatError(
                "a checkpoint is incomplete",
                expected=name,
                found="nothing",
                where=self._where(""),
                hint="Delete the whole checkpoint: the stream then reads the topic again, and plans trim the overlap",
            )
        return body

    def _where(self, name: str) -> str:
        return f"s3://{self.store.bucket}/{self.prefix}{name}"
