"""Which offsets a micro-batch's tasks will read: from the plan of its frame, before any task runs.

Spark reports a batch's offsets only after the batch. But the archive must compare them with the write-ahead log before
it writes, and exactly-once delivery must know them per task. So this reads the Kafka source's private
``DataSourceRDD``. tests/spark/test_private_apis.py fails when Spark's version changes, and names what to check.
"""

from typing import Any

from pyspark.sql import DataFrame

from tidemark.core.errors import FormatError
from tidemark.core.offsets import OffsetRange
from tidemark.spark.java import java_frame

PROVEN_WITH = "4.0.4"  # the version of Spark


def ranges_read(frame: DataFrame) -> dict[int, OffsetRange]:
    """The offsets by partition that an action on a micro-batch's frame reads; partitions without any are left out."""
    return {partition: span for task in tasks_read(frame) for partition, span in task}


def tasks_read(frame: DataFrame) -> list[list[tuple[int, OffsetRange]]]:
    """As ``ranges_read``, a list of partitions and offsets per task, in the tasks' order."""
    rdd: Any = java_frame(frame).queryExecution().toRdd()
    while not rdd.getClass().getName().endswith(".DataSourceRDD"):
        parents = rdd.dependencies()
        if parents.size() != 1:
            raise FormatError("not the frame of a Kafka source", found=rdd.getClass().getName(), where="micro-batch")
        rdd = parents.apply(0).rdd()
    tasks = []
    for task in rdd.partitions():
        parts = [task.inputPartitions().apply(at).offsetRange() for at in range(task.inputPartitions().size())]
        spans = [OffsetRange(start=part.fromOffset(), end=part.untilOffset()) for part in parts]
        tasks.append([(part.topicPartition().partition(), span) for part, span in zip(parts, spans, strict=True)])
    return tasks
