"""What compactions replaced is deleted: when it is old, of the version that was replaced, and held by others."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from hashlib import md5
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.archive.compacting import WEEK, compaction, delete, make
from tests.archive.small import NOW
from tests.conftest import unique
from tidemark.core.errors import ServiceError
from tidemark.maintenance.replaced import Deleted, delete_replaced
from tidemark.s3 import ObjectInfo, ObjectStore
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(53)

YOUNG = "are too young to delete"
DAY_ONE, DAY_TWO = date(2013, 1, 14), date(2013, 1, 15)


def test_replaced_objects_are_deleted_after_a_week_if_others_hold_their_rows(store: ObjectStore) -> None:
    small = make(store)
    small.path = lambda _: "p"
    inputs = [small.commit(start, start + 2).files[0] for start in range(0, 8, 2)]
    compaction(small).run()
    (made,) = small.compactions()
    refilled = small.commit(2, 4, writer="refill-1")  # of the same range: the same object
    assert refilled.files[0].key == inputs[1].key
    assert delete(small, NOW + WEEK - timedelta(seconds=1)) == Deleted(waiting=4)

    key = made.files[0].key
    body = small.store.get(key)
    assert body is not None
    for wrong, problem in ((None, f"{key} is missing"), (small.store.get(inputs[0].key), f"{key} has ")):
        small.store.delete(key)
        if wrong is not None:
            small.store.put(key, wrong)
        found = delete(small, NOW + WEEK)
        assert (found.objects, [(item.range.start, item.writer) for item in found.kept]) == (
            0,
            [(start, "query-a") for start in (0, 2, 4, 6)],
        )
        assert f"no complete range in use has [0, 2); {problem}" in found.kept[0].why
    small.store.put(key, body)
    # Compaction found a changed byte that size and footer do not show.
    found = delete_replaced(
        small.store, small.layout, small.stream, now=NOW + WEEK, delete=True, unfit={key: "a byte of it differs"}
    )
    assert (found.objects, found.kept[0].why) == (0, "no complete range in use has [0, 2); a byte of it differs")

    shown = delete(small, NOW + WEEK, delete=False)
    assert len(small.objects()) == 5
    deleted = delete(small, NOW + WEEK)
    assert deleted == shown
    assert (deleted.objects, deleted.bytes) == (3, sum(inputs[number].bytes for number in (0, 2, 3)))
    assert [str(item) for item in deleted.kept] == [
        f"orders-0 [2, 4), batch 1 of writer query-a: a range in use lists {inputs[1].key}"
    ]
    assert small.objects().keys() == {key, inputs[1].key}
    assert delete(small, NOW + WEEK) == Deleted(kept=deleted.kept)
    # The deleted objects were replaced, so nothing is lost.
    assert small.ranges_in_use() == [(0, 8), (2, 4)]


@pytest.mark.conformance(31)
def test_an_object_uploaded_again_after_its_deletion_stays_for_its_manifest(store: ObjectStore) -> None:
    """The checkpoint was lost: a new writer archives the same range, and maintenance runs before its manifest."""
    small = make(store)
    small.path = lambda _: "p"
    today = datetime.now(UTC)
    for start in range(0, 8, 2):
        small.commit(start, start + 2, at=today - timedelta(days=20))
    compaction(small, today - timedelta(days=10)).run()
    assert delete(small, today) == Deleted(waiting=4)  # written too recently
    assert delete(small, today + timedelta(days=9)).objects == 4

    files = small.upload(2, 4)
    found = delete(small, today + timedelta(hours=1))
    small.list_files(2, 4, files, writer="query-b")

    assert found == Deleted(waiting=1)
    assert [small.rows(file.key) for file in files] == [small.expected(range(2, 4))]
    kept = delete(small, today + timedelta(days=9))
    assert (kept.objects, [item.why for item in kept.kept]) == (0, [f"a range in use lists {files[0].key}"])


@pytest.mark.conformance(31)
def test_an_object_is_deleted_only_as_the_version_that_was_replaced(store: ObjectStore) -> None:
    small = make(store)
    small.path = lambda _: "p"
    first, second, *_ = [small.commit(start, start + 2).files[0] for start in range(0, 8, 2)]
    compaction(small).run()
    etags = {key: etag for item in small.compactions()[0].replaces for key, _, etag in item.files}
    assert etags == {item.key: item.etag for item in small.store.list(small.layout.data_prefix) if item.key in etags}
    body = small.store.get(second.key)
    assert body is not None
    small.store.put(first.key, body)

    found = delete(small, NOW + WEEK)

    assert (found.objects, [item.why for item in found.kept]) == (
        3,
        [f"{first.key} was written again since the compaction read it"],
    )
    assert small.store.get(first.key) == body


@pytest.mark.conformance(31)
def test_an_object_replaced_during_the_deletion_is_compared_once_more(settings: Settings) -> None:
    class LongAgo(ObjectStore):
        """A listing of a month ago."""

        def list(self, prefix: str, *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
            for item in super().list(prefix, after=after, limit=limit):
                yield replace(item, modified=item.modified - timedelta(days=30))

    small = make(LongAgo(settings))
    small.path = lambda _: "p"
    today = datetime.now(UTC)
    for start in range(0, 8, 2):
        small.commit(start, start + 2, at=today - timedelta(days=20))
    compaction(small, today - timedelta(days=10)).run()
    assert delete(small, today, delete=False).objects == 4
    assert delete(small, today).objects == 0  # all four have been written since the listing
    assert len(small.objects()) == 5


def test_a_delete_is_conditional_on_the_version(settings: Settings) -> None:
    store = ObjectStore(settings)
    key = f"{unique('conditional')}/object"
    store.put(key, b"new")
    sent: list[str] = []
    store.client.meta.events.register(
        "before-send.s3.DeleteObject", lambda request, **_: sent.append(request.headers["If-Match"].decode())
    )
    found = store.find(key)
    assert found is not None
    assert (found.size, found.etag) == (3, md5(b"new", usedforsecurity=False).hexdigest())
    deleted = store.delete_version(key, "0" * 32)
    assert (sent, deleted, store.get(key)) == ([f'"{"0" * 32}"'], False, b"new")
    assert store.delete_version(key, found.etag)
    assert store.find(key) is None


@pytest.mark.parametrize(("code", "status"), [("NotImplemented", 501), ("", 501), ("AccessDenied", 403)])
def test_a_server_that_refuses_the_condition_deletes_without_it(code: str, status: int) -> None:
    sent: list[bool] = []

    class Server:
        meta = SimpleNamespace(endpoint_url="http://s3")

        def delete_object(self, *, Bucket: str, Key: str, IfMatch: str | None = None) -> None:  # noqa: N803 - boto3's
            assert (Bucket, Key) == ("lake", "old")
            sent.append(IfMatch is not None)
            if IfMatch is not None:
                answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
                raise ClientError(answer, "DeleteObject")

    server: Any = Server()
    store = ObjectStore(SimpleNamespace(bucket="lake"), server)  # type: ignore[arg-type]
    if status == 501:
        assert store.delete_version("old", "etag")
        assert sent == [True, False]
    else:
        with pytest.raises(ServiceError, match="AccessDenied"):
            store.delete_version("old", "etag")
        assert sent == [True]


def test_damage_in_a_compacted_object_keeps_the_objects_that_it_replaced(store: ObjectStore) -> None:
    small = make(store)
    small.path = lambda _: "p"
    for start in range(0, 8, 2):
        small.commit(start, start + 2)
    compaction(small).run()
    ((made,),) = (item.files for item in small.compactions())
    body = small.store.get(made.key)
    assert body is not None
    seen = small.objects().keys()
    small.store.put(made.key, body[:60] + bytes([body[60] ^ 1]) + body[61:])  # far before the footer

    found = delete(small, NOW + WEEK)

    assert (found.objects, small.objects().keys()) == (0, seen)
    assert [item.range.start for item in found.kept] == [0, 2, 4, 6]
    assert f"; {made.key} does not hold the rows in its manifest, of checksum {made.checksum}: " in str(found.kept[0])
    small.store.put(made.key, body)
    assert delete(small, NOW + WEEK).objects == 4
