"""Stream definitions: what a right file means, and how every kind of wrong one is explained."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidemark.core.errors import ConfigError
from tidemark.definitions.sections import (
    Archive,
    Batch,
    Check,
    DefaultPartitioner,
    FieldTime,
    RecordTime,
    Speed,
    TimePartitioner,
)
from tidemark.definitions.stream import Stream, load_stream, problems, stream_names
from tidemark.installation import PROJECT

SMALLEST: dict[str, Any] = {
    "name": "orders",
    "topic": "orders",
    "value_schema": "id BIGINT",
    "speed": {"topic": "orders.live", "dead_letter_topic": "orders.dead-letter"},
}
NOT_NULL = "expect_column_values_to_not_be_null"
COUNTED = {"expectation": "expect_table_row_count_to_equal", "kwargs": {"value": 1}}
TOP_KEYS = (
    "archive, avro_earlier_schema_files, avro_schema_file, batch, description, event_time, name, owner, personal, "
    "renamed, "
    "spark, speed, time_zone, topic, value_format, value_schema, version"
)


def write(folder: Path, text: str, name: str = "orders") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def with_value(location: str, value: Any) -> dict[str, Any]:
    """The smallest definition with one value more, or another one; ``location`` is dotted."""
    raw = copy.deepcopy(SMALLEST)
    node = raw
    *parents, key = location.split(".")
    for parent in parents:
        node = node.setdefault(parent, {})
    node[key] = value
    return raw


def refusal(folder: Path, raw: Any) -> str:
    """The message of the error, which names the file at its end."""
    path = write(folder, raw if isinstance(raw, str) else yaml.safe_dump(raw))
    with pytest.raises(ConfigError) as caught:
        load_stream("orders", folder)
    assert caught.value.where == str(path)
    return str(caught.value).removesuffix(f" [{path}]")


def test_the_smallest_definition_has_the_documented_defaults(tmp_path: Path) -> None:
    write(tmp_path, yaml.safe_dump(SMALLEST))
    assert load_stream("orders", tmp_path) == Stream(
        name="orders",
        version=1,
        topic="orders",
        time_zone="UTC",
        value_schema="id BIGINT",
        event_time=RecordTime(extractor="record"),
        archive=Archive(
            partitioner=DefaultPartitioner(type="default"),
            flush_size=500_000,
            max_bytes=268_435_456,
            part_bytes=25_000_000,
            trigger_seconds=10,
            max_offsets_per_trigger=None,
        ),
        speed=Speed(topic="orders.live", dead_letter_topic="orders.dead-letter", key=None, trigger_seconds=1),
        batch=Batch(schedule="30 0 * * *", wait_seconds=600, accept_loss=False, checks=()),
    )


def test_every_key_can_be_given(tmp_path: Path) -> None:
    raw = {
        **SMALLEST,
        "version": 3,
        "time_zone": "Europe/Berlin",
        "event_time": {"extractor": "record_field", "field": "$.at", "format": "epoch_ms"},
        "archive": {
            "partitioner": {"type": "time", "path_format": "'day='yyyy-MM-dd", "clock": "wall_clock"},
            "flush_size": 90,
            "max_bytes": 100,
            "rotate_interval_seconds": 60.5,
            "rotate_schedule": "0 * * * *",
            "max_open_files": 3,
            "max_folders": 4,
            "bounds_alarm_hours": 2,
            "part_bytes": 5_242_880,
            "trigger_seconds": 0,
            "min_offsets_per_trigger": 5,
            "max_trigger_delay_seconds": 60,
            "max_offsets_per_trigger": 7,
            "on_loss": "continue",
            "on_rewrite": "continue",
            "storage": {
                "storage_class": "STANDARD_IA",
                "tags": {"team": "tide"},
            },
        },
        "batch": {
            "schedule": "0 6 * * 1",
            "wait_seconds": 0,
            "accept_loss": True,
            "checks": [{"expectation": NOT_NULL, "kwargs": {"column": "id"}, "severity": "warning"}],
        },
    }
    write(tmp_path, yaml.safe_dump(raw))
    stream = load_stream("orders", tmp_path)
    assert stream.event_time == FieldTime(extractor="record_field", field="$.at", format="epoch_ms")
    assert stream.archive.partitioner == TimePartitioner(
        type="time", path_format="'day='yyyy-MM-dd", clock="wall_clock"
    )
    assert stream.batch.checks == (Check(expectation=NOT_NULL, kwargs={"column": "id"}, severity="warning"),)
    assert stream.model_dump(
        mode="json", exclude={"speed", "avro_schema", "avro_earlier_schemas"}, exclude_unset=True
    ) == {key: value for key, value in raw.items() if key != "speed"}


@pytest.mark.parametrize(
    ("location", "allowed"),
    [
        ("retention", TOP_KEYS),
        ("event_time", "extractor"),
        (
            "archive",
            (
                "bounds_alarm_hours, flush_size, max_bytes, max_folders, max_offsets_per_trigger, "
                "max_open_files, max_trigger_delay_seconds, "
                "min_offsets_per_trigger, on_loss, on_rewrite, part_bytes, partitioner, retention_alarm_hours, "
                "rotate_interval_seconds, rotate_schedule, storage, trigger_seconds"
            ),
        ),
        (
            "speed",
            (
                "dead_letter_topic, delivery, key, max_offsets_per_trigger, partitioning, topic, transaction_records, "
                "trigger_seconds"
            ),
        ),
        (
            "batch",
            (
                "accept_loss, approval, approval_hours, checks, deduplicate, late_data, profile, reopen_days, "
                "schedule, sealed_by, snapshot_retention_days, wait_seconds"
            ),
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_keys_its_level_allows(tmp_path: Path, location: str, allowed: str) -> None:
    key = location if allowed == TOP_KEYS else f"{location}.typo"
    raw = with_value(key, 17)
    if location == "event_time":
        raw["event_time"]["extractor"] = "record"
        key = "event_time.record.typo"
    assert refusal(tmp_path, raw) == f"{key}: unknown key, allowed keys: {allowed}"


@pytest.mark.parametrize(
    ("location", "value", "message"),
    [
        (
            "archive.partitioner",
            {"type": "time", "path": "x"},
            "archive.partitioner.time.path: unknown key, allowed keys: clock, path_format, type",
        ),
        (
            "archive.partitioner",
            {"type": "default", "path_format": "x"},
            "archive.partitioner.default.path_format: unknown key, allowed keys: type",
        ),
        (
            "event_time",
            {"extractor": "record_field", "field": "$.at", "zone": "UTC"},
            (
                "event_time.record_field.zone: unknown key, allowed keys: "
                "extractor, field, format, max_distance_days, on_unreadable, unreadable_alarm_share"
            ),
        ),
        (
            "batch.checks",
            [COUNTED, {**COUNTED, "kwargs": {"value": 2}, "level": "low"}],
            "batch.checks.1.level: unknown key, allowed keys: expectation, kwargs, severity",
        ),
    ],
    ids=["time partitioner", "default partitioner", "record field", "second check"],
)
def test_an_unknown_key_inside_a_union_or_list_names_its_member(
    tmp_path: Path, location: str, value: Any, message: str
) -> None:
    assert refusal(tmp_path, with_value(location, value)) == message


@pytest.mark.parametrize("key", ["name", "topic", "speed"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    raw = {name: value for name, value in SMALLEST.items() if name != key}
    assert refusal(tmp_path, raw) == f"{key}: missing, expected a value"


@pytest.mark.parametrize(
    ("location", "value", "parts"),
    [
        ("name", "Orders", ["name: ", "pattern", "found 'Orders'"]),
        ("name", "orders_quarantine", ["name: ", "what stream orders quarantines", "found 'orders_quarantine'"]),
        ("topic", "a topic", ["topic: ", "pattern", "found 'a topic'"]),
        ("topic", "", ["topic: ", "pattern", "found ''"]),
        ("archive", {"max_trigger_delay_seconds": 9}, ["archive: ", "9 needs min_offsets_per_trigger"]),
        ("version", 0, ["version: ", "greater than or equal to 1", "found 0"]),
        ("version", "one", ["version: ", "integer", "found 'one'"]),
        ("time_zone", "Mars/Olympus", ["time_zone: ", "IANA", "Europe/Berlin", "found 'Mars/Olympus'"]),
        ("time_zone", "../etc/passwd", ["time_zone: ", "IANA", "found '../etc/passwd'"]),
        ("time_zone", "Europe", ["time_zone: ", "IANA", "found 'Europe'"]),
        ("time_zone", "a" * 300, ["time_zone: ", "IANA", "found 'aaa"]),
        ("archive.trigger_seconds", float("inf"), ["archive.trigger_seconds: ", "finite", "found inf"]),
        ("batch.wait_seconds", 10**15, ["batch.wait_seconds: ", "2592000", "found 1000000000000000"]),
        ("value_schema", None, ["value_schema: missing, value_format json needs it"]),
        ("value_format", "avro", ["avro_schema_file: missing, value_format avro needs it"]),
        ("value_format", "raw", ["value_schema: value_format raw has none, found 'id BIGINT'"]),
        ("avro_schema_file", "orders.avsc", ["avro_schema_file: value_format json has none, found 'orders.avsc'"]),
        (
            "avro_earlier_schema_files",
            ["a.avsc"],
            ["avro_earlier_schema_files: value_format json has none, found ('a.a"],
        ),
        ("avro_earlier_schema_files", ["../a"], ["avro_earlier_schema_files.0: ", "pattern", "found '../a'"]),
        ("avro_schema_file", "../orders.avsc", ["avro_schema_file: ", "pattern", "found '../orders.avsc'"]),
        ("archive.rotate_schedule", "hourly", ["archive.rotate_schedule: ", "five fields", "found 'hourly'"]),
        ("archive.rotate_schedule", "0 * * * * *", ["archive.rotate_schedule: ", "five fields", "'0 * * * * *'"]),
        ("archive.rotate_schedule", "R R * * *", ["archive.rotate_schedule: ", "hashed field, R; write numbers"]),
        ("batch.schedule", "0,r(1-9)/2 3 * * *", ["batch.schedule: ", "hashed field, r(1-9)/2; write numbers"]),
        ("batch.schedule", "H 3 * * *", ["batch.schedule: ", "hashed field, H; write numbers"]),
        ("archive.rotate_schedule", "0 0 31 2 *", ["archive.rotate_schedule: ", "never come", "found '0 0 31 2 *'"]),
        ("archive.bounds_alarm_hours", 99_999_999, ["archive.bounds_alarm_hours: ", "less than or equal to 878400"]),
        ("archive.retention_alarm_hours", 1e300, ["archive.retention_alarm_hours: ", "less than or equal to 878400"]),
        ("batch.sealed_by", "6:00", ["batch.sealed_by: ", "from 00:00 to 23:59", "'06:00'", "found '6:00'"]),
        ("batch.sealed_by", "24:00", ["batch.sealed_by: ", "from 00:00 to 23:59", "found '24:00'"]),
        ("batch.sealed_by", "06:00:00", ["batch.sealed_by: ", "from 00:00 to 23:59", "found '06:00:00'"]),
        ("batch.sealed_by", 630, ["batch.sealed_by: ", "in quotes", "found 630"]),  # YAML's value of 10:30
        ("batch", {"sealed_by": "00:30"}, ["batch: sealed_by 00:30 is not after 00:30, when the schedule starts"]),
        (
            "batch",
            {"schedule": "0 3,15 * * 1", "sealed_by": "02:59"},
            ["batch: sealed_by 02:59 is not after 03:00, when the schedule starts the run"],
        ),
        ("batch.schedule", "30 25 * * *", ["batch.schedule: ", "five fields", "found '30 25 * * *'"]),
        ("archive.rotate_interval_seconds", 0, ["archive.rotate_interval_seconds: ", "greater than 0", "found 0"]),
        (
            "archive.format",
            "parquet",
            ["archive.format: unknown key, allowed keys: bounds_alarm_hours, flush_"],
        ),
        ("archive.partitioner", {"type": "field", "fields": []}, ["archive.partitioner.field.fields: ", "at least 1"]),
        ("archive.storage", {"kms_key": "k"}, ["archive.storage.kms_key: unknown key, allowed keys: storage_class, "]),
        (
            "archive",
            {"min_offsets_per_trigger": 9, "max_offsets_per_trigger": 8},
            ["archive: ", "min_offsets_per_trigger 9 is above max_offsets_per_trigger 8"],
        ),
        ("event_time.extractor", "field", ["event_time.extractor: found 'field', allowed: record, record_field"]),
        ("event_time", {"format": "epoch_s"}, ["event_time.extractor: found nothing, allowed: record, record_field"]),
        (
            "event_time",
            {"extractor": "record_field", "field": "$.at[*].x"},
            ["event_time.record_field.field: ", "such as .name or [0]: '[*].x'"],
        ),
        ("event_time", {"extractor": "record_field", "field": "at"}, ["event_time.record_field.field: ", "'$.'"]),
        ("event_time", {"extractor": "record_field", "field": "$."}, ["event_time.record_field.field: ", "found '$.'"]),
        ("event_time", {"extractor": "record_field"}, ["event_time.record_field.field: missing"]),
        ("archive.flush_size", 0, ["archive.flush_size: ", "greater than or equal to 1", "found 0"]),
        ("archive.part_bytes", 1000, ["archive.part_bytes: ", "5242880", "found 1000"]),
        ("archive.trigger_seconds", -1, ["archive.trigger_seconds: ", "greater than or equal to 0", "found -1"]),
        ("archive.partitioner.type", "hash", ["archive.partitioner.type: found 'hash', allowed: default, field, time"]),
        ("speed", "orders.live", ["speed: ", "found 'orders.live'"]),
        ("speed.dead_letter_topic", None, ["speed.dead_letter_topic: ", "string", "found None"]),
        ("batch.wait_seconds", -5, ["batch.wait_seconds: ", "found -5"]),
        (
            "renamed",
            {"a": ["b"], "B": ["c"]},
            ["renamed: ", "the name 'B' is listed twice", "belongs to one field only"],
        ),
        ("renamed", {"a": []}, ["renamed: ", "'a' has no earlier name"]),
        ("renamed", {"a": "b"}, ["renamed.a: ", "found 'b'"]),
        ("personal", ["email", "EMAIL"], ["personal: ", "the name 'email' is listed twice"]),
        ("personal", ["passenger..name"], ["personal.0: ", "found 'passenger..name'"]),
        ("personal", "email", ["personal: ", "found 'email'"]),
        ("topic", "_orders", ["topic: ", "'_orders' starts with '_' or '.'", "found '_orders'"]),
        (
            "batch.checks",
            [{"expectation": "expect_x", "severity": "fatal"}],
            ["batch.checks.0.severity: ", "'critical', 'warning' or 'none'", "found 'fatal'"],
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed_and_what_was_found(
    tmp_path: Path, location: str, value: Any, parts: list[str]
) -> None:
    message = refusal(tmp_path, with_value(location, value))
    assert message.startswith(parts[0])
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize("personal", ["passenger", "passenger.name", "Passenger.Name.first"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("archive.partitioner.fields.1", {"partitioner": {"type": "field", "fields": ["$.id", "$.passenger.name"]}}),
        ("event_time.field", {"extractor": "record_field", "field": "$.passenger['name']"}),
    ],
)
def test_a_personal_field_may_be_neither_in_object_keys_nor_the_event_time(
    tmp_path: Path, personal: str, key: str, value: Any
) -> None:
    raw = with_value(key.partition(".")[0], value) | {"personal": ["id_card", personal]}
    message = refusal(tmp_path, raw)
    assert message.startswith(f"{key}: expected a field that is not in personal, found ")
    write(tmp_path, yaml.safe_dump(raw | {"personal": ["id_card", "passenger_name", "name"]}))
    load_stream("orders", tmp_path)


def test_the_mean_of_a_personal_column_is_not_compared_with_history(tmp_path: Path) -> None:
    check = {"expectation": "expect_column_mean_to_match_history", "kwargs": {"column": "Age"}}
    raw = SMALLEST | {"batch": {"checks": [check]}}
    message = refusal(tmp_path, raw | {"personal": ["age"]})
    assert message.startswith("batch.checks.0.kwargs.column: expected a column that is not in personal, found 'Age'")
    for given in (
        raw | {"personal": ["ages"]},
        raw | {"personal": ["age"], "batch": {"checks": [check | {"severity": "none"}]}},
    ):
        write(tmp_path, yaml.safe_dump(given))
        load_stream("orders", tmp_path)


def test_a_column_is_personal_with_any_of_its_fields_whatever_its_case(tmp_path: Path) -> None:
    write(tmp_path, yaml.safe_dump(SMALLEST | {"personal": ["Email", "passenger.name"]}))
    stream = load_stream("orders", tmp_path)
    assert [name for name in ("email", "PASSENGER", "name", "emails") if stream.is_personal(name)] == [
        "email",
        "PASSENGER",
    ]
    assert stream.has_personal


@pytest.mark.parametrize(
    ("schedule", "sealed_by"), [("30 0 * * *", "00:31"), ("0 */6 * * *", "00:01"), ("0 3,15 * * 1", "03:01")]
)
def test_a_deadline_after_the_start_of_the_days_run_is_accepted(tmp_path: Path, schedule: str, sealed_by: str) -> None:
    raw = with_value("batch", {"schedule": schedule, "sealed_by": sealed_by})
    write(tmp_path, yaml.safe_dump(raw))
    assert load_stream("orders", tmp_path).batch.sealed_by == sealed_by


def test_every_problem_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    raw = {**with_value("archive.flush_size", 0), "colour": "red", "version": -1}
    message = refusal(tmp_path, raw)
    assert [part.partition(":")[0] for part in message.split("; ")] == ["version", "archive.flush_size", "colour"]
    with pytest.raises(ConfigError) as caught:
        load_stream("orders", tmp_path)
    each = problems(caught.value)
    assert [str(item) for item in each] == [f"{part} [{tmp_path / 'orders.yaml'}]" for part in message.split("; ")]


def test_an_error_that_is_one_problem_stays_it(tmp_path: Path) -> None:
    error = ConfigError("no such stream", where=str(tmp_path))
    assert problems(error) == (error,)


@pytest.mark.parametrize(
    "topics",
    [
        {"topic": "orders", "dead_letter_topic": "dead"},
        {"topic": "live", "dead_letter_topic": "orders"},
        {"topic": "same", "dead_letter_topic": "same"},
    ],
)
def test_a_topic_used_twice_is_refused_with_all_three(tmp_path: Path, topics: dict[str, str]) -> None:
    message = refusal(tmp_path, {**SMALLEST, "speed": topics})
    found = f"('orders', '{topics['topic']}', '{topics['dead_letter_topic']}')"
    assert message == f"topic, speed.topic and speed.dead_letter_topic must differ, found {found}"


def test_the_name_must_be_the_files(tmp_path: Path) -> None:
    message = refusal(tmp_path, {**SMALLEST, "name": "sales"})
    assert message == "name: must equal the file's name: expected orders, found sales"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("name: [orders\ntopic: x", "not YAML: found while parsing a flow sequence"),
        ("name: orders\n\ttopic: x", "not YAML: found while scanning"),
        ("name: [!!python/object:os.system {}]", "not YAML: found could not determine a constructor"),
        ("name: orders\nspeed:\n  key: a\n  key: b", "not YAML: found the key 'key' is given twice"),
    ],
    ids=["open bracket", "tab", "python object", "a key twice"],
)
def test_text_that_is_not_yaml_is_said_to_be_that_on_one_line(tmp_path: Path, text: str, start: str) -> None:
    message = refusal(tmp_path, text)
    assert message.startswith(start)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "found"),
    [("", "None"), ("# only a comment\n", "None"), ("- name: orders", "[{'name': 'orders'}]"), ("orders", "'orders'")],
    ids=["empty", "comment", "list", "text"],
)
def test_a_file_without_a_mapping_at_the_top_is_said_to_be_that(tmp_path: Path, text: str, found: str) -> None:
    message = refusal(tmp_path, text)
    assert message.startswith("(top level): ")
    assert message.endswith(f"found {found}")


def test_text_that_is_not_utf_8_is_refused_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_bytes(b"name: orders\n# caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        load_stream("orders", tmp_path)
    assert caught.value.where == str(path)


def test_an_unknown_stream_is_answered_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such stream: expected one of: none, found orders"):
        load_stream("orders", tmp_path)
    write(tmp_path, "", "b")
    write(tmp_path, "", "a")
    with pytest.raises(ConfigError, match="expected one of: a, b, found orders") as caught:
        load_stream("orders", tmp_path)
    assert caught.value.where == str(tmp_path)
    assert stream_names(tmp_path) == ("a", "b")


def test_the_projects_own_streams_load() -> None:
    folder = PROJECT / "include" / "streams"
    assert "flights" in stream_names(folder)
    assert [load_stream(name, folder).name for name in stream_names(folder)] == list(stream_names(folder))
