"""Read columns of a data object in batches, without Spark and without loading the whole object.

A small object takes one request. Of a large one the footer is read first, then the requested columns of each row group.
"""

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import BotoCoreError, ClientError

from tidemark.core.errors import FormatError, ServiceError
from tidemark.core.manifest import DataFile
from tidemark.core.offsets import OffsetRange
from tidemark.objects.bits import OffsetBits
from tidemark.objects.checksum import RowChecksum
from tidemark.objects.footer import PARQUET_DAMAGE
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore, error_code

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TAIL_BYTES = 4 * 1024 * 1024
BATCH_ROWS = 65_536


def object_batches(
    store: ObjectStore, key: str, columns: Sequence[str], see_etag: Callable[[str], object] = lambda _: None
) -> Iterator[pa.RecordBatch] | None:
    """The object's rows in order, as batches of these columns; None if there is no object.

    ``see_etag`` is called first, with the ETag of the version that all rows are from.

    Raises FormatError with the key if the object is damaged or lacks a column, and ServiceError if S3 refuses.
    """
    body = _SeekableBody(store, key)
    if not body.open():
        return None
    see_etag(body.etag)
    return _parquet(body, columns)


def checksum_of_rows(store: ObjectStore, key: str) -> str:
    """The checksum of an object's current rows; for an unreadable object the error's text, which equals no checksum.

    Raises ServiceError if S3 refuses. Memory: one batch.
    """
    checksum = RowChecksum(SCHEMA.names)
    try:
        for batch in object_batches(store, key, SCHEMA.names) or ():
            checksum.add(batch)
    except FormatError as error:
        return str(error)
    return checksum.value


def object_sha256(store: ObjectStore, key: str) -> str:
    """SHA-256 of an object's bytes, in hex; that of no bytes if there is no object.

    Raises ServiceError if S3 refuses. Memory: one read.
    """
    body, found = _SeekableBody(store, key), hashlib.sha256()
    if body.open():
        while data := body.read(TAIL_BYTES):
            found.update(data)
    return found.hexdigest()


def archived_offsets(store: ObjectStore, files: Sequence[DataFile], within: OffsetRange) -> OffsetBits | None:
    """The offsets inside ``within`` that the files have rows of; None if a file is missing."""
    found = OffsetBits(within)
    for file in files:
        if file.first_offset >= within.end or file.last_offset < within.start:
            continue
        batches = object_batches(store, file.key, ["offset"])
        if batches is None:
            return None
        for batch in batches:
            found.add(batch.column(0).to_numpy())
    return found


def _parquet(body: "_SeekableBody", columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    try:
        file = pq.ParquetFile(pa.PythonFile(body, mode="r"), pre_buffer=True, page_checksum_verification=True)
        schema = file.schema_arrow
        for name in columns:  # pages have checksums, but the footer with the types has none
            if schema.field(name).type != SCHEMA.field(name).type:
                raise FormatError(
                    f"column {name} of a data object has another type",
                    expected=SCHEMA.field(name).type,
                    found=schema.field(name).type,
                    where=body.key,
                )
        for group in range(file.num_row_groups):  # one at a time: read-ahead would load the whole object
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(columns)):
                yield batch.select(list(columns))
    except MemoryError:  # Arrow's own is one of the errors below, but it is no damage
        raise
    except PARQUET_DAMAGE as error:
        if body.failure is not None:
            raise body.failure from error
        raise FormatError(
            "a data object does not read as Parquet", expected=", ".join(columns), found=repr(error), where=body.key
        ) from error


class _SeekableBody(io.RawIOBase):
    """An object with random access; its last bytes are kept, so a small object is read once."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__()
        self.key = key
        self.failure: ServiceError | None = None  # Arrow keeps only an error's text
        self._store = store
        self._at = 0
        self._size = 0
        self.etag = ""
        self._tail = b""

    def open(self) -> bool:
        """Request the object's last bytes; False if there is no object."""
        try:
            answer, self._tail = self._get(f"bytes=-{TAIL_BYTES}")
        except (ClientError, BotoCoreError) as error:
            if error_code(error) in {"NoSuchKey", "404"}:
                return False
            if error_code(error) not in {"InvalidRange", "416"}:  # an empty object
                raise self._store.refused("get", self.key, error) from error
        else:
            self.etag = answer["ETag"].strip('"')
            self._size = int(answer.get("ContentRange", f"/{len(self._tail)}").rpartition("/")[2])
        return True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: "WriteableBuffer") -> int:
        end = min(self._at + len(memoryview(buffer)), self._size)
        if end <= self._at:
            return 0
        kept_from = self._size - len(self._tail)
        if self._at >= kept_from:
            data = self._tail[self._at - kept_from : end - kept_from]
        else:
            try:
                # If-Match: all reads must be of the same object.
                _, data = self._get(f"bytes={self._at}-{end - 1}", IfMatch=f'"{self.etag}"')
            except (ClientError, BotoCoreError) as error:
                self.failure = self._store.refused("get", self.key, error)
                raise self.failure from error
        memoryview(buffer).cast("B")[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _get(self, span: str, **options: Any) -> tuple[Any, bytes]:
        answer = self._store.ask(self.key, Range=span, **options)
        return answer, answer["Body"].read()
