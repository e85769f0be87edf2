"""A transformation that fails on a record ends the speed stream with the record, the line and what to do."""

import os
import re
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeStream, Produce
from tidemark.core.errors import TransformError
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.speed.stream import speed
from tidemark.stack.local import PROJECT, LocalStack

TRANSFORM = """from pyspark.sql import functions as F


def transform(records):
    rest = F.col("event.n") - 7
    return records.select("source", "event_time", "event.n", (100 / rest).alias("share"))
"""
LINE = 6


def failing_stream(make_stream: MakeStream, produce: Produce, delivery: str) -> Stream:
    """The transformation divides by zero at offset 30 of partition 1, and again at offset 41."""
    stream = make_stream(partitions=2, transform=TRANSFORM)
    speeds = stream.speed.model_dump(exclude_none=True) | {"delivery": delivery}
    stream = make_stream(name=stream.name, topic=stream.topic, transform=TRANSFORM, speed=speeds)
    numbers = [(0, [*range(8, 28)]), (1, [*range(10, 40), 7, *range(50, 60), 7])]
    produce(
        stream.topic,
        [(None, b'{"n":%d}' % n, 1_700_000_000_000, partition, []) for partition, own in numbers for n in own],
    )
    return stream


def message(stream: Stream, settings: Settings) -> str:
    place = re.escape(f"{settings.streams_dir / f'{stream.name}.py'}, line {LINE}")
    record = f"topic {stream.topic}, partition 1, offset 30: "
    return rf"the transformation fails on a record: expected .*, found {record}.*DIVIDE_BY_ZERO.* \[{place}\]\. Return"


def test_an_exactly_once_stream_names_the_first_record_and_the_line(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = failing_stream(make_stream, produce, "exactly_once")
    with pytest.raises(TransformError, match=message(stream, settings)):
        speed(spark, stream, settings, available_now=True)


def test_an_at_least_once_application_ends_with_the_record_and_one_stack_trace(
    stack: LocalStack, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = failing_stream(make_stream, produce, "at_least_once")
    done = subprocess.run(
        [sys.executable, str(PROJECT / "spark_apps" / "speed_stream.py"), stream.name, "--available-now"],
        env={**os.environ, **stack.env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert re.match(rf"TransformError: {message(stream, settings)}", last), done.stderr[-3000:]
    traces = re.findall(r"SparkArithmeticException: \[DIVIDE_BY_ZERO\]", done.stderr)
    assert len(traces) == 1, done.stderr
