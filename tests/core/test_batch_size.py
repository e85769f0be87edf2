"""How many offsets a micro-batch reads."""

import pytest

from tidemark.core.batch_size import offsets_per_batch


@pytest.mark.parametrize(
    ("given", "partitions", "least", "expected"),
    [
        (None, 1, None, 1_000),
        (None, 3, None, 3_000),
        (None, 3, 2_999, 3_000),
        (None, 3, 5_000, 5_000),
        (7, 3, None, 7),
        (70_000, 3, 60_000, 70_000),
    ],
)
def test_a_batch_is_bounded_with_and_without_a_number_in_the_definition(
    given: int | None, partitions: int, least: int | None, expected: int
) -> None:
    assert offsets_per_batch(given, partitions=partitions, default=1_000, least=least) == expected
