"""Copies with holes and without: each offset from the densest copy of it, in the fewest parts."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.worlds import offsets, ranges, span
from tidemark.core.cover import Copy, CoverPart, best_cover, cover
from tidemark.core.offsets import OffsetRange

pytestmark = pytest.mark.conformance(14)


@st.composite
def copies(draw: st.DrawFn, limit: int = 16) -> Copy:
    item = draw(ranges(limit))
    # Mostly a third, a half or all of the offsets: equal densities of copies of any length.
    sixths = draw(st.sampled_from((0, 2, 3, 6, 6)))
    rows = draw(st.integers(0, len(item))) if draw(st.integers(0, 3)) == 0 else len(item) * sixths // 6
    return Copy(range=item, rows=rows)


few = st.lists(copies(), max_size=9)
targets = ranges(16) | st.just(span(0, 16))


def share(copy: Copy) -> Fraction:
    """How many rows it has per offset."""
    return Fraction(copy.rows, len(copy.range))


def best(archived: Sequence[Copy], offset: int) -> Fraction | None:
    """The share of the densest copy of an offset."""
    return max((share(copy) for copy in archived if offset in copy.range), default=None)


@settings(max_examples=800)
@given(targets, few)
def test_every_offset_any_copy_holds_comes_once_from_the_best_copy_of_it(
    target: OffsetRange, archived: list[Copy]
) -> None:
    parts = best_cover(target, archived)
    taken = {offset: archived[part.index] for part in parts for offset in offsets([part.range])}
    assert sum(len(part.range) for part in parts) == len(taken)
    assert [part.range for part in parts] == sorted(part.range for part in parts)
    assert taken.keys() == offsets([copy.range for copy in archived]) & offsets([target])
    for offset, copy in taken.items():
        assert offset in copy.range
        assert share(copy) == best(archived, offset)


@settings(max_examples=500)
@given(targets, few)
def test_complete_copies_are_used_as_if_there_were_no_others(target: OffsetRange, archived: list[Copy]) -> None:
    complete = [copy.range for copy in archived if share(copy) == 1]
    found = [part.range for part in best_cover(target, archived) if share(archived[part.index]) == 1]
    assert found == [part.range for part in cover(target, complete)]


@settings(max_examples=500)
@given(targets, few)
def test_between_better_copies_the_fewest_parts_of_equally_dense_ones_are_used(
    target: OffsetRange, archived: list[Copy]
) -> None:
    parts = [part for part in best_cover(target, archived) if share(archived[part.index]) < 1]
    for run in _runs(parts, archived):
        whole = span(run[0].range.start, run[-1].range.end)
        wanted = best(archived, whole.start)
        alike = [copy.range for copy in archived if share(copy) == wanted]
        fewest = next(
            size
            for size in range(1, len(alike) + 1)
            if any(offsets([whole]) <= offsets(chosen) for chosen in combinations(alike, size))
        )
        assert len(run) == fewest


def _runs(parts: Sequence[CoverPart], archived: Sequence[Copy]) -> list[list[CoverPart]]:
    """Adjacent parts that are equally dense, together."""
    found: list[list[CoverPart]] = []
    for part in parts:
        before = found[-1][-1] if found else None
        if (
            before is not None
            and before.range.end == part.range.start
            and archived[before.index].density == archived[part.index].density
        ):
            found[-1].append(part)
        else:
            found.append([part])
    return found


def test_a_complete_copy_is_taken_although_one_with_a_hole_reaches_farther() -> None:
    archived = [Copy(range=span(0, 20), rows=19), Copy(range=span(0, 9), rows=9)]
    assert best_cover(span(0, 20), archived) == (
        CoverPart(index=1, range=span(0, 9)),
        CoverPart(index=0, range=span(9, 20)),
    )


def test_a_copy_with_holes_continues_after_a_better_one_in_its_middle() -> None:
    archived = [Copy(range=span(0, 20), rows=10), Copy(range=span(5, 9), rows=4), Copy(range=span(12, 15), rows=2)]
    assert best_cover(span(0, 20), archived) == (
        CoverPart(index=0, range=span(0, 5)),
        CoverPart(index=1, range=span(5, 9)),
        CoverPart(index=0, range=span(9, 12)),
        CoverPart(index=2, range=span(12, 15)),
        CoverPart(index=0, range=span(15, 20)),
    )


def test_a_hundred_thousand_copies_with_holes_are_covered() -> None:
    archived = [Copy(range=span(at * 10, at * 10 + 25), rows=24 if at % 3 else 20) for at in range(100_000)]
    parts = best_cover(span(0, 1_000_015), archived)
    assert sum(len(part.range) for part in parts) == 1_000_015
    # Every third copy is the poorer one: its offsets are in a neighbour too, but for those at the very start.
    assert [archived[part.index].rows for part in parts].count(20) <= 2


@given(targets, few, st.data())
def test_a_preferred_copy_is_used_only_among_the_best_ones(
    target: OffsetRange, archived: list[Copy], data: st.DataObject
) -> None:
    numbers = st.sets(st.integers(0, max(len(archived) - 1, 0)))
    first = data.draw(numbers) & set(range(len(archived)))
    others = sorted(data.draw(numbers) & set(range(len(archived))))
    then = [
        CoverPart(index=others[part.index], range=part.range)
        for part in best_cover(span(0, 16), [archived[at] for at in others])
    ]
    parts = best_cover(target, archived, first=first, then=then)
    taken = {offset: part.index for part in parts for offset in offsets([part.range])}
    assert sum(len(part.range) for part in parts) == len(taken)
    assert [part.range for part in parts] == sorted(part.range for part in parts)
    assert taken.keys() == offsets([copy.range for copy in archived]) & offsets([target])
    before = {offset: part.index for part in then for offset in offsets([part.range])}
    for offset, number in taken.items():
        highest = best(archived, offset)
        assert share(archived[number]) == highest
        equal = {at for at, copy in enumerate(archived) if offset in copy.range and share(copy) == highest}
        if equal & first:
            assert number in first
        elif highest == 1 and before.get(offset) in equal:
            assert number == before[offset]
