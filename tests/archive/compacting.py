"""Small objects that compactions replace, and the deletion of those."""

from collections.abc import Callable
from datetime import datetime, timedelta

from tests.archive.small import NOW, ZONE, Small
from tests.conftest import unique
from tidemark.definitions.sections import Speed
from tidemark.definitions.stream import Stream
from tidemark.maintenance.compaction import Compaction
from tidemark.maintenance.replaced import Deleted, delete_replaced
from tidemark.s3 import ObjectStore

WEEK = timedelta(days=7)


def make(store: ObjectStore) -> Small:
    stream = Stream(
        name=unique("small"),
        topic="orders",
        time_zone=str(ZONE),
        value_schema="n INT",
        speed=Speed(topic="orders.live", dead_letter_topic="orders.dead"),
    )
    return Small(store=store, stream=stream)


def compaction(small: Small, now: datetime = NOW, progress: Callable[[int], object] = lambda _: None) -> Compaction:
    return Compaction(store=small.store, layout=small.layout, stream=small.stream, now=now, progress=progress)


def delete(small: Small, now: datetime, *, delete: bool = True) -> Deleted:
    return delete_replaced(small.store, small.layout, small.stream, now=now, delete=delete)
