"""How old an object must be before maintenance may touch it."""

from datetime import datetime, timedelta
from typing import Literal

ReplacedState = Literal["replaced", "young", "rewritten"]

# Younger objects may still be read or compared by running work.
MIN_AGE = timedelta(days=1)

# Replaced objects are kept for runs that were planned before the compaction.
KEPT_FOR = timedelta(days=7)

# No object is deleted until it is this old, by the server's time of its write. A key that was deleted may be in use
# again: a batch that has just written the object lists it in a manifest soon.
DELETED_AFTER = MIN_AGE + KEPT_FOR

# A deletion at the same time may not see the manifest of a batch. So a batch reuses no object that could reach the
# deletion's age before the manifest lists it. Two days allow for the duration of the batch and for clocks that differ.
REUSED_FOR = DELETED_AFTER - timedelta(days=2)


def replaced_object_state(
    *, modified: datetime, etag: str, replaced_etag: str, written_before: datetime
) -> ReplacedState:
    """Whether the object at a replaced object's key may be deleted: only if it is ``replaced``.

    ``young``: it was not ``written_before`` that moment, so it may belong to a batch without a manifest. ``rewritten``:
    it is another version than the one that was replaced.
    """
    if modified >= written_before:
        return "young"
    return "replaced" if etag == replaced_etag else "rewritten"
