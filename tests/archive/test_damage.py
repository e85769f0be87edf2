"""Parquet objects with a changed bit give typed rows or an explained error."""

import io
import random
from typing import Any

import pytest

from tests.archive.small import NOW, ZONE, Small
from tests.conftest import unique
from tidemark.core.errors import TidemarkError
from tidemark.definitions.sections import Speed
from tidemark.definitions.stream import Stream
from tidemark.objects.columns import object_batches
from tidemark.objects.footer import read_footer
from tidemark.objects.schema import SCHEMA
from tidemark.s3 import ObjectStore

pytestmark = pytest.mark.conformance(53)


class OneObject(ObjectStore):
    """A bucket that has these bytes under every key, and answers only ranged reads."""

    def __init__(self, body: bytes) -> None:
        self.bucket = "memory"
        self._body = body

    def ask(self, key: str, **options: Any) -> Any:
        start, _, end = options["Range"].removeprefix("bytes=").partition("-")
        found = self._body[int(start) : int(end) + 1] if start else self._body[-int(end) :]
        whole = f"bytes 0-0/{len(self._body)}"
        return {"Body": io.BytesIO(found), "ETag": key, "ContentRange": whole, "LastModified": NOW}


def test_a_changed_bit_in_an_objects_footer_gives_an_explained_error_or_typed_rows(
    store: ObjectStore,
) -> None:
    speed = Speed(topic="orders.live", dead_letter_topic="orders.dead")
    stream = Stream(name=unique("small"), topic="orders", time_zone=str(ZONE), value_schema="n INT", speed=speed)
    small = Small(store=store, stream=stream, path=lambda _: "p")
    good = store.get(small.commit(0, 20).files[0].key)
    assert good is not None
    footer_bytes = int.from_bytes(good[-8:-4], "little") + 8
    chance = random.Random(2013)  # noqa: S311 - cases, no secrets
    errors: list[TidemarkError] = []
    read = 0
    for _ in range(2_500):
        body = bytearray(good)
        body[-chance.randrange(footer_bytes) - 1] ^= 1 << chance.randrange(8)
        damaged = OneObject(bytes(body))
        try:
            batches = object_batches(damaged, "data/object.parquet", SCHEMA.names)
            assert batches is not None
            for batch in batches:
                assert batch.schema.types == SCHEMA.types
                read += 1
        except TidemarkError as error:
            errors.append(error)
        try:
            read_footer(damaged, "data/object.parquet")
        except TidemarkError as error:
            errors.append(error)
    assert all("data/object.parquet" in str(error) for error in errors)
    causes = {type(error.__cause__).__name__ for error in errors}
    # The chosen bits caused every error type that pyarrow is known to raise.
    assert causes >= {"ArrowInvalid", "ArrowNotImplementedError", "UnicodeDecodeError", "OSError", "NoneType"}
    assert read > 500  # many bits change nothing that is read
