"""The preconditions of delivery, checked before a record is sent. Each error has its reason and a way out."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings
from tidemark.spark.decode import decoded_schema
from tidemark.spark.java import java_frame
from tidemark.spark.process import Transform, shape

# Operators that give one row per row, in the same order and the same task. All others are refused.
# "Scan ExistingRDD" is the empty frame that the check uses.
NARROW = frozenset({"Scan ExistingRDD", "Project", "ArrowEvalPython", "BatchEvalPython", "CollectMetrics"})

_SHUFFLE = "moves rows between tasks: a task's rows would not be those of one source partition, in offset order"
# By a part of the operator's name; the first match counts, because of SortAggregate and SortMergeJoin.
_REASONS = {
    "Filter": "drops rows: mark them with a text in the column reject, and they go to the dead-letter topic",
    "Generate": "multiplies rows: the marker counts one row per source offset",
    "Expand": "multiplies rows: the marker counts one row per source offset",
    "Exchange": _SHUFFLE,
    "Coalesce": _SHUFFLE,
    "Window": f"sees only this batch's rows, and {_SHUFFLE}",
    "Aggregate": f"sees only this batch's rows, and {_SHUFFLE}",
    "Join": "can drop and multiply rows, and its other side may change between two attempts",
    "Sort": "changes the order of the rows: the marker counts them by offset",
    "Limit": "drops rows",
    "Sample": "drops rows",
    "Union": "adds rows without a source offset",
    "State": "keeps state between batches, which a transaction per source partition does not contain",
}


def require_exactly_once(spark: SparkSession, stream: Stream, transform: Transform) -> None:
    """Raise ConfigError if the session or the transformation cannot be used for exactly-once delivery."""
    if str(spark.sparkContext.getConf().get("spark.speculation", "false")).lower() == "true":
        raise ConfigError(
            "exactly-once delivery does not work with speculation",
            expected="spark.speculation false",
            found="true: Spark runs a slow task twice at once, and the attempts would fence each other",
            where=f"stream {stream.name}",
            hint="Unset spark.speculation for this application, or set speed.delivery to at_least_once",
        )
    # Not from literal rows: Spark removes empty ones from the plan, with their operators.
    decoded = spark.createDataFrame(spark.sparkContext.emptyRDD(), decoded_schema(stream))
    found = [name for name in _operators(shape(decoded, stream, transform)) if name not in NARROW]
    if found:
        raise ConfigError(
            "exactly-once delivery does not work with this transformation",
            expected="one row per row, each from its own columns only",
            found="; ".join(f"{name}, which {_reason(name)}" for name in dict.fromkeys(found)),
            where=f"transform of stream {stream.name}",
            hint="Change the transformation, or set speed.delivery to at_least_once",
        )


def require_partitions(stream: Stream, settings: Settings, partitions: int) -> None:
    """Raise ConfigError if records keep the source's partitions and the live topic has fewer than the source."""
    if stream.speed.partitioning != "source":
        return
    topic = stream.speed.topic
    found = len(describe_topic(settings.speed_kafka, topic))
    if found < partitions:
        raise ConfigError(
            "speed.partitioning: the live topic has fewer partitions than the source",
            expected=f"at least {partitions} of {topic}",
            found=found,
            where=f"stream {stream.name}",
            hint=f"Give {topic} as many partitions as {stream.topic} has, or set partitioning to key",
        )


def _operators(frame: DataFrame) -> list[str]:
    """The names of the plan's operators, the last one first, before Spark inserts shuffles."""
    found = []
    nodes: list[Any] = [java_frame(frame).queryExecution().sparkPlan()]
    while nodes:
        node = nodes.pop()
        found.append(str(node.nodeName()))
        children = node.children()
        nodes += [children.apply(number) for number in range(children.size())]
    return found


def _reason(name: str) -> str:
    unknown = "is not known to keep one row per row, in the same order"
    return next((reason for part, reason in _REASONS.items() if part in name), unknown)
