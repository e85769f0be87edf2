"""At-least-once delivery of batches with records that Spark's Kafka source can't read."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Thread

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tidemark.settings import Settings
from tidemark.spark.client_source import read_by_client
from tidemark.spark.kafka_source import client_options
from tidemark.spark.same_topic import same_logs
from tidemark.spark.session import temporary_conf
from tidemark.spark.streaming import log_event
from tidemark.speed.batches import BatchCounts, DeliveryBatches
from tidemark.speed.record_limits import RecordLimits

# Eight times the client's default. With headers in every record, it halves the broker's work.
BATCH_BYTES = 128 * 1024
# The client's default.
BUFFER_BYTES = 32 * 1024 * 1024

PRODUCER = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    # After this time the batch fails, and the next start repeats it.
    "kafka.delivery.timeout.ms": "120000",
    "kafka.linger.ms": "5",
}
REPORT_S = 30.0
SENT = ("topic", "partition", "key", "value", "headers")
_V1_SOURCES = "spark.sql.sources.useV1SourceList"


@dataclass(kw_only=True)
class SinkBatches(DeliveryBatches):
    """Batches that Kafka's client reads and Spark's Kafka sink writes."""

    def _deliver(self, frame: DataFrame, batch: int) -> BatchCounts:
        logs = same_logs(self.settings, self.stream.topic, self.topic_id)
        ranges = self._of_logs(self.checkpoint.ranges(batch), logs)
        source = read_by_client(frame.sparkSession, self.settings.kafka, ranges, skip_deleted=True)
        observed = Observation()
        dead = F.count_if(F.col("topic") == self.stream.speed.dead_letter_topic)
        sent = self._sent(source, with_coordinates=True).select(*SENT)
        rows = sent.observe(observed, F.count(F.lit(1)).alias("rows"), dead.alias("dead"))
        options = sink_options(self.settings, self.limits)
        with self._explained(), _observable(frame.sparkSession):
            rows.write.format("kafka").mode("append").options(**options).save()
        counts = _counts(observed)
        if not counts:
            log_event("uncounted", level="warning", layer="speed", stream=self.stream.name, batch=batch)
        number = counts.get("rows", 0)
        return BatchCounts(read=number, written=number, dead=counts.get("dead", 0))


def sink_options(settings: Settings, limits: RecordLimits) -> dict[str, str]:
    """The options of Spark's Kafka sink."""
    # The topics' limits decide, not the client's default of 1 MB, nor its buffer of 32 MiB.
    largest = limits.client_bytes
    sizes = {
        "kafka.max.request.size": largest,
        "kafka.buffer.memory": max(BUFFER_BYTES, 2 * largest),
        # The client would split a batch above a topic's limit into the same batches again, for ever.
        "kafka.batch.size": min(limits.live, limits.dead_letter, BATCH_BYTES),
    }
    return {**client_options(settings.speed_kafka), **{name: str(size) for name, size in sizes.items()}, **PRODUCER}


def _observable(spark: SparkSession) -> AbstractContextManager[None]:
    """Inside the block, Spark writes to Kafka in its newer way: the older one, its default, observes nothing."""
    names = (spark.conf.get(_V1_SOURCES) or "").split(",")
    return temporary_conf(spark, {_V1_SOURCES: ",".join(name for name in names if "kafka" not in name.lower())})


def _counts(observed: Observation) -> dict[str, int]:
    """What was observed; nothing if Spark does not report it in time. It drops reports while its listeners are slow."""
    found: list[dict[str, int]] = []
    thread = Thread(target=lambda: found.append(observed.get), name="observation", daemon=True)
    thread.start()
    thread.join(REPORT_S)
    return found[0] if found else {}
