"""Tidemark's entry in the key-value metadata of a data object's Parquet footer.

Two objects with the same footer were written from the same rows.
"""

import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import BotoCoreError, ClientError

from tidemark.core.codec import decode, encode
from tidemark.core.errors import ConflictError, FormatError
from tidemark.s3 import ObjectStore, error_code

METADATA_KEY = "tidemark"
# What pyarrow raises for Parquet with a changed byte, and for a column that is not there.
PARQUET_DAMAGE = (pa.ArrowException, UnicodeDecodeError, KeyError, OSError)
_TAIL_BYTES = 64 * 1024
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The entry's fields.

    - rows: number of rows.
    - first_offset: lowest offset of the rows.
    - last_offset: highest offset of the rows, inclusive.
    - checksum: checksum of the rows, as in the manifest.
    - settings: fingerprint of the archive settings that decide which rows share an object.
    - topic_id: Kafka's id of the topic. A recreated topic has another id.
    """

    rows: int
    first_offset: int
    last_offset: int
    checksum: str
    settings: str
    topic_id: str

    def metadata(self) -> dict[str, str]:
        """The entry as stored in Parquet; ``read_footer`` reads it back."""
        return {METADATA_KEY: json.dumps(encode(self), sort_keys=True)}

    def __str__(self) -> str:
        return f"{self.rows} rows, offsets {self.first_offset} to {self.last_offset}, checksum {self.checksum}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An existing object: footer, size in bytes, and the time of its write by the server's clock."""

    footer: Footer
    bytes: int
    modified: datetime


def read_footer(store: ObjectStore, key: str) -> Stored | None:
    """The object at the key, of which only the last bytes are read; None if there is none.

    Raises ConflictError if it is no file of the archive, ServiceError if S3 refuses.
    """
    found = _tail(store, key, _TAIL_BYTES)
    if found is None:
        return None
    tail, size, modified = found
    try:
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
            "an object that Tidemark did not write has a data file's key",
            expected=f"Parquet with {METADATA_KEY!r} in its footer",
            found=str(error) if isinstance(error, FormatError) else repr(error),
            where=f"s3://{store.bucket}/{key}",
        ) from error


def _tail(store: ObjectStore, key: str, size: int) -> tuple[bytes, int, datetime] | None:
    """The object's last bytes, its size, and the time of its write."""
    try:
        answer = store.ask(key, Range=f"bytes=-{size}")
        body = answer["Body"].read()
    except (ClientError, BotoCoreError) as error:
        if error_code(error) in {"NoSuchKey", "404"}:
            return None
        if error_code(error) in {"InvalidRange", "416"}:
            return b"", 0, datetime.max.replace(tzinfo=UTC)
        raise store.refused("get", key, error) from error
    return body, int(answer.get("ContentRange", f"/{len(body)}").rpartition("/")[2]), answer["LastModified"]
