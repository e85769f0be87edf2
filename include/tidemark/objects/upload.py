"""Upload one object from memory: a small one in one conditional PUT, a large one in parts.

The object becomes visible when ``complete`` succeeds, with all its bytes, or never. It never replaces another one.
"""

from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from botocore.exceptions import BotoCoreError, ClientError

from tidemark.core.errors import ServiceError
from tidemark.definitions.sections import Storage
from tidemark.s3 import ObjectStore, error_code, write_if_absent

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

CONTENT_TYPE = "application/vnd.apache.parquet"
_MIN_PART_BYTES = 5 * 1024 * 1024  # S3's own limit for every part but the last
_MAX_PARTS = 10_000


def object_options(storage: Storage) -> dict[str, Any]:
    """The arguments of S3's PutObject and CreateMultipartUpload for these storage settings."""
    options = {
        "StorageClass": storage.storage_class,
        "Tagging": urlencode(storage.tags, quote_via=quote),
    }
    return {name: value for name, value in options.items() if value}


class Upload:
    """A write-only file. Memory: at most one part and the last ``write``.

    Methods raise ServiceError with the key and S3's code if the server refuses.
    """

    def __init__(self, store: ObjectStore, key: str, *, part_bytes: int, storage: Storage | None = None) -> None:
        if part_bytes < _MIN_PART_BYTES:
            raise ValueError(f"part_bytes must be at least {_MIN_PART_BYTES}, found {part_bytes}")
        self.key = key
        self._store = store
        self._part_bytes = part_bytes
        self._options = object_options(storage or Storage())
        self._buffer = bytearray()
        self._written = 0
        self._sha256 = sha256()
        self._upload_id: str | None = None
        self._parts: list[CompletedPartTypeDef] = []
        self._closed = False

    # The part of Python's file interface that pyarrow.PythonFile uses.

    @property
    def closed(self) -> bool:
        return self._closed

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Does nothing: a part is uploaded when it is full."""

    def write(self, data: bytes) -> int:
        self._buffer += data
        self._written += len(data)
        self._sha256.update(data)
        while len(self._buffer) > self._part_bytes:
            self._upload_part(self._part_bytes)
        return len(data)

    def close(self) -> None:
        """Abort the upload unless it was completed."""
        if not self._closed:
            self.abort()

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes written so far, in hex."""
        return self._sha256.hexdigest()

    @property
    def parts(self) -> int:
        """The number of parts uploaded so far; 0 for an object in one PUT."""
        return len(self._parts)

    def complete(self) -> bool:
        """Make the object visible; False if the key was taken, and then the upload is aborted.

        On any other failure the upload is aborted and the failure raised.
        """
        try:
            if self._upload_id is None:
                return self._put(bytes(self._buffer))
            self._upload_part(len(self._buffer))
            created = self._complete_parts(self._upload_id)
        except BaseException:
            self.abort()
            raise
        finally:
            self._closed = True
            self._buffer.clear()
        if not created:
            self.abort()
        return created

    def abort(self) -> None:
        """Drop the parts. Never raises, so that the failure that led here is reported.

        Parts on an unreachable server are invisible to readers, and maintenance removes them.
        """
        self._closed = True
        self._buffer.clear()
        if self._upload_id is not None:
            upload_id, self._upload_id = self._upload_id, None
            with suppress(ClientError, BotoCoreError):
                self._store.client.abort_multipart_upload(Bucket=self._store.bucket, Key=self.key, UploadId=upload_id)

    def _put(self, body: bytes) -> bool:
        try:
            return self._store.put_if_absent(self.key, body, content_type=CONTENT_TYPE, options=self._options)
        except ServiceError as error:
            if self._hint is None:
                raise
            raise ServiceError(error.problem, found=error.found, where=error.where, hint=self._hint) from error

    def _complete_parts(self, upload_id: str) -> bool:
        try:
            return write_if_absent(
                lambda: self._store.client.complete_multipart_upload(
                    Bucket=self._store.bucket,
                    Key=self.key,
                    UploadId=upload_id,
                    MultipartUpload={"Parts": self._parts},
                    IfNoneMatch="*",
                )
            )
        except (ClientError, BotoCoreError) as error:
            # A first attempt completed, and its answer was lost. The caller compares the object.
            if error_code(error) == "NoSuchUpload":
                return False
            raise self._store.refused("complete", self.key, error, hint=self._hint) from error

    def _upload_part(self, size: int) -> None:
        number = len(self._parts) + 1
        if number > _MAX_PARTS:
            raise ServiceError(
                "an object has too many parts",
                expected=f"at most {_MAX_PARTS}",
                found=f"{self._written} bytes in parts of {self._part_bytes}",
                where=self.key,
                hint="Raise archive.part_bytes or lower archive.max_bytes",
            )
        try:
            if self._upload_id is None:
                self._upload_id = self._store.client.create_multipart_upload(
                    Bucket=self._store.bucket, Key=self.key, ContentType=CONTENT_TYPE, **self._options
                )["UploadId"]
            with memoryview(self._buffer) as view:
                body = bytes(view[:size])
            answer = self._store.client.upload_part(
                Bucket=self._store.bucket, Key=self.key, UploadId=self._upload_id, PartNumber=number, Body=body
            )
        except (ClientError, BotoCoreError) as error:
            raise self._store.refused(f"upload of part {number}", self.key, error, hint=self._hint) from error
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        del self._buffer[:size]

    @property
    def _hint(self) -> str | None:
        """The settings of archive.storage, which a server may not support, or not allow the user."""
        asked = ", ".join(f"{name} {value}" for name, value in self._options.items())
        return f"archive.storage asks for {asked}" if asked else None
