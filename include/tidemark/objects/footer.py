"""What a data object says about itself, in its tail, where readers of its format pass over it.

Parquet: an entry of the footer's key-value metadata. gzip: a last, empty member whose extra field holds it (RFC 1952).
zstd: a skippable frame (RFC 8878). The last two are ``TRAILER_BYTES`` long, so one ranged read finds them.

Two objects of one key were written from the same rows if their footers are the same.
"""

import io
import json
import struct
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import BotoCoreError, ClientError

from tidemark.core.codec import decode, encode
from tidemark.core.errors import ConflictError, FormatError, ServiceError
from tidemark.s3 import ObjectStore, error_code

METADATA_KEY = "tidemark"
# What pyarrow raises for Parquet with a changed byte, and for a column that is not there.
PARQUET_DAMAGE = (pa.ArrowException, UnicodeDecodeError, KeyError, OSError)
TRAILER_BYTES = 1024
_TAIL_BYTES = 64 * 1024
_MAGIC = b"PAR1"
# Before and behind the text of a trailer. gzip: a header with an extra field, without time or name; in the field one
# entry of ours; an empty deflate block, its CRC and its length.
_GZIP_END = b"\x03\x00" + bytes(8)
_GZIP_TEXT = TRAILER_BYTES - 16 - len(_GZIP_END)
_GZIP_HEAD = struct.pack("<4sIBBH2sH", b"\x1f\x8b\x08\x04", 0, 0, 255, _GZIP_TEXT + 4, b"TM", _GZIP_TEXT)
_ZSTD_HEAD = struct.pack("<II", 0x184D2A57, TRAILER_BYTES - 8)
_TRAILERS = {".gz": (_GZIP_HEAD, _GZIP_END), ".zst": (_ZSTD_HEAD, b"")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """``settings`` is the fingerprint of the archive settings that cut the file; the offsets are inclusive.

    ``topic_id`` tells logs apart whose names are the same, after a topic was made again.
    """

    rows: int
    first_offset: int
    last_offset: int
    checksum: str
    settings: str
    topic_id: str

    def metadata(self) -> dict[str, str]:
        """The entry as Parquet keeps it."""
        return {METADATA_KEY: json.dumps(encode(self), sort_keys=True)}

    def trailer(self, suffix: str) -> bytes:
        """The last ``TRAILER_BYTES`` of an object whose key ends so: ``.gz`` or ``.zst``."""
        head, end = _TRAILERS[suffix]
        text = json.dumps({METADATA_KEY: encode(self)}, sort_keys=True).encode()
        size = TRAILER_BYTES - len(head) - len(end)
        if len(text) > size:
            raise ValueError(f"a footer of {len(text)} bytes is longer than {size}")
        return head + text.ljust(size) + end

    def __str__(self) -> str:
        return f"{self.rows} rows, offsets {self.first_offset} to {self.last_offset}, checksum {self.checksum}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An object that is there: its footer, its size in bytes and, by the server's clock, when it was written."""

    footer: Footer
    bytes: int
    modified: datetime


def read_footer(store: ObjectStore, key: str) -> Stored | None:
    """What is at the key, read from its tail alone; None where nothing is.

    Raises ConflictError for an object that is no file of the archive, ServiceError where S3 refuses.
    """
    trailer = next((suffix for suffix in _TRAILERS if key.endswith(suffix)), None)
    found = _tail(store, key, TRAILER_BYTES if trailer else _TAIL_BYTES)
    if found is None:
        return None
    tail, size, modified = found
    try:
        if trailer:
            return Stored(footer=parse_trailer(tail, trailer, where="tail"), bytes=size, modified=modified)
        needed = 8 + int.from_bytes(tail[-8:-4], "little")
        if tail[-4:] == _MAGIC and len(tail) < needed <= size:
            found = _tail(store, key, needed)
            if found is None:
                return None
            tail, size, modified = found
        raw = (pq.read_metadata(io.BytesIO(tail)).metadata or {})[METADATA_KEY.encode()]
        return Stored(footer=decode(Footer, json.loads(raw), where=key), bytes=size, modified=modified)
    except MemoryError:
        raise
    except (*PARQUET_DAMAGE, ValueError, FormatError) as error:
        raise ConflictError(
            "an object that Tidemark did not write is in the way",
            expected="Tidemark's trailer" if trailer else f"Parquet with {METADATA_KEY!r} in its footer",
            found=str(error) if isinstance(error, FormatError) else repr(error),
            where=f"s3://{store.bucket}/{key}",
        ) from error


def parse_trailer(tail: bytes, suffix: str, *, where: str) -> Footer:
    """What ``Footer.trailer`` made of it; raises FormatError for any other bytes."""
    head, end = _TRAILERS[suffix]
    if len(tail) != TRAILER_BYTES or not (tail.startswith(head) and tail.endswith(end)):
        raise FormatError(
            "a data object does not end in a trailer",
            expected=f"{TRAILER_BYTES} bytes from {head.hex()} on",
            found=f"{len(tail)} bytes from {tail[: len(head)].hex()} on",
            where=where,
        )
    try:
        raw = json.loads(tail[len(head) : len(tail) - len(end)])
    except ValueError as error:
        raise FormatError("a data object's trailer does not parse", found=repr(error), where=where) from error
    entry = raw.get(METADATA_KEY) if isinstance(raw, dict) else raw
    return decode(Footer, entry, where=where)


def _tail(store: ObjectStore, key: str, size: int) -> tuple[bytes, int, datetime] | None:
    """The object's last bytes, its whole size and when it was written."""
    try:
        answer = store.ask(key, Range=f"bytes=-{size}")
        body = answer["Body"].read()
    except ClientError as error:
        if error_code(error) in {"NoSuchKey", "404"}:
            return None
        if error_code(error) in {"InvalidRange", "416"}:
            return b"", 0, datetime.max.replace(tzinfo=UTC)
        raise _failed(store, key, error) from error
    except BotoCoreError as error:
        raise _failed(store, key, error) from error
    return body, int(answer.get("ContentRange", f"/{len(body)}").rpartition("/")[2]), answer["LastModified"]


def _failed(store: ObjectStore, key: str, error: Exception) -> ServiceError:
    code = error_code(error) if isinstance(error, ClientError) else type(error).__name__
    return ServiceError("S3 get failed", found=f"{code}: {error}", where=f"s3://{store.bucket}/{key}")
