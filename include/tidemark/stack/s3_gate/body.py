"""A request's body: by its length, or in chunks."""

import re
from collections.abc import Iterator
from io import BufferedIOBase

from tidemark.stack.s3_gate.refusal import Refusal

CHUNK_BYTES = 256 * 1024
_HEX = re.compile(rb"[0-9a-fA-F]+")
# What the gate itself reads: a call of STS, or the keys of DeleteObjects.
MAX_READ_BYTES = 4 * 1024 * 1024


class RequestBody:
    """Reads a body once. Without a length and chunks there is none."""

    def __init__(self, source: BufferedIOBase, *, length: str | None, chunked: bool) -> None:
        self.chunked = chunked
        self._source = source
        self._left = int(length or 0)
        self._ended = False

    def chunks(self) -> Iterator[bytes]:
        """What is left of the body; raises ConnectionError if the client stops before its end."""
        if self.chunked:
            yield from self._framed()
            return
        while self._left:
            chunk = self._read(min(self._left, CHUNK_BYTES))
            self._left -= len(chunk)
            yield chunk

    def read_all(self) -> bytes:
        """The whole body; raises Refusal for one too large to read."""
        found = b""
        for chunk in self.chunks():
            found += chunk
            if len(found) > MAX_READ_BYTES:
                raise Refusal("InvalidArgument", "The body is too large for this call")
        return found

    def _framed(self) -> Iterator[bytes]:
        while not self._ended:
            size = self._source.readline(1024).partition(b";")[0].strip()
            if not _HEX.fullmatch(size):
                raise ConnectionError("the client ended within a body, or sent no chunks")
            left = int(size, 16)
            self._ended = left == 0
            while left:
                chunk = self._read(min(left, CHUNK_BYTES))
                left -= len(chunk)
                yield chunk
            self._source.readline(1024)  # the line's end after a chunk, or the end of a body without trailers

    def _read(self, size: int) -> bytes:
        chunk = self._source.read(size)
        if not chunk:
            raise ConnectionError("the client ended within a body")
        return chunk
