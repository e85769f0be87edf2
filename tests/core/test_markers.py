"""The markers of an exactly-once stream at its start, for every kind of checkpoint: none ever moves backwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.markers import CheckpointPosition, MarkersAtStart, markers_at_start

pytestmark = pytest.mark.conformance(32)
LOGS = {0: (0, 90), 1: (5, 5)}  # the second has no records


def at(start: int, end: int, *, initial: int = 0) -> CheckpointPosition:
    """A checkpoint that knows partition 0 only."""
    return CheckpointPosition(initial={0: initial}, start={0: start}, end={0: end})


def found(
    to_set: dict[int, int] | None = None, *, missing: tuple[int, ...] = (), after: tuple[int, ...] = ()
) -> MarkersAtStart:
    return MarkersAtStart(to_set=to_set or {}, missing=missing, after=after)


@pytest.mark.parametrize(
    ("markers", "expected"),
    [
        ({}, found({0: 0, 1: 5})),
        ({0: 40, 1: 5}, found()),
        ({0: 40}, found({1: 5})),
        ({1: 5}, found(missing=(0,))),
    ],
    ids=["first start", "all there", "none without records", "one expired"],
)
def test_without_a_checkpoint_each_log_with_records_needs_a_marker_or_none_has_one(
    markers: dict[int, int], expected: MarkersAtStart
) -> None:
    for changed in (False, True):
        assert markers_at_start(LOGS, markers, None, from_at_least_once=changed) == expected


@pytest.mark.parametrize(
    ("markers", "checkpoint", "expected"),
    [
        ({0: 40, 1: 5}, at(40, 40), found()),
        ({0: 60, 1: 5}, at(40, 50), found()),  # the batch decides
        ({0: 40}, at(40, 40), found({1: 0})),
        ({1: 5}, at(40, 40), found(missing=(0,))),
        ({}, at(40, 40), found({1: 0}, missing=(0,))),
        ({1: 5}, at(40, 40, initial=40), found({0: 40})),
    ],
    ids=["all there", "an old copy", "a new partition", "one expired", "another deployment", "nothing delivered yet"],
)
def test_with_a_checkpoint_a_log_with_delivered_records_needs_its_marker(
    markers: dict[int, int], checkpoint: CheckpointPosition, expected: MarkersAtStart
) -> None:
    assert markers_at_start(LOGS, markers, checkpoint, from_at_least_once=False) == expected


@pytest.mark.parametrize(
    ("markers", "checkpoint", "expected"),
    [
        ({}, at(40, 40), found({0: 40, 1: 0})),
        ({0: 30, 1: 0}, at(40, 40), found({0: 40})),
        ({0: 45, 1: 0}, at(40, 50), found()),
        ({0: 51, 1: 0}, at(40, 50), found(after=(0,))),
        ({0: 41, 1: 0}, at(40, 40), found(after=(0,))),
        ({1: 0}, at(40, 40), found(missing=(0,))),
    ],
    ids=["first change", "forwards", "in the interrupted batch", "after it", "an old copy", "one expired"],
)
def test_after_at_least_once_delivery_markers_move_forwards_only(
    markers: dict[int, int], checkpoint: CheckpointPosition, expected: MarkersAtStart
) -> None:
    assert markers_at_start(LOGS, markers, checkpoint, from_at_least_once=True) == expected


offsets = st.integers(0, 30)


@given(
    logs=st.dictionaries(st.integers(0, 3), st.tuples(offsets, offsets).map(lambda ends: (min(ends), max(ends)))),
    markers=st.dictionaries(st.integers(0, 3), offsets),
    batch=st.none() | st.dictionaries(st.integers(0, 3), st.tuples(offsets, offsets, offsets).map(sorted)),
    changed=st.booleans(),
)
def test_a_start_that_is_not_refused_leaves_each_log_a_marker_that_did_not_move_back(
    *,
    logs: dict[int, tuple[int, int]],
    markers: dict[int, int],
    batch: dict[int, list[int]] | None,
    changed: bool,
) -> None:
    markers = {partition: marker for partition, marker in markers.items() if partition in logs}
    checkpoint = None
    if batch is not None:
        initial, start, end = ({number: ends[index] for number, ends in batch.items()} for index in range(3))
        checkpoint = CheckpointPosition(initial=initial, start=start, end=end)
    decided = markers_at_start(logs, markers, checkpoint, from_at_least_once=changed)
    if decided.missing or decided.after:
        assert set(decided.missing) <= logs.keys() - markers.keys()
        return
    after = {**markers, **decided.to_set}
    assert after.keys() == logs.keys()
    assert all(after[partition] >= marker for partition, marker in markers.items())
