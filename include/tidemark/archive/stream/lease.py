"""Who may write with a checkpoint: the one who started last.

A lease is an object in the checkpoint's folder, replaced by a conditional write at every start. A writer looks at it
before and after it reads a batch and before Spark may commit it. What a writer does between its last look and the next
can't do harm: a manifest is written once, says what its writer read, and has the ranges of the write-ahead log.
"""

import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.core.errors import ConflictError, FormatError
from tidemark.core.manifest import canonical_json
from tidemark.s3 import ObjectStore

# A try fails only when somebody else starts in the same instant.
_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One start of a writer. ``epoch`` counts the checkpoint's starts; ``body`` is the object that says so."""

    store: ObjectStore
    key: str
    epoch: int
    body: bytes

    @classmethod
    def take(cls, store: ObjectStore, checkpoint_prefix: str) -> "Lease":
        """Take the checkpoint over from whoever has it. Raises FormatError where its lease does not parse."""
        key = f"{checkpoint_prefix}lease.json"
        for _ in range(_TRIES):
            found = store.get(key)
            epoch = 1 if found is None else _epoch(found, where=f"s3://{store.bucket}/{key}") + 1
            started_at = datetime.now(UTC).isoformat()
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            body = canonical_json({"epoch": epoch, "holder": holder, "started_at": started_at})
            store.replace(key, body, expected=found)
            # What is there decides: a refusal may be the answer to a first try that went through, and S3Proxy, whose
            # conditions are not atomic, tells two writers at one instant that they won.
            if store.get(key) == body:
                return cls(store=store, key=key, epoch=epoch, body=body)
        raise ConflictError(
            "a checkpoint is taken over again and again",
            expected="a lease that stays for a moment",
            found=f"{_TRIES} others",
            where=f"s3://{store.bucket}/{key}",
            hint="Find out who starts this stream over and over, and stop all but one",
        )

    def check(self) -> None:
        """Raise ConflictError where the checkpoint is somebody else's by now, naming both, or is gone."""
        found = self.store.get(self.key)
        if found == self.body:
            return
        where = f"s3://{self.store.bucket}/{self.key}"
        if found is None:
            raise ConflictError(
                "the checkpoint was removed under a running stream",
                expected=_told(self.body),
                found="no lease",
                where=where,
                hint="Start the stream again: it reads the topic from its start, and planning trims the overlap",
            )
        raise ConflictError(
            "the checkpoint is another writer's now",
            expected=_told(self.body),
            found=_told(found),
            where=where,
            hint="The writer that started last goes on, and nothing is lost. A stream needs one: find out who started"
            " the other, and start this one again only when that one was stopped",
        )


def _epoch(body: bytes, *, where: str) -> int:
    try:
        epoch = json.loads(body)["epoch"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError("not a lease", expected='{"epoch": …}', found=repr(body[:200]), where=where) from error
    if not isinstance(epoch, int):
        raise FormatError("not a lease's epoch", expected="a whole number", found=epoch, where=where)
    return epoch


def _told(body: bytes) -> str:
    try:
        lease = json.loads(body)
        return f"{lease['holder']}, started {lease['started_at']}, start {lease['epoch']}"
    except (ValueError, KeyError, TypeError):
        return repr(body[:200])
