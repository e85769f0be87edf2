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
from tidemark.installation import PROJECT
from tidemark.settings import Settings
from tidemark.speed.stream import speed
from tidemark.stack.local import LocalStack

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


def run_application(stack: LocalStack, stream: Stream) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(PROJECT / "spark_apps" / "speed_stream.py"), stream.name, "--available-now"],
        env={**os.environ, **stack.env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.conformance(64)
def test_an_exactly_once_stream_names_the_first_record_and_the_line(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = failing_stream(make_stream, produce, "exactly_once")
    with pytest.raises(TransformError, match=message(stream, settings)):
        speed(spark, stream, settings, available_now=True)


@pytest.mark.conformance(64)
def test_an_at_least_once_application_ends_with_the_record_and_one_stack_trace(
    stack: LocalStack, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    stream = failing_stream(make_stream, produce, "at_least_once")
    done = run_application(stack, stream)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert re.match(rf"TransformError: {message(stream, settings)}", last), done.stderr[-3000:]
    traces = re.findall(r"SparkArithmeticException: \[DIVIDE_BY_ZERO\]", done.stderr)
    assert len(traces) == 1, done.stderr


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_an_application_whose_records_have_personal_data_shows_no_value_of_it(
    stack: LocalStack, make_stream: MakeStream, produce: Produce, delivery: str
) -> None:
    """A cast of the value fails, with the value in Spark's text."""
    stream = make_stream(transform=TRANSFORM)
    speeds = stream.speed.model_dump(exclude_none=True) | {"delivery": delivery}
    stream = make_stream(
        name=stream.name,
        topic=stream.topic,
        value_schema="name STRING",
        personal=["name"],
        transform=TRANSFORM.replace("event.n", "event.name"),
        speed=speeds,
    )
    produce(stream.topic, [(None, b'{"name":"planted"}', 1_700_000_000_000, 0, [])])
    done = run_application(stack, stream)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("TransformError: the transformation fails on a record: "), done.stderr[-3000:]
    assert "partition 0, offset 0: [CAST_INVALID_INPUT] •••" in last.replace(
        "org.apache.spark.SparkNumberFormatException: ", ""
    )
    assert "planted" not in done.stdout + done.stderr
