"""Halving finds the first record that fails, in any number of logs, and stops when its time is up."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.worlds import log, span
from tidemark.core.first_failing import first_failing
from tidemark.core.plan import LogRange


def whole(end: int, *, partition: int = 0, start: int = 0) -> LogRange:
    return LogRange(log=log(partition), range=span(start, end))


def failing(bad: set[tuple[int, int]]) -> Callable[[LogRange], bool]:
    """Whether a range has one of these records, given as partition and offset."""
    return lambda part: any(part.log.partition == number and offset in part.range for number, offset in bad)


@given(st.sets(st.tuples(st.integers(0, 2), st.integers(5, 70)), min_size=1))
def test_it_is_the_lowest_offset_of_the_first_log_that_fails(bad: set[tuple[int, int]]) -> None:
    tried: list[LogRange] = []

    def fails(part: LogRange) -> bool:
        tried.append(part)
        return failing(bad)(part)

    found = first_failing([whole(71, partition=number, start=5) for number in range(3)], fails, lambda: True)
    number, offset = min(bad)
    assert found == whole(offset + 1, partition=number, start=offset)
    assert len(tried) <= number + 1 + 7 + 1  # a log each, its halves, and the record alone


def test_the_range_that_is_left_is_given_when_the_time_is_up() -> None:
    times = itertools.count()
    found = first_failing([whole(64)], failing({(0, 50)}), lambda: next(times) < 4)
    assert found == whole(56, start=48)


def test_nothing_is_named_where_no_range_fails_or_the_record_fails_only_sometimes() -> None:
    assert first_failing([whole(8)], lambda _: False, lambda: True) is None
    assert first_failing([whole(8)], failing({(0, 1)}), lambda: False) is None
    answers = itertools.chain([True], itertools.repeat(False))
    assert first_failing([whole(8)], lambda _: next(answers), lambda: True) is None


def test_an_error_of_a_try_ends_the_search() -> None:
    def fails(_: LogRange) -> bool:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        first_failing([whole(8)], fails, lambda: True)
