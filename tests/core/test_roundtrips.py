"""Every name and value Tidemark persists reads back to what was written, and nothing else reads at all."""

import json
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.worlds import DAYS, World, log, manifest_of, seal_of, sealed_log, span, worlds
from tests.plans import make_plan
from tidemark.core.approval import Approval
from tidemark.core.codec import decode, encode
from tidemark.core.errors import FormatError, IncompleteError, PositionError
from tidemark.core.layout import DataName, Layout
from tidemark.core.manifest import parse_manifest
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import Plan, Truncation
from tidemark.core.seal import parse_seal

prefixes = st.sampled_from(["", "lake", "a/b"])
words = st.text("abcXYZ019._-", min_size=1, max_size=12)
layouts = st.builds(Layout, prefix=prefixes, stream=st.sampled_from(["flights", "a_1"]))
offset_numbers = st.integers(0, 2**63 - 2)


@st.composite
def wide_ranges(draw: st.DrawFn) -> OffsetRange:
    start = draw(offset_numbers)
    return span(start, draw(st.integers(start + 1, 2**63 - 1)))


names = st.builds(
    DataName,
    path=st.lists(words, min_size=1, max_size=3).map("/".join),
    topic=words,
    partition=st.integers(0, 10_000),
    range=wide_ranges(),
    seq=st.integers(0, 100_000),
)


@settings(max_examples=400)
@given(layouts, names)
def test_a_data_objects_key_reads_back(layout: Layout, name: DataName) -> None:
    assert layout.parse_data_key(layout.data_key(name)) == name


@settings(max_examples=200)
@given(layouts, words, st.lists(st.integers(0, 10**12 - 1), min_size=2, max_size=2))
def test_a_manifests_key_reads_back_and_sorts_by_batch(layout: Layout, writer: str, batches: list[int]) -> None:
    keys = [layout.manifest_key(writer, batch) for batch in batches]
    assert [layout.parse_manifest_key(key) for key in keys] == [(writer, batch) for batch in batches]
    assert (keys[0] < keys[1]) == (batches[0] < batches[1])


@settings(max_examples=200)
@given(layouts, st.dates(), st.integers(1, 9999), st.dates(), st.integers(1, 9999))
def test_a_seals_key_reads_back_and_sorts_by_day_and_version(
    layout: Layout, day: date, version: int, other_day: date, other_version: int
) -> None:
    key, other = layout.seal_key(day, version), layout.seal_key(other_day, other_version)
    assert layout.parse_seal_key(key) == (day, version)
    assert (key < other) == ((day, version) < (other_day, other_version))


@pytest.mark.parametrize(
    "key",
    [
        "data/flights/x/flights+0+00000000000000000000+00000000000000000010+0000.parquet/more",
        "data/flights/x/flights+0+0+10+0.parquet",
        "data/flights/x/flights+0+00000000000000000000+00000000000000000010+0000.json",
        "data/ferries/x/ferries+0+00000000000000000000+00000000000000000010+0000.parquet",
        "manifests/flights/a/000000000001.json",
        "data/flights/flights+0+00000000000000000000+00000000000000000010+0000.parquet",
    ],
)
def test_a_key_that_is_no_data_objects_is_refused_by_name(key: str) -> None:
    with pytest.raises(FormatError) as caught:
        Layout(prefix="", stream="flights").parse_data_key(key)
    assert key in str(caught.value)


@settings(max_examples=300)
@given(worlds())
def test_manifests_seals_and_plans_read_back_equal_and_to_the_same_bytes(world: World) -> None:
    for manifest in world.manifests:
        body = manifest.to_json()
        assert parse_manifest(body, where="here") == manifest
        assert parse_manifest(body, where="here").to_json() == body
    for seal in world.seals:
        assert parse_seal(seal.to_json(), where="here") == seal
        assert parse_seal(seal.to_json(), where="here").digest() == seal.digest()
    plan = make_plan(
        stream="flights",
        time_zone="America/New_York",
        run="run-1",
        requested=world.requested,
        targets=world.targets,
        manifests=world.manifests,
        seals=world.seals,
    )
    text = json.dumps(encode(plan))
    assert decode(Plan, json.loads(text), where="here") == plan


def damaged(body: bytes, path: tuple[str | int, ...], value: object) -> bytes:
    """The JSON with the value at ``path`` replaced, or removed where ``value`` is ``...``."""
    raw = json.loads(body)
    *parents, last = path
    at = raw
    for step in parents:
        at = at[step]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return json.dumps(raw).encode()


SEAL = seal_of(DAYS[0], [sealed_log(log(), 0, 10, [span(2, 4)])])


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), 99, "unknown seal format: expected 3, found 99"),
        (("format",), ..., "does not parse"),
        (("rows_read",), "1", r"expected int, found '1' \[seal.json.rows_read\]"),
        (("rows_read",), True, r"expected int, found True \[seal.json.rows_read\]"),
        (("day",), "2013-13-01", r"expected a date, found '2013-13-01' \[seal.json.day\]"),
        (("quality",), "fine", "expected one of passed, warnings, unchecked, found 'fine'"),
        (("run",), ..., "fields differ"),
        (("surprise",), 1, "fields differ"),
        (("logs",), {}, r"expected a list, found {} \[seal.json.logs\]"),
        (("logs", 0, "used", 0, "range"), [1], r"expected \[start, end\], found \[1\] \[seal.json.logs\[0\].used\[0\]"),
        (("logs", 0), [], r"expected an object, found \[\] \[seal.json.logs\[0\]\]"),
    ],
)
def test_a_damaged_seal_is_refused_by_field(path: tuple[str | int, ...], value: object, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_seal(damaged(SEAL.to_json(), path, value), where="seal.json")


def test_a_seal_with_an_approval_or_a_lost_end_has_its_own_format_and_others_stay_as_they_were() -> None:
    raw = json.loads(SEAL.to_json())
    assert (raw["format"], "approval" in raw) == (1, False)
    approved = replace(SEAL, approval=Approval(by="anna", at_us=7, words="a holiday"))
    raw = json.loads(approved.to_json())
    assert (raw["format"], raw["approval"]) == (2, {"by": "anna", "at_us": 7, "words": "a holiday"})
    assert "truncated" not in raw
    lost = Truncation(log=log(), range=span(10, 15), archived=8, leader_epoch=None)
    truncated = [replace(seal, truncated=(lost,)) for seal in (SEAL, approved)]
    raw = json.loads(truncated[0].to_json())
    assert (raw["format"], raw["approval"], len(raw["truncated"])) == (3, None, 1)
    for seal in (SEAL, approved, *truncated):
        assert parse_seal(seal.to_json(), where="here") == seal


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'"text"', b"\xff"])
def test_what_is_no_object_is_no_manifest_or_seal(body: bytes) -> None:
    for parse in (parse_manifest, parse_seal):
        with pytest.raises(FormatError, match="here"):
            parse(body, where="here")


@pytest.mark.parametrize("value", [[], None, "text", 7, {}])
def test_what_is_no_plan_is_refused_by_its_place(value: object) -> None:
    with pytest.raises(FormatError, match="here"):
        decode(Plan, value, where="here")


def test_a_manifest_of_another_format_is_refused_by_both_numbers() -> None:
    manifest = manifest_of("a", 0, {log(): span(0, 3)}, {log(): (DAYS[0],) * 3}, "whole")
    with pytest.raises(FormatError, match=r"expected 3, found 4 \[m.json\]"):
        parse_manifest(damaged(manifest.to_json(), ("format",), 4), where="m.json")


def test_a_manifest_has_the_bytes_of_format_1_without_day_settings_and_format_2_with_them() -> None:
    before = manifest_of("a", 0, {log(): span(0, 3)}, {log(): (DAYS[0],) * 3}, "whole")
    after = replace(before, day_settings="event_time.extractor=record, time_zone=UTC")
    assert json.loads(before.to_json()) == {
        **{key: value for key, value in json.loads(after.to_json()).items() if key != "day_settings"},
        "format": 1,
    }
    assert json.loads(after.to_json())["format"] == 2
    for manifest in (before, after):
        assert parse_manifest(manifest.to_json(), where="m.json") == manifest


@pytest.mark.conformance(76)
@pytest.mark.parametrize("day_settings", [None, "event_time.extractor=record_field, time_zone=UTC"])
def test_only_a_manifest_with_unreadable_times_has_format_3_and_says_how_many_per_day(day_settings: str | None) -> None:
    days = (DAYS[0], DAYS[0], DAYS[1])
    without = manifest_of("a", 0, {log(): span(0, 3)}, {log(): days}, "whole")
    (file,) = without.files
    first, second = file.days
    counted = replace(file, days=(replace(first, unreadable_times=2), replace(second, unreadable_times=0)))
    manifest = replace(without, files=(counted,), day_settings=day_settings)
    raw = json.loads(manifest.to_json())
    assert (raw["format"], raw["day_settings"]) == (3, day_settings)
    assert [rows.get("unreadable_times") for _, rows in sorted(raw["files"][0]["days"].items())] == [2, 0]
    read = parse_manifest(manifest.to_json(), where="m.json")
    assert (read, read.files[0].unreadable_times) == (manifest, 2)
    assert read.to_json() == manifest.to_json()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([(0, 10)], "do not reach its end: expected 30, found 10"),
        ([(5, 30)], r"do not tile its log: expected 0, found \[5, 30\)"),
        ([(0, 10), (12, 30)], r"do not tile its log: expected 10, found \[12, 30\)"),
        ([(0, 10), (8, 30)], r"do not tile its log: expected 10, found \[8, 30\)"),
        ([], "do not reach its end: expected 30, found 0"),
    ],
)
def test_a_seal_whose_ranges_do_not_tile_its_log_is_refused(parts: list[tuple[int, int]], message: str) -> None:
    whole = sealed_log(log(), 0, 30)
    (used,) = whole.used
    with pytest.raises(PositionError, match=message):
        replace(whole, used=tuple(replace(used, range=span(*part)) for part in parts))


def test_a_seal_does_not_take_a_gap_that_kafka_still_holds() -> None:
    (gap,) = SEAL.logs[0].gaps
    with pytest.raises(IncompleteError, match=r"\[2, 4\) \[flights-0\]"):
        replace(SEAL.logs[0], gaps=(replace(gap, kind="refill"),))


def test_a_seal_whose_rows_are_not_conserved_is_refused() -> None:
    with pytest.raises(IncompleteError, match="expected 10 rows read, found 7 published \\+ 2 quarantined"):
        replace(SEAL, rows_read=10, rows_published=7, rows_quarantined=2)


def test_a_second_version_names_the_first_ones_digest_and_a_first_version_names_none() -> None:
    second = replace(SEAL, version=2, previous=SEAL.digest())
    assert parse_seal(second.to_json(), where="here").previous == SEAL.digest()
    for version, previous in ((1, SEAL.digest()), (2, None)):
        with pytest.raises(PositionError, match="chains to the version before"):
            replace(SEAL, version=version, previous=previous)
