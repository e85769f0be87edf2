"""The lease of a checkpoint: only the writer that started last may use it.

A lease is an object in the checkpoint's folder. Every start replaces it by a conditional write. A writer checks it
before and after it reads a batch, and before Spark may commit the batch. Between two checks a writer can do no harm: a
manifest is written once, lists what its writer read, and has the ranges of the write-ahead log.
"""

import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.core.errors import ConflictError, FormatError
from tidemark.core.manifest import canonical_json
from tidemark.s3 import ObjectStore

# A try fails only if another writer starts at the same moment.
_TRIES = 10


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
        for _ in range(_TRIES):
            found = store.get(key)
            epoch = 1 if found is None else _epoch(found, where=f"s3://{store.bucket}/{key}") + 1
            started_at = datetime.now(UTC).isoformat()
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            body = canonical_json({"epoch": epoch, "holder": holder, "started_at": started_at})
            store.replace(key, body, expected=found)
            # The object decides, not the answer. A refusal may answer the repetition of a request that succeeded. And
            # S3Proxy, whose conditions are not atomic, may accept two writers at the same moment.
            if store.get(key) == body:
                return cls(store=store, key=key, epoch=epoch, body=body)
        raise ConflictError(
            "other writers keep taking a checkpoint",
            expected="a lease that stays for a moment",
            found=f"{_TRIES} others",
            where=f"s3://{store.bucket}/{key}",
            hint="Find out what starts this stream repeatedly, and stop all writers but one",
        )

    def check(self) -> None:
        """Raise ConflictError if another writer has taken the checkpoint, or if the lease is missing."""
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
                hint="Start the stream again: it reads the topic from its start, and planning trims the overlap",
            )
        raise ConflictError(
            "another writer has taken the checkpoint",
            expected=_describe(self.body),
            found=_describe(found),
            where=where,
            hint="The writer that started last continues, and nothing is lost. A stream needs one writer: find out what"
            " started the other one, and start this one again only after that one is stopped",
        )


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
