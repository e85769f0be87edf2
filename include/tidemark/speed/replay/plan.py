"""What a replay set out to do, kept in S3: which of two copies of a dead letter counts must not change when it resumes.

``checkpoints/<stream>/replay/<dead-letter topic id>/<number>.json`` is a plan, written before the first record of it is
delivered; ``<number>.done.json`` beside it says that all of it was.
"""

import json
import re
from dataclasses import dataclass

from tidemark.core.codec import decode, encode
from tidemark.core.errors import ConflictError, FormatError, PositionError
from tidemark.core.layout import Layout
from tidemark.core.manifest import canonical_json
from tidemark.core.offsets import TopicPartition
from tidemark.s3 import ObjectStore

_PLAN = re.compile(r"(?P<number>\d{6,})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRange:
    """Offsets ``start <= offset < until`` of one dead-letter log, to be replayed.

    ``first``: Kafka has no marker for what was before, because nothing was or because it expired since.
    """

    log: TopicPartition
    start: int
    until: int
    first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """One replay: ``number`` counts those of a stream and dead-letter topic, from 1."""

    stream: str
    number: int
    readings: tuple[ReplayRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlans:
    """The plans of one stream for one dead-letter topic, by its id: a topic made again begins anew."""

    store: ObjectStore
    prefix: str

    @classmethod
    def of(cls, store: ObjectStore, layout: Layout, topic_id: str) -> "ReplayPlans":
        return cls(store=store, prefix=f"{layout.checkpoint_prefix('replay')}{topic_id}/")

    def last(self) -> ReplayPlan | None:
        """The newest plan; None before the first. Raises FormatError for one that does not parse."""
        found = [item.key for item in self.store.list(self.prefix) if _PLAN.fullmatch(item.key[len(self.prefix) :])]
        if not found:
            return None
        body = self.store.get(found[-1])
        where = f"s3://{self.store.bucket}/{found[-1]}"
        try:
            raw = json.loads(body or b"")
        except ValueError as error:
            raise FormatError("a replay's plan does not parse", found=repr(error), where=where) from error
        return decode(ReplayPlan, raw, where=where)

    def begin(self, plan: ReplayPlan) -> None:
        """Write the plan; raises ConflictError where another replay wrote one of this number."""
        key, body = self._key(plan.number), canonical_json(encode(plan))
        self.store.put_if_absent(key, body)
        # What is there decides: the answer to a first try that went through may be lost.
        if (found := self.store.get(key)) != body:
            raise ConflictError(
                "another replay of this stream has just begun",
                expected=f"replay {plan.number} to be ours",
                found=(found or b"nothing").decode(errors="replace").strip(),
                where=f"s3://{self.store.bucket}/{key}",
                hint="Wait until that one has ended",
            )

    def is_done(self, plan: ReplayPlan) -> bool:
        return self.store.get(self._key(plan.number, ".done")) is not None

    def finish(self, plan: ReplayPlan) -> None:
        """Say that everything of the plan was delivered."""
        self.store.put(self._key(plan.number, ".done"), canonical_json({"number": plan.number}))

    def _key(self, number: int, suffix: str = "") -> str:
        return f"{self.prefix}{number:06}{suffix}.json"


def next_reading(log: TopicPartition, *, before: int | None, marker: int | None, end: int, where: str) -> ReplayRange:
    """What the next replay reads of a log: from where the last finished one ended (``before``; None: there was none).

    ``marker`` is Kafka's word on it, None where there is none; a finished replay makes up for that, because Kafka drops
    offsets that nobody commits for a week. Raises PositionError where the two disagree, or the log ends before them.
    """
    if before is not None and marker is not None and before != marker:
        raise PositionError(
            "a replay's marker was moved by somebody else",
            expected=f"offset {before}, where the last replay ended",
            found=f"offset {marker}",
            where=where,
            hint=f"Set the group's offset back to {before}: letters between the two would be replayed twice or never",
        )
    start = next((found for found in (marker, before) if found is not None), 0)
    if end < start:
        raise PositionError(
            "the dead-letter topic ends before what was replayed of it", expected=f">= {start}", found=end, where=where
        )
    return ReplayRange(log=log, start=start, until=end, first=marker is None)
