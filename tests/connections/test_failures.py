"""Why Kafka can't be reached is in the error, not in the terminal."""

import socket
from collections.abc import Callable, Iterator

import pytest

from tidemark.connections.client_errors import keep_error, kept_errors
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ConfigError, ServiceError
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.kafka import log_reader, positions, topics
from tidemark.kafka.log_ends import LogEnds
from tidemark.kafka.log_reader import LogReader
from tidemark.kafka.positions import backlog, first_records, watermarks
from tidemark.kafka.topics import describe_topic, ensure_topic, topic_config

LOG = TopicPartition(topic="t", topic_id="i", partition=0)
# No name server is asked for a name like this.
UNKNOWN = KafkaConnection.plain("a..b:9092")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (topics, positions):
        monkeypatch.setattr(module, "TIMEOUT_S", 1)
    monkeypatch.setattr("tidemark.kafka.log_ends.TIMEOUT_S", 1)
    monkeypatch.setattr(log_reader, "_PATIENCE_S", 1)


@pytest.fixture
def silent() -> Iterator[KafkaConnection]:
    """A port on which nobody answers."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield KafkaConnection.plain(f"127.0.0.1:{held.getsockname()[1]}")


def read(kafka: KafkaConnection) -> object:
    with LogReader(kafka, LOG, committed=True) as reader:
        return reader.read(OffsetRange(start=0, end=1))


CALLS: dict[str, Callable[[KafkaConnection], object]] = {
    "describe": lambda kafka: describe_topic(kafka, "t"),
    "create": lambda kafka: ensure_topic(kafka, "t", partitions=1),
    "settings": lambda kafka: topic_config(kafka, "t"),
    "ends": lambda kafka: LogEnds(kafka).ask([LOG]),
    "watermarks": lambda kafka: watermarks(kafka, [LOG]),
    "backlog": lambda kafka: backlog(kafka, "t", {}, timeout_s=1),
    "first records": lambda kafka: first_records(kafka, {LOG: 0}),
    "read": read,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_unknown_host_is_named_by_every_call_and_the_terminal_stays_empty(
    call: Callable[[KafkaConnection], object], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ServiceError) as caught:
        call(UNKNOWN)
    assert "Failed to resolve 'a..b:9092'" in str(caught.value.found)
    assert caught.value.hint == "Check the host names in bootstrap.servers, and those that the brokers advertise"
    assert capfd.readouterr() == ("", "")


def test_a_port_where_nobody_answers_is_named(silent: KafkaConnection, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ServiceError) as caught:
        describe_topic(silent, "t")
    assert "Connection refused" in str(caught.value.found)
    assert str(caught.value.hint).startswith("Check that its brokers answer there, and security.protocol")
    assert capfd.readouterr() == ("", "")


def test_an_earlier_calls_cause_is_not_given_for_a_later_one(silent: KafkaConnection) -> None:
    for kafka, cause in ((UNKNOWN, "Failed to resolve"), (silent, "Connection refused")):
        with pytest.raises(ServiceError, match=cause) as caught:
            describe_topic(kafka, "t")
    assert "resolve" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("no.such", "x"), ("socket.timeout.ms", "x")])
def test_a_setting_that_librdkafka_refuses_is_a_wrong_setting(name: str, value: str) -> None:
    kafka = KafkaConnection({"bootstrap.servers": "h:1", f"librdkafka.{name}": value})
    with pytest.raises(ConfigError, match="librdkafka refuses a setting") as caught:
        describe_topic(kafka, "t")
    assert name in str(caught.value.found)


def test_of_each_kind_of_error_the_last_is_kept() -> None:
    class Reported:
        def __init__(self, code: int, text: str) -> None:
            self.number, self.text = code, text

        def code(self) -> int:
            return self.number

    for number, text in ((1, "a"), (2, "b"), (1, "c")):
        keep_error(Reported(number, text))
    assert [(error.number, error.text) for error in kept_errors()][:2] == [(1, "c"), (2, "b")]
