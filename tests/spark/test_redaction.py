"""No secret of a Kafka connection in what Spark shows: plans, the SQL page of its UI, event logs, log lines, errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import MakeTopic, Produce
from tidemark.connections.kafka import KafkaConnection
from tidemark.settings import Settings
from tidemark.spark.java import jvm
from tidemark.spark.kafka_source import client_options

pytestmark = pytest.mark.services
PLANTED = "planted-7f3a"
# On a connection without security, Java's client takes these and does not use them.
SECRETS = {
    "java.sasl.jaas.config": f'a.B required username="u" password="{PLANTED}";',
    "java.ssl.keystore.key": f"{PLANTED} PRIVATE KEY",
    "java.ssl.key.password": PLANTED,
    "java.ssl.keystore.certificate.chain": f"{PLANTED} CERTIFICATE",
    "java.ssl.truststore.certificates": f"{PLANTED} CERTIFICATE",
    "java.ssl.truststore.password": PLANTED,
}


@contextmanager
def logged(spark: SparkSession, path: Path) -> Iterator[None]:
    """Inside the block, the JVM's log lines from INFO on are added to the file."""
    log4j = jvm(spark).org.apache.logging.log4j
    context = log4j.core.LoggerContext.getContext(False)
    root = context.getConfiguration().getRootLogger()
    appender = log4j.core.appender.FileAppender.newBuilder().withFileName(str(path)).setName("planted").build()
    appender.start()
    level = root.getLevel()
    root.addAppender(appender, log4j.Level.INFO, None)
    root.setLevel(log4j.Level.INFO)
    context.updateLoggers()
    try:
        yield
    finally:
        root.removeAppender("planted")
        root.setLevel(level)
        context.updateLoggers()
        appender.stop()


def plans(rows: DataFrame) -> str:
    """Everything that explain() can print."""
    execution: Any = rows._jdf.queryExecution()
    if rows.isStreaming:
        return str(execution.toString())
    mode: Any = jvm(rows.sparkSession).org.apache.spark.sql.execution.ExplainMode
    texts = [execution.toString(), execution.simpleString()]
    return "\n".join(texts + [execution.explainString(mode.fromString(name)) for name in ("extended", "formatted")])


@pytest.mark.conformance(35)
def test_spark_shows_no_secret_of_a_kafka_connection(
    spark: SparkSession, settings: Settings, make_topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    source, target = make_topic(), make_topic()
    produce(source, [(None, b"v", 1_000, 0, ())])
    kafka = KafkaConnection({"bootstrap.servers": settings.kafka_bootstrap, **SECRETS})
    options = client_options(kafka)
    assert sum(PLANTED in value for value in options.values()) == len(SECRETS)
    shown: list[str] = []
    log = tmp_path / "spark.log"
    with logged(spark, log):
        rows = spark.read.format("kafka").options(**options).option("subscribe", source).load()
        assert rows.count() == 1
        rows.select("value").write.format("kafka").options(**options).option("topic", target).save()
        stream = spark.readStream.format("kafka").options(**options).option("subscribe", source)
        read = stream.option("startingOffsets", "earliest").load()
        query = (
            read.select("value")
            .writeStream.format("kafka")
            .options(**options)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        shown += [plans(rows), plans(read), query._jsq.explainInternal(True)]

        def fail(_batch: DataFrame, _number: int) -> None:
            raise ValueError

        failing = read.writeStream.foreachBatch(fail).trigger(availableNow=True).start()
        with pytest.raises(StreamingQueryException) as caught:
            failing.awaitTermination()
        shown.append(str(caught.value))
    executions: Any = spark._jsparkSession.sharedState().statusStore().executionsList()
    shown += [executions.apply(number).physicalPlanDescription() for number in range(executions.length())]
    text = log.read_text(encoding="utf-8")
    assert "ConsumerConfig values" in text
    assert "ProducerConfig values" in text
    assert any("KafkaV2" in item or "kafka" in item for item in shown)
    assert [
        item[max(item.find(PLANTED) - 300, 0) :][:400] for item in [*shown, *text.splitlines()] if PLANTED in item
    ] == []
