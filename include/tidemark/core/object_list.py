"""The list of the archive's objects that a version of a day was read from: what is hashed, and kept beside the seals.

One line per object, sorted by key: the SHA-256 of its bytes in hex, its size in bytes, its key. The fields are
separated by one space, and every line ends with a line feed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from hashlib import sha256

from tidemark.core.plan import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """The list of the objects that the day's rows were read from. The list itself is in S3, by its digest.

    - count: number of objects.
    - bytes: their size together.
    - sha256: SHA-256 of the list, in hex.
    """

    count: int
    bytes: int
    sha256: str


def day_objects(slices: Iterable[Slice], day: date) -> tuple[ObjectList, bytes]:
    """The objects of a plan's slices that may have rows of the day, and their list."""
    found = {item.key: item for item in slices if any(rows.day == day for rows in item.rows)}
    objects = [found[key] for key in sorted(found)]
    body = "".join(f"{item.sha256} {item.bytes} {item.key}\n" for item in objects).encode()
    total = sum(item.bytes for item in objects)
    return ObjectList(count=len(objects), bytes=total, sha256=sha256(body).hexdigest()), body
