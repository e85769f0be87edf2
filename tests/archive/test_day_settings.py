"""Manifests have the keys that decided the days of their rows, and ledger and compactions keep them (no server)."""

from dataclasses import replace
from typing import Any

import pytest

from tests.archive.test_grouping import grouped, inputs
from tests.core.worlds import DAYS, LAYOUT, ZONE, log, manifest_of, span
from tests.upgrades.kept import Kept, kept_versions
from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import merge_tables
from tidemark.archive.ledger.segment import Segment, Tables, parse_segment
from tidemark.archive.manifests import commit_batch
from tidemark.core.manifest import Manifest, parse_manifest
from tidemark.definitions.sections import FieldTime, Speed
from tidemark.definitions.stream import Stream

pytestmark = pytest.mark.conformance(68)

SPEED = Speed(topic="flights.live", dead_letter_topic="flights.dead")
BY_RECORD = Stream(name="flights", topic="flights", value_schema="n INT", speed=SPEED, time_zone=ZONE)


class Bucket:
    """As much of a store as a first commit needs."""

    bucket = "bucket"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def put_if_absent(self, key: str, body: bytes) -> bool:
        return self.objects.setdefault(key, body) is body

    def list(self, prefix: str, *, after: str) -> list[Any]:
        assert not any(key.startswith(prefix) for key in self.objects if key > after)
        return []


def by_field(**keys: Any) -> Stream:
    time = FieldTime.model_validate({"extractor": "record_field", "field": "$.at", **keys})
    return BY_RECORD.model_copy(update={"event_time": time})


def manifest(batch: int, start: int, settings: str | None) -> Manifest:
    made = manifest_of("stream", batch, {log(): span(start, start + 3)}, {log(): (DAYS[0],) * 20}, "whole")
    return replace(made, day_settings=settings)


def stored(tables: Tables) -> Tables:
    """The tables after they were written as a segment and read again."""
    segment = Segment(
        stream="flights",
        time_zone=ZONE,
        number=1,
        previous=None,
        manifests=1,
        positions={},
        broken_links=(),
        tables=tables,
    )
    return parse_segment(segment.to_bytes(), stream="flights", time_zone=ZONE, where="a segment").tables


def settings_of(*parts: Tables) -> list[str | None]:
    return [item.day_settings for item in History(parts).overlapping(log(), span(0, 20))]


def test_the_settings_of_a_stream_are_the_keys_that_decide_days_as_a_text() -> None:
    assert BY_RECORD.day_settings == "event_time.extractor=record, time_zone=America/New_York"
    assert by_field(max_distance_days=30).day_settings == (
        "event_time.extractor=record_field, event_time.field=$.at, event_time.format=iso8601,"
        " event_time.max_distance_days=30, time_zone=America/New_York, value_format=json"
    )


def test_each_key_that_can_move_a_record_to_another_day_changes_the_text() -> None:
    base = by_field()
    avro = base.model_copy(update={"value_format": "avro"})
    texts = [
        BY_RECORD.day_settings,
        base.day_settings,
        by_field(max_distance_days=1).day_settings,
        by_field(field="$.b").day_settings,
        by_field(format="epoch_ms").day_settings,
        base.model_copy(update={"renamed": {"at": ("was",)}}).day_settings,
        base.model_copy(update={"time_zone": "UTC"}).day_settings,
        avro.with_avro_schemas("one").day_settings,
        avro.with_avro_schemas("one", "two").day_settings,
    ]
    assert len(set(texts)) == len(texts)


def test_keys_that_only_decide_objects_do_not_change_the_text() -> None:
    archive = BY_RECORD.archive.model_copy(update={"flush_size": 7})
    assert BY_RECORD.model_copy(update={"archive": archive}).day_settings == BY_RECORD.day_settings
    assert by_field(on_unreadable="reject", unreadable_alarm_share=0.5).day_settings == by_field().day_settings


def test_a_batch_is_committed_with_the_keys_that_decided_its_days() -> None:
    store: Any = Bucket()
    for batch, own in enumerate((None, "imported")):
        commit_batch(
            store,
            LAYOUT,
            BY_RECORD,
            writer=f"writer-{batch}",
            batch=0,
            ranges={log(): span(0, 3)},
            files=(),
            now_us=0,
            day_settings=own,
        )
    found = [parse_manifest(body, where=key).day_settings for key, body in sorted(store.objects.items())]
    assert found == [BY_RECORD.day_settings, "imported"]


def test_the_ledger_keeps_the_settings_of_each_range_through_segments_and_merges() -> None:
    first = Tables.build([manifest(0, 0, None), manifest(1, 3, "one")])
    second = Tables.build([manifest(2, 6, "two"), manifest(3, 9, "one")])
    expected = [None, "one", "two", "one"]
    assert settings_of(first, second) == expected
    assert settings_of(stored(first), stored(second)) == expected
    assert settings_of(stored(merge_tables([stored(first), second]))) == expected


def test_the_settings_of_a_segment_from_before_them_are_unknown() -> None:
    kept = Kept.read(kept_versions()[0])
    start = f"{kept.prefix}/ledger/"
    key, body = next(item for item in sorted(kept.objects().items()) if item[0].startswith(start))
    tables = parse_segment(body, stream=kept.stream, time_zone=ZONE, where=key).tables
    history = History([stored_again(tables)])
    assert len(history) > 0
    assert history.has_other_settings("any")
    assert {tables.day_settings[at] for at in tables.ranges["day_settings"].to_pylist()} == {None}


def stored_again(tables: Tables) -> Tables:
    """The tables as a later segment would have them."""
    return stored(merge_tables([tables]))


def test_a_compaction_joins_no_ranges_of_different_day_settings() -> None:
    items = inputs(*[10] * 6)
    assert grouped(items) == [[0, 1, 2, 3, 4, 5]]
    changed = [replace(item, day_settings="one" if at < 3 else "two") for at, item in enumerate(items)]
    assert grouped(changed) == [[0, 1, 2], [3, 4, 5]]
