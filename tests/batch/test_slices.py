"""Slices in any mix of formats, read by Spark: the writer's objects come back to the byte."""

import re
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.archive.test_formats import LOG, ODD, RANGE, Row, row, write
from tests.conftest import MakeStream, unique
from tidemark.archive.file import Target
from tidemark.batch.slices import read_slices
from tidemark.core.errors import IncompleteError
from tidemark.core.layout import Layout
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import Slice
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.spark.records import ARCHIVE_SCHEMA
from tidemark.stream_keys import Format
from tidemark.streams import Stream


@pytest.fixture
def target(store: ObjectStore) -> Target:
    layout = Layout(prefix="", stream=unique("slices"))
    return Target(store=store, layout=layout, part_bytes=5 * 1024 * 1024, settings="settings-one")


def collected(spark: SparkSession, settings: Settings, stream: Stream, slices: list[Slice]) -> list[Row]:
    rows = read_slices(spark, settings, stream, slices)
    assert rows.schema == ARCHIVE_SCHEMA
    found = []
    for item in rows.collect():
        plain = item.asDict(recursive=True)
        plain |= {name: None if plain[name] is None else bytes(plain[name]) for name in ("key", "value")}
        plain |= {name: plain[name].astimezone(UTC) for name in ("timestamp", "event_time")}
        plain["headers"] = [
            {"key": one["key"], "value": None if one["value"] is None else bytes(one["value"])}
            for one in plain["headers"]
        ]
        found.append(plain)
    return sorted(found, key=lambda one: one["offset"])


def test_odd_records_written_in_every_format_are_read_back_to_the_byte(
    spark: SparkSession, settings: Settings, target: Target, make_stream: MakeStream
) -> None:
    stream = make_stream()
    expected: list[Row] = []
    slices = []
    formats: list[Format] = ["parquet", "jsonl.gz", "jsonl.zst"]
    for number, form in enumerate(formats):
        rows = [item | {"offset": item["offset"] + 100 * number} for item in ODD]
        key = write(target, rows, form=form).key
        slices.append(Slice(key=key, log=LOG, range=RANGE, whole=True))
        expected += rows
    assert collected(spark, settings, stream, slices) == expected


def test_slices_of_every_format_are_trimmed_to_their_offsets(
    spark: SparkSession, settings: Settings, target: Target, make_stream: MakeStream
) -> None:
    stream = make_stream()
    rows = [row(number) for number in range(0, 100, 2)]
    slices = []
    formats: list[tuple[Format, int, int]] = [("parquet", 0, 11), ("jsonl.gz", 11, 55), ("jsonl.zst", 55, 91)]
    for form, start, end in formats:
        key = write(target, rows, form=form).key
        slices.append(Slice(key=key, log=LOG, range=OffsetRange(start=start, end=end), whole=False))
    assert collected(spark, settings, stream, slices) == [item for item in rows if item["offset"] < 91]


def test_only_the_slices_objects_are_read_whatever_folders_are_called(
    spark: SparkSession,
    settings: Settings,
    store: ObjectStore,
    make_stream: MakeStream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a b%20*é{1,2}").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a b%20*é{1,2}"))
    rows = [row(number) for number in range(300)]
    layout = Layout(prefix=f"{unique('odd')}/a b%20*é{{1,2}}", stream="slices")
    target = Target(store=store, layout=layout, part_bytes=5 * 1024 * 1024, settings="settings-one")
    keys = [
        write(
            replace(target, settings=f"settings-{number}"), rows[number * 100 : (number + 1) * 100], form="parquet"
        ).key
        for number in range(3)
    ]
    assert len({key.rsplit("/", 1)[0] for key in keys}) == 1
    whole, part = OffsetRange(start=0, end=100), OffsetRange(start=250, end=260)
    slices = [
        Slice(key=keys[0], log=LOG, range=whole, whole=True),
        Slice(key=keys[2], log=LOG, range=part, whole=False),
    ]
    assert collected(spark, settings, make_stream(), slices) == [*rows[:100], *rows[250:260]]
    assert collected(spark, settings, make_stream(), slices[1:]) == rows[250:260]
    store.delete(keys[2])
    with pytest.raises(IncompleteError, match=re.escape(f"found 1; missing: {keys[2]}")):
        read_slices(spark, settings, make_stream(), slices)


def test_a_session_that_ignores_the_list_of_objects_is_refused(
    spark: SparkSession, settings: Settings, target: Target, make_stream: MakeStream
) -> None:
    key = write(target, ODD, form="parquet").key
    ignored = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
    spark.conf.set(ignored, True)
    try:
        with pytest.raises(IncompleteError, match=f"(?s)expected 1 objects.*found 0.*{re.escape(ignored)}"):
            read_slices(spark, settings, make_stream(), [Slice(key=key, log=LOG, range=RANGE, whole=True)])
    finally:
        spark.conf.unset(ignored)
