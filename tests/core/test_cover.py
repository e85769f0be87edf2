"""Conformance 14: the cover is disjoint, complete, minimal, and equals the naive set difference."""

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.worlds import offsets, ranges, span
from tidemark.core.cover import CoverPart, cover, overlaps
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import Overlap

pytestmark = pytest.mark.conformance(14)

many = st.lists(ranges(), max_size=12)
few = st.lists(ranges(12), max_size=7)
# Short ranges make chains of many links, in which the choice of one link decides what later ones lose.
short = st.lists(
    st.builds(lambda start, size: span(start, start + size), st.integers(0, 11), st.integers(1, 4)), max_size=9
)


def covered(parts: Sequence[CoverPart]) -> list[tuple[int, OffsetRange]]:
    return [(part.index, part.range) for part in parts]


@settings(max_examples=600)
@given(ranges(), many)
def test_a_cover_is_disjoint_in_order_and_holds_what_the_ranges_hold(
    target: OffsetRange, archived: list[OffsetRange]
) -> None:
    parts = cover(target, archived)
    assert sum(len(part.range) for part in parts) == len(offsets([part.range for part in parts]))
    assert [part.range.start for part in parts] == sorted(part.range.start for part in parts)
    assert offsets([part.range for part in parts]) == offsets(archived) & offsets([target])
    for part in parts:
        assert part.range.intersect(archived[part.index]) == part.range
    assert len({part.index for part in parts}) == len(parts)


@settings(max_examples=600)
@given(ranges(12) | st.just(span(0, 12)), few | short)
@example(span(0, 9), [span(0, 5), span(0, 3), span(3, 6), span(5, 9), span(6, 9)])
@example(span(0, 9), [span(0, 3), span(3, 6), span(2, 7), span(5, 9)])
def test_a_cover_takes_the_fewest_ranges_and_among_those_trims_the_fewest(
    target: OffsetRange, archived: list[OffsetRange]
) -> None:
    wanted = offsets(archived) & offsets([target])
    sizes = (
        [_trims(target, chosen) for chosen in combinations(archived, size) if offsets(chosen) & wanted == wanted]
        for size in range(len(archived) + 1)
    )
    best_size, best_trims = next((size, min(trims)) for size, trims in enumerate(sizes) if trims)
    parts = cover(target, archived)
    assert len(parts) == best_size
    assert sum(part.range != archived[part.index] for part in parts) == best_trims


def _trims(target: OffsetRange, chosen: Sequence[OffsetRange]) -> int:
    """How many of the ranges lose offsets when each starts after the one before it."""
    trims, position = 0, target.start
    for item in sorted(chosen):
        trims += item.start < position or item.end > target.end
        position = max(position, item.end)
    return trims


@settings(max_examples=400)
@given(ranges(), many)
def test_overlaps_are_the_offsets_held_twice_or_more_with_their_number_of_copies(
    target: OffsetRange, archived: list[OffsetRange]
) -> None:
    found = overlaps(target, archived)
    naive = {offset: sum(offset in item for item in archived) for offset in range(target.start, target.end)}
    assert {offset: item.copies for item in found for offset in range(item.range.start, item.range.end)} == {
        offset: copies for offset, copies in naive.items() if copies > 1
    }
    assert sum(len(item.range) for item in found) == len(offsets([item.range for item in found]))
    for item in found:
        assert sum(item.range.intersect(other) == item.range for other in archived) == item.copies


def test_adjacent_ranges_tile_without_a_seam() -> None:
    assert covered(cover(span(0, 9), [span(3, 9), span(0, 3)])) == [(1, span(0, 3)), (0, span(3, 9))]


def test_a_nested_range_is_left_out() -> None:
    assert covered(cover(span(0, 9), [span(2, 5), span(0, 9)])) == [(1, span(0, 9))]


def test_an_overlap_trims_the_later_range_at_the_end_of_the_earlier_one() -> None:
    assert covered(cover(span(0, 9), [span(0, 5), span(3, 9)])) == [(0, span(0, 5)), (1, span(5, 9))]


def test_of_two_covers_of_the_same_size_the_one_that_needs_no_trimming_is_taken() -> None:
    archived = [span(0, 5), span(0, 3), span(3, 9)]
    assert covered(cover(span(0, 9), archived)) == [(1, span(0, 3)), (2, span(3, 9))]


def test_a_cover_continues_after_a_gap() -> None:
    assert covered(cover(span(0, 9), [span(1, 3), span(5, 6)])) == [(0, span(1, 3)), (1, span(5, 6))]


def test_no_range_covers_nothing() -> None:
    assert cover(span(0, 9), []) == ()
    assert overlaps(span(0, 9), []) == ()


def test_three_copies_of_a_middle_are_split_where_the_third_one_ends() -> None:
    archived = [span(0, 10), span(2, 8), span(4, 6)]
    assert overlaps(span(0, 10), archived) == (
        Overlap(range=span(2, 4), copies=2),
        Overlap(range=span(4, 6), copies=3),
        Overlap(range=span(6, 8), copies=2),
    )


def test_a_hundred_thousand_overlapping_ranges_are_covered() -> None:
    archived = [span(at * 10, at * 10 + 25) for at in range(100_000)]
    parts = cover(span(0, 1_000_015), archived)
    found = overlaps(span(0, 1_000_015), archived)
    # Two steps of 10 fit into 25 offsets, three do not: every second range is needed, and the last one.
    assert len(parts) == 50_001
    # Every step of 10 from the third on has 5 offsets with three copies and then some with two; the second has two.
    assert len(found) == 2 * 99_998 + 1
