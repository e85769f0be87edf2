"""Offset ranges behave like Python's sets of integers."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.worlds import offsets, ranges, span
from tidemark.core.errors import PositionError
from tidemark.core.offsets import OffsetRange, count, normalise, range_or_none, subtract

many = st.lists(ranges(), max_size=10)


@settings(max_examples=500)
@given(many)
def test_normalised_ranges_are_the_union_sorted_disjoint_and_merged(items: list[OffsetRange]) -> None:
    merged = normalise(items)
    assert offsets(merged) == offsets(items)
    assert all(left.end < right.start for left, right in pairwise(merged))
    assert count(merged) == len(offsets(items))


@settings(max_examples=500)
@given(many, many)
def test_subtracting_ranges_is_the_difference_of_sets(universe: list[OffsetRange], taken: list[OffsetRange]) -> None:
    left = subtract(universe, taken)
    assert offsets(left) == offsets(universe) - offsets(taken)
    assert left == normalise(left)


@settings(max_examples=500)
@given(ranges(), ranges())
def test_the_intersection_of_two_ranges_is_that_of_their_sets(one: OffsetRange, other: OffsetRange) -> None:
    both = one.intersect(other)
    assert offsets([both] if both else []) == offsets([one]) & offsets([other])
    assert one.intersect(other) == other.intersect(one)


@settings(max_examples=200)
@given(ranges())
def test_a_range_holds_its_start_and_not_its_end(item: OffsetRange) -> None:
    assert item.start in item
    assert item.end not in item
    assert len(item) == len(offsets([item]))
    assert range_or_none(item.start, item.end) == item


@pytest.mark.parametrize(("start", "end"), [(3, 3), (5, 4), (-1, 2)])
def test_an_empty_backward_or_negative_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(PositionError):
        span(start, end)


def test_no_offsets_are_none_and_an_end_below_its_start_is_an_error() -> None:
    assert range_or_none(4, 4) is None
    with pytest.raises(PositionError, match="expected > 4, found 3"):
        range_or_none(4, 3)
