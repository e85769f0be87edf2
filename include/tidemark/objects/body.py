"""An object's bytes as a stream, in bounded memory; after a broken connection it continues at the same byte."""

import io
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from tidemark.core.errors import ServiceError
from tidemark.s3 import ObjectStore, error_code

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from botocore.response import StreamingBody

READ_BYTES = 64 * 1024  # an unfinished read is lost with the connection
ATTEMPTS = 5  # without a byte between them; the client's own retries do not cover the body


class ObjectBody(io.RawIOBase):
    """Reads forward only. ``read`` raises ServiceError with the key and S3's code if the server refuses."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__()
        self.key = key
        self._store = store
        self._at = 0
        self._size: int | None = None
        self._etag = ""
        self._body: StreamingBody | None = None

    def open(self) -> bool:
        """Request the object; False if there is none. The first read does it too, but raises then."""
        try:
            self._connect()
        except ClientError as error:
            if error_code(error) in {"NoSuchKey", "404"}:
                return False
            raise self._failed(error) from error
        except BotoCoreError as error:
            raise self._failed(error) from error
        return True

    @property
    def etag(self) -> str:
        """The object's ETag, once it is open."""
        return self._etag.strip('"')

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        wanted = len(memoryview(buffer))
        for left in reversed(range(ATTEMPTS)):
            try:
                data = b"" if self._at == self._size else self._connect().read(min(wanted, READ_BYTES))
            except (ClientError, BotoCoreError, OSError) as error:
                self._drop()
                if not left:
                    raise self._failed(error) from error
                continue
            memoryview(buffer)[: len(data)] = data
            self._at += len(data)
            return len(data)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        self._drop()
        super().close()

    def _connect(self) -> "StreamingBody":
        if self._body is None:
            # If-Match: the rest must belong to the bytes read so far.
            rest: Any = {"Range": f"bytes={self._at}-", "IfMatch": self._etag} if self._size is not None else {}
            answer = self._store.ask(self.key, **rest)
            self._body = answer["Body"]
            if self._size is None:
                self._size, self._etag = answer["ContentLength"], answer["ETag"]
        return self._body

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None

    def _failed(self, error: Exception) -> ServiceError:
        code = error_code(error) if isinstance(error, ClientError) else type(error).__name__
        return ServiceError("S3 get failed", found=f"{code}: {error}", where=f"s3://{self._store.bucket}/{self.key}")
