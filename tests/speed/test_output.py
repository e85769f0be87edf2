"""The rows for Spark's Kafka sink, as far as they need no broker."""

import pytest
from pyspark.sql import SparkSession

from tests.spark.rows import kafka_rows, stream
from tidemark.core.errors import ConfigError
from tidemark.speed.stream import output


@pytest.mark.parametrize(("key", "usable"), [("nonsense", "n, text"), ("inner", "n, text"), ("event_time", "n, text")])
def test_a_key_that_is_no_plain_output_column_is_refused_with_those_there_are(
    spark: SparkSession, key: str, usable: str
) -> None:
    keyed = stream(
        "n BIGINT, text STRING, inner STRUCT<a: INT>",
        speed={"topic": "live", "dead_letter_topic": "dead", "key": key},
    )
    with pytest.raises(ConfigError, match=rf"speed\.key names no plain column.*one of {usable}, found {key}"):
        output(kafka_rows(spark, []), keyed, lambda rows: rows.select("source", "event_time", "event.*"), "an id")


def test_a_number_keys_a_record_by_its_text_and_a_null_leaves_it_without_a_key(spark: SparkSession) -> None:
    keyed = stream("n BIGINT, text STRING", speed={"topic": "live", "dead_letter_topic": "dead", "key": "n"})
    rows = output(
        kafka_rows(spark, [b'{"n":7}', b"{}", b"garbage"]),
        keyed,
        lambda rows: rows.select("source", "event_time", "event.*"),
        "an id",
    )
    assert [(row.topic, row.key) for row in rows.collect()] == [("live", b"7"), ("live", None), ("dead", b"k2")]
