"""What the archive's fingerprint of a definition depends on, and the Avro schema a definition carries."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_streams import SMALLEST, with_value, write
from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream, load_stream

AVRO = {**{key: value for key, value in SMALLEST.items() if key != "value_schema"}, "value_format": "avro"}
OF_BY_FIELD = "7c19b5bffcb5e2f7"
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "at", "type": "long"}]}'


def test_the_fingerprint_changes_with_what_cuts_files_and_with_nothing_else() -> None:
    base = Stream.model_validate(SMALLEST).archive_settings
    assert len(base) == 16
    cutting = [
        with_value("archive.flush_size", 7),
        with_value("archive.max_bytes", 7),
        with_value("archive.max_folders", 7),
        with_value("archive.partitioner", {"type": "time"}),
        with_value("archive.rotate_interval_seconds", 60),
        with_value("time_zone", "Asia/Tokyo"),
        (by_field := with_value("event_time", {"extractor": "record_field", "field": "$.at"})),
        {**by_field, "renamed": {"at": ["time"]}},
        with_value("event_time", {"extractor": "record_field", "field": "$.at", "max_distance_days": 7}),
    ]
    assert len({base, *(Stream.model_validate(raw).archive_settings for raw in cutting)}) == 1 + len(cutting)
    others = [
        with_value("version", 2),
        with_value("renamed", {"id": ["number"]}),
        with_value("archive.trigger_seconds", 1),
        with_value("archive.part_bytes", 6_000_000),
        with_value("archive.max_open_files", 3),
        with_value("archive.rotate_schedule", "0 * * * *"),
        with_value("archive.storage", {"storage_class": "STANDARD_IA"}),
        with_value("batch.wait_seconds", 1),
        with_value("speed.key", "id"),
    ]
    assert {Stream.model_validate(raw).archive_settings for raw in others} == {base}
    judged = {"on_unreadable": "reject", "unreadable_alarm_share": 0.5}
    by_other = {**by_field, "event_time": {**by_field["event_time"], **judged}}
    # The second value is of the version before these keys: a change would keep its objects from being compacted.
    assert {Stream.model_validate(raw).archive_settings for raw in (by_field, by_other)} == {OF_BY_FIELD}


def test_an_avro_stream_carries_the_text_of_its_schema_file_and_a_dump_shows_it(tmp_path: Path) -> None:
    (tmp_path / "orders.avsc").write_text(SCHEMA, encoding="utf-8")
    write(tmp_path, yaml.safe_dump({**AVRO, "avro_schema_file": "orders.avsc"}))
    stream = load_stream("orders", tmp_path)
    assert stream.avro_schema == stream.model_dump()["avro_schema"] == SCHEMA
    assert stream.model_copy(update={"version": 2}).avro_schema == SCHEMA


def test_an_avro_stream_carries_the_texts_of_its_earlier_schemas_in_their_order(tmp_path: Path) -> None:
    texts = [SCHEMA.replace("long", kind) for kind in ("long", "int", "float")]
    names = ["orders.avsc", "orders-2.avsc", "orders-1.avsc"]
    for name, text in zip(names, texts, strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    definition = {**AVRO, "avro_schema_file": names[0], "avro_earlier_schema_files": names[1:]}
    write(tmp_path, yaml.safe_dump(definition))
    stream = load_stream("orders", tmp_path)
    assert (stream.avro_schema, *stream.avro_earlier_schemas) == tuple(texts)
    assert stream.model_dump()["avro_earlier_schemas"] == tuple(texts[1:])
    (tmp_path / names[2]).unlink()
    with pytest.raises(
        ConfigError, match=r"^avro_earlier_schema_files.1: no such file: .*found orders-1.avsc \[.*yaml"
    ):
        load_stream("orders", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "avro_schema_file: no such file: expected a file {folder}/orders.avsc, found orders.avsc"),
        (b"{", "not JSON: found Expecting property name"),
        (b"\xff", "not UTF-8: "),
        (b'"string"', 'not the Avro schema of a record: expected "type": "record", found string'),
        (b'{"type": "enum"}', 'not the Avro schema of a record: expected "type": "record", found enum'),
        (b'["null"]', 'not the Avro schema of a record: expected "type": "record", found [\'null\']'),
    ],
    ids=["missing", "not JSON", "not UTF-8", "primitive", "enum", "union"],
)
def test_a_schema_file_that_is_no_record_schema_is_refused_by_name(
    tmp_path: Path, text: bytes | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "orders.avsc").write_bytes(text)
    write(tmp_path, yaml.safe_dump({**AVRO, "avro_schema_file": "orders.avsc"}))
    with pytest.raises(ConfigError) as raised:
        load_stream("orders", tmp_path)
    assert str(raised.value).startswith(message.format(folder=tmp_path))
    assert raised.value.where == str(tmp_path / ("orders.yaml" if text is None else "orders.avsc"))


@pytest.mark.parametrize(
    ("key", "value", "counts"),
    [
        ("version", 1, False),
        ("event_time", {"extractor": "record_field", "field": "$.at", "format": "epoch_ms"}, True),
        ("archive", {"partitioner": {"type": "field", "fields": ["$.at"]}}, True),
    ],
    ids=["no field is read", "event time", "partitioner"],
)
def test_the_fingerprint_depends_on_the_schema_where_the_archive_reads_its_fields(
    key: str, value: Any, counts: bool
) -> None:
    stream = Stream.model_validate({**AVRO, "avro_schema_file": "orders.avsc", key: value})
    prints = {stream.with_avro_schemas(text).archive_settings for text in (SCHEMA, SCHEMA.replace("long", "int"))}
    assert len(prints) == (2 if counts else 1)
