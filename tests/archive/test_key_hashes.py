"""Sets of keys by hash give the same answers as sets of strings, with a few bytes per key."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.maintenance import key_hashes
from tidemark.maintenance.key_hashes import KeyHashes

some_keys = st.lists(st.text(max_size=3) | st.sampled_from("abcdef"), max_size=30)


@given(some_keys, some_keys)
def test_they_hold_and_subtract_what_sets_of_strings_do(one: list[str], other: list[str]) -> None:
    left = KeyHashes.of(one).without(KeyHashes.of(other))
    expected = set(one) - set(other)
    assert len(left) == len(expected)
    assert {key for key in {*one, *other, "never added"} if key in left} == expected


def test_a_key_that_hashes_like_one_of_the_others_is_missing_from_the_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_hashes, "_hash", len)
    left = KeyHashes.of(["aa", "b"]).without(KeyHashes.of(["cc"]))
    assert ("aa" in left, "b" in left) == (False, True)


def test_keys_take_some_tens_of_bytes_each_to_build_and_eight_to_keep() -> None:
    tracemalloc.start()
    try:
        held = KeyHashes.of(
            f"data/orders/partition=0/orders+0+{n:020}+{n + 1:020}+0000.parquet" for n in range(200_000)
        )
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(held) == 200_000
    assert kept < 200_000 * 10
    assert peak < 200_000 * 40
