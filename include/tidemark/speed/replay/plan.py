"""The plan of a replay, kept in S3: a resumed replay must select the same copies of dead letters.

``checkpoints/<stream>/replay/<dead-letter topic id>/<number>.json`` is a plan, written before its first record is
delivered. ``<number>.done.json`` is written after its last one.
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
from tidemark.speed.exactly_once.marker import TaskRange

_PLAN = re.compile(r"(?P<number>\d{6,})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """One replay of dead letters. ``number`` counts the replays of a stream and dead-letter topic, from 1.

    A range is ``first`` if Kafka has no marker of an earlier replay: there was none, or the marker expired.
    """

    stream: str
    number: int
    ranges: tuple[TaskRange, ...]


class ReplayPlans:
    """The plans of one stream for one dead-letter topic id. A recreated topic has none."""

    def __init__(self, store: ObjectStore, layout: Layout, topic_id: str) -> None:
        self.store, self.prefix = store, f"{layout.checkpoint_prefix('replay')}{topic_id}/"

    def last(self) -> ReplayPlan | None:
        """The newest plan, None before the first. Raises FormatError if it does not parse."""
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
        """Write the plan. Raises ConflictError if another replay wrote one of this number."""
        key, body = self._key(plan.number), canonical_json(encode(plan))
        self.store.put_if_absent(key, body)
        # The stored object decides: a first attempt may have succeeded although its answer was lost.
        if (found := self.store.get(key)) != body:
            raise ConflictError(
                "another replay of this stream has just started",
                expected=f"replay {plan.number} of this process",
                found=(found or b"nothing").decode(errors="replace").strip(),
                where=f"s3://{self.store.bucket}/{key}",
                hint="Wait until the other replay has ended",
            )

    def is_done(self, plan: ReplayPlan) -> bool:
        return self.store.get(self._key(plan.number, ".done")) is not None

    def finish(self, plan: ReplayPlan) -> None:
        self.store.put(self._key(plan.number, ".done"), canonical_json({"number": plan.number}))

    def _key(self, number: int, suffix: str = "") -> str:
        return f"{self.prefix}{number:06}{suffix}.json"


def next_range(
    log: TopicPartition, *, number: int, before: int | None, marker: int | None, end: int, where: str
) -> TaskRange:
    """The range of a log that replay ``number`` reads.

    It starts where the last finished replay ended: ``before``, or None if there was none. ``marker`` is Kafka's copy of
    that offset. It may be None, because Kafka deletes offsets that were not committed for a week. Raises PositionError
    if both exist and differ, or if the log ends before them.
    """
    if before is not None and marker is not None and before != marker:
        raise PositionError(
            "another program moved a replay's marker",
            expected=f"offset {before}, where the last replay ended",
            found=f"offset {marker}",
            where=where,
            hint="A replay from there would deliver dead letters twice or never. Set the marker back:"
            f" tidemark markers STREAM --replay --set {log.partition}={before}",
        )
    start = next((found for found in (marker, before) if found is not None), 0)
    if end < start:
        raise PositionError(
            "the dead-letter topic ends before the last replayed offset", expected=f">= {start}", found=end, where=where
        )
    return TaskRange(log=log, start=start, until=end, batch=number, first=marker is None)
