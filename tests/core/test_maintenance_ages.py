"""Which objects at a replaced object's key may be deleted."""

from datetime import UTC, datetime, timedelta

import pytest

from tidemark.core.maintenance_ages import REUSED_FOR, replaced_object_state

NOW = datetime(2025, 6, 30, tzinfo=UTC)
EIGHT_DAYS = timedelta(days=8)
SECOND = timedelta(seconds=1)


@pytest.mark.conformance(53)
@pytest.mark.parametrize(
    ("age", "etag", "expected"),
    [
        (EIGHT_DAYS + SECOND, "a", "replaced"),
        (EIGHT_DAYS, "a", "young"),
        (timedelta(0), "a", "young"),
        (timedelta(0), "b", "young"),
        (-SECOND, "a", "young"),  # the server's clock is ahead
        (EIGHT_DAYS + SECOND, "b", "rewritten"),
    ],
)
def test_only_an_old_object_of_the_replaced_version_may_be_deleted(age: timedelta, etag: str, expected: str) -> None:
    found = replaced_object_state(
        modified=NOW - age, etag=etag, replaced_etag="a", written_before=NOW - timedelta(days=8)
    )
    assert found == expected


def test_no_batch_reuses_an_object_that_a_deletion_may_soon_take() -> None:
    assert timedelta(days=8) - REUSED_FOR == timedelta(days=2)
