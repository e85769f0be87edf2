"""The bound on the folders of a batch, and the folder of the rows beyond it (pure)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.archive.write.folders import FolderBound, Key, overflow_folder
from tidemark.definitions.sections import DefaultPartitioner, FieldPartitioner, TimePartitioner

pytestmark = pytest.mark.conformance(34)

ROWS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abcdef")), min_size=1, max_size=30)


def filled(rows: list[tuple[int, str]], boundaries: set[int], most: int) -> list[Key]:
    """The key of each row of (partition, folder), given in chunks that end at the boundaries."""
    bound = FolderBound(most=most, overflow="o")
    found: list[Key] = []
    ends = sorted({end for end in boundaries if end < len(rows)} | {len(rows)})
    for start, end in zip([0, *ends], ends, strict=False):
        chunk: list[Key] = [("t", partition, folder) for partition, folder in rows[start:end]]
        keys = list(dict.fromkeys(chunk))
        distinct, codes = bound.apply(keys, np.array([keys.index(key) for key in chunk], dtype=np.int32))
        assert len(set(distinct)) == len(distinct)
        found += [distinct[code] for code in codes]
    return found


@given(rows=ROWS, one=st.sets(st.integers(1, 29)), other=st.sets(st.integers(1, 29)), most=st.integers(1, 7))
def test_the_first_folders_of_each_log_count_whatever_the_batches(
    rows: list[tuple[int, str]], one: set[int], other: set[int], most: int
) -> None:
    expected: list[Key] = []
    seen: dict[int, list[str]] = {0: [], 1: []}
    for partition, folder in rows:
        if folder not in seen[partition]:
            seen[partition].append(folder)
        expected.append(("t", partition, folder if folder in seen[partition][:most] else "o"))
    assert filled(rows, one, most) == filled(rows, other, most) == expected


def test_the_overflow_folder_has_the_levels_of_a_field_partitioners_folders() -> None:
    fields = FieldPartitioner(type="field", fields=("$.carrier", "$.trip['to']"))
    assert overflow_folder(fields) == "carrier=~overflow/trip%5B%27to%27%5D=~overflow"
    assert overflow_folder(TimePartitioner(type="time")) == overflow_folder(DefaultPartitioner()) == "~overflow"
