"""The lease of a checkpoint: only the writer that started last may use it.

A lease is an object in the checkpoint's folder. Every start replaces it by a conditional write. The archive stream
checks it before and after it reads a batch, and before Spark may commit the batch. Between two checks it can do no
harm: a manifest is written once, lists what its writer read, and has the ranges of the write-ahead log. The speed
stream checks it every few seconds. Between two checks an at-least-once writer may repeat records, and an exactly-once
writer is fenced by its transactions.
"""

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tidemark.core.errors import ConflictError, DisplacedError, FormatError, ServiceError
from tidemark.core.manifest import canonical_json
from tidemark.s3 import ObjectStore, s3_client
from tidemark.settings import Settings

CHECK_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One start of a writer. ``epoch`` counts the checkpoint's starts; ``body`` is the lease object's content."""

    store: ObjectStore
    key: str
    epoch: int
    body: bytes

    @classmethod
    def take(cls, store: ObjectStore, checkpoint_prefix: str) -> "Lease":
        """Take the checkpoint from its current holder. Raises FormatError if the current lease does not parse."""
        key = f"{checkpoint_prefix}lease.json"
        where = f"s3://{store.bucket}/{key}"

        def change(found: bytes | None) -> bytes:
            epoch = 1 if found is None else _epoch(found, where=where) + 1
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            return canonical_json({"epoch": epoch, "holder": holder, "started_at": datetime.now(UTC).isoformat()})

        body = store.update(key, change) or b""
        return cls(store=store, key=key, epoch=_epoch(body, where=where), body=body)

    def check(self) -> None:
        """Raise DisplacedError if another writer has taken the checkpoint, ConflictError if the lease is missing."""
        found = self.store.get(self.key)
        if found == self.body:
            return
        where = f"s3://{self.store.bucket}/{self.key}"
        if found is None:
            raise ConflictError(
                "the checkpoint of a running stream was removed",
                expected=_describe(self.body),
                found="no lease",
                where=where,
                hint="Start the stream again: it starts as a stream without a checkpoint does",
            )
        raise DisplacedError(
            "another writer has taken the checkpoint",
            expected=_describe(self.body),
            found=_describe(found),
            where=where,
            hint="The writer that started last continues, and nothing is lost. A stream needs one writer: find out what"
            " started the other one, and start this one again only after that one is stopped",
        )


class LeasePoll:
    """Checks a lease every ``CHECK_S`` while the stream's main thread waits. Call it about every second.

    It raises as ``Lease.check``. If S3 does not answer, the next check decides, and the thread is not kept waiting.
    ``now``: check it, whenever the last check was.
    """

    def __init__(self, lease: Lease, settings: Settings) -> None:
        quick = ObjectStore(settings, s3_client(settings, attempts=1, read_timeout_s=10))
        self._lease = replace(lease, store=quick)
        self._checked_at = time.monotonic()

    def __call__(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._checked_at >= CHECK_S:
            self._checked_at = time.monotonic()
            with suppress(ServiceError):
                self._lease.check()


def _epoch(body: bytes, *, where: str) -> int:
    try:
        epoch = json.loads(body)["epoch"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError("not a lease", expected='{"epoch": …}', found=repr(body[:200]), where=where) from error
    if not isinstance(epoch, int):
        raise FormatError("not a lease's epoch", expected="a whole number", found=epoch, where=where)
    return epoch


def _describe(body: bytes) -> str:
    try:
        lease = json.loads(body)
        return f"{lease['holder']}, started {lease['started_at']}, start {lease['epoch']}"
    except (ValueError, KeyError, TypeError):
        return repr(body[:200])
