"""Every way to authenticate, by both clients with settings derived from one mapping; sessions that outlive tokens."""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import unique
from tests.tokens import Tokens, token_server
from tests.waiting import wait_until
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.installation import PROJECT
from tidemark.kafka import positions, topics
from tidemark.kafka.positions import open_consumer, repeat_while_leaders_change, watermarks
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.spark.kafka_source import client_options
from tidemark.stack.certificates import client_certificate, server_certificate
from tidemark.stack.files import free_ports
from tidemark.stack.kafka import Node, start_kafka
from tidemark.stack.kafka_security import ADMIN, BrokerSecurity
from tidemark.stack.processes import Processes

pytestmark = [pytest.mark.services, pytest.mark.conformance(35)]
TOKEN_S = 15.0
# In the password: quotes, backslashes, spaces, semicolons and characters beyond ASCII.
AWKWARD = "p\"a\\ss; w'ör=d\\n{}"
WAYS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER", "mutual TLS")


@dataclass(frozen=True, kw_only=True)
class Broker:
    folder: Path
    port: int
    security: BrokerSecurity
    tokens: Tokens

    def connection(self, way: str) -> KafkaConnection:
        match way:
            case "SCRAM-SHA-512" | "SCRAM-SHA-256":
                return self.security.scram(self.port, ADMIN, mechanism=way)
            case "PLAIN":
                return self.security.plain(ADMIN)
            case "OAUTHBEARER":
                return self.security.oauth(self.tokens.source(ADMIN))
        return self.security.mutual_tls(client_certificate(self.folder / "tls", ADMIN))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("secured")
    port, controller, plain, oauth, mutual = free_ports(5)
    processes = Processes()
    with token_server(life_s=TOKEN_S) as tokens:
        security = BrokerSecurity(
            certificate=server_certificate(folder / "tls"),
            passwords={ADMIN: AWKWARD + secrets.token_urlsafe(6)},
            plain_port=plain,
            oauth_port=oauth,
            tokens=tokens.issuer,
            mutual_tls_port=mutual,
            session_ms=60_000,
        )
        node = Node(port=port, voters={1: controller}, security=security)
        jars, log = PROJECT / ".tidemark" / "jars" / "kafka", folder / "kafka.log"
        try:
            start_kafka(processes, folder / "kafka", node, jars=jars, log=log)
            yield Broker(folder=folder, port=port, security=security, tokens=tokens)
        finally:
            processes.stop(grace_s=0)


def read(kafka: KafkaConnection, topic: str) -> list[bytes | None]:
    """The committed values of a topic with one log."""
    (mark,) = watermarks(kafka, describe_topic(kafka, topic))
    found: list[bytes | None] = []
    with open_consumer(kafka, "tests", {"enable.partition.eof": True}) as consumer:
        consumer.assign([KafkaPartition(topic, 0, mark.log_start)])
        while (message := consumer.poll(120)) is not None and message.error() is None:
            found.append(message.value())
    return found


@pytest.mark.parametrize("way", WAYS)
def test_both_clients_write_and_read_however_they_authenticate(broker: Broker, spark: SparkSession, way: str) -> None:
    kafka, topic = broker.connection(way), unique("both")
    assert ensure_topic(kafka, topic, partitions=1)
    producer = Producer(kafka.client({"transactional.id": unique("tests")}))
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(topic, b"from python")
    with open_consumer(kafka, "tests") as consumer:
        marker = [KafkaPartition(topic, 0, 1)]
        producer.send_offsets_to_transaction(marker, consumer.consumer_group_metadata(), 120)
        producer.commit_transaction(120)
        (committed,) = consumer.committed([KafkaPartition(topic, 0)], timeout=120)
    options = {**client_options(kafka), "topic": topic}
    spark.createDataFrame([("from spark",)], "value string").write.format("kafka").options(**options).save()
    assert (committed.offset, read(kafka, topic)) == (1, [b"from python", b"from spark"])
    source = {**client_options(kafka), "subscribe": topic, "kafka.isolation.level": "read_committed"}
    rows = spark.read.format("kafka").options(**source).load().select("value").collect()
    assert [bytes(row.value) for row in rows] == [b"from python", b"from spark"]


@pytest.mark.parametrize(
    ("way", "change", "cause", "hint"),
    [
        ("SCRAM-SHA-512", {"sasl.password": "wrong"}, "Authentication failed", "Check sasl.mechanism and the user"),
        ("PLAIN", {"sasl.password": "wrong"}, "Authentication failed", "Check sasl.mechanism and the user"),
        ("OAUTHBEARER", {"sasl.oauthbearer.client.secret": "wrong"}, "OAUTHBEARER token", "Check sasl.mechanism and"),
        ("PLAIN", {"ssl.ca.pem": "other"}, "certificate verify failed", "Check ssl.ca"),
    ],
)
def test_the_cause_that_librdkafka_hides_is_in_the_error(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    way: str,
    change: dict[str, str],
    cause: str,
    hint: str,
) -> None:
    properties = {**broker.connection(way).properties, **change}
    if "ssl.ca.pem" in change:
        properties["ssl.ca.pem"] = server_certificate(broker.folder / "other").ca.read_text()
    for module in (topics, positions):
        monkeypatch.setattr(module, "TIMEOUT_S", 10)
    with pytest.raises(ServiceError) as caught:
        describe_topic(KafkaConnection(properties), "t")
    assert cause in str(caught.value.found)
    assert str(caught.value.hint).startswith(hint)
    assert capfd.readouterr().err == ""


def test_a_spark_stream_and_a_consumer_continue_over_several_tokens(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    kafka, topic, seen = broker.connection("OAUTHBEARER"), unique("tokens"), list[str]()
    assert ensure_topic(kafka, topic, partitions=1)

    def collect(rows: DataFrame, _batch: int) -> None:
        seen.extend(row.value for row in rows.selectExpr("CAST(value AS string)").collect())

    options = {**client_options(kafka), "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("kafka").options(**options).load()
    query = stream.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path)).start()
    producer = Producer(kafka.client())
    sent, consumed = list[str](), list[str]()
    with open_consumer(kafka, "tests") as consumer:
        consumer.assign([KafkaPartition(topic, 0, 0)])
        end = time.monotonic() + 2.5 * TOKEN_S
        while time.monotonic() < end or len(consumed) < len(sent):
            if time.monotonic() < end:
                sent.append(str(len(sent)))
                producer.produce(topic, sent[-1])
            producer.poll(0)
            message = consumer.poll(0.1)
            if message is not None:
                error = message.error()
                if error is not None:  # a late token: the client logs in again by itself
                    assert error.code() == KafkaError._AUTHENTICATION, error
                    continue
                consumed.append((message.value() or b"").decode())
    assert producer.flush(120) == 0
    wait_until(lambda: len(seen) >= len(sent) or not query.isActive, "the stream reads all")
    query.stop()
    assert query.exception() is None
    assert (seen, consumed) == (sent, sent)


def test_a_client_whose_tokens_python_makes_continues_without_being_polled(broker: Broker) -> None:
    """As MSK's do: their callback is called while nobody polls the client."""
    topic, made = unique("callback"), list[float]()
    assert ensure_topic(broker.connection("PLAIN"), topic, partitions=1)

    def token(_: str) -> tuple[str, float]:
        made.append(time.time())
        return broker.tokens.token(ADMIN)["access_token"], time.time() + TOKEN_S

    own = {"sasl.oauthbearer.method": "default", "oauth_cb": token}
    kafka = broker.connection("OAUTHBEARER")
    with open_consumer(kafka, "tests", own) as consumer:
        end = time.monotonic() + 2.5 * TOKEN_S
        while time.monotonic() < end:  # a token as short as these ends before its successor is there
            ends = repeat_while_leaders_change(partial(consumer.get_watermark_offsets, KafkaPartition(topic, 0), 10))
            assert ends == (0, 0)
            time.sleep(0.5)
    assert len(made) >= 2
