"""A broker with a listener per mechanism: who is let in, who is not, and sessions that outlive their tokens."""

import json
import secrets
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.tokens import Tokens, token_server
from tests.waiting import wait_until
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.kafka.acls import Acl
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.stack.acls import grant, revoke
from tidemark.stack.certificates import client_certificate, server_certificate
from tidemark.stack.files import free_ports
from tidemark.stack.kafka import Node, start_kafka
from tidemark.stack.kafka_security import ADMIN, BrokerSecurity
from tidemark.stack.local import PROJECT
from tidemark.stack.processes import Managed, Processes

pytestmark = pytest.mark.services

SESSION_MS = 2_000
TOKEN_S = 3.0
TOPIC = "events"
REFUSED = KafkaError._AUTHENTICATION
NO_TLS = KafkaError._SSL


@dataclass(frozen=True, kw_only=True)
class Broker:
    """The running broker, and its admin. ``commands``: the arguments of every process that made it."""

    folder: Path
    port: int
    security: BrokerSecurity
    tokens: Tokens
    managed: Managed
    commands: list[list[str]]
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "admin", AdminClient(self.security.plain(ADMIN).client()))

    def connection(self, way: str, user: str) -> KafkaConnection:
        """A connection that authenticates the user in this way."""
        secure = self.security
        match way:
            case "SCRAM-SHA-512" | "SCRAM-SHA-256":
                return secure.scram(self.port, user, mechanism=way)
            case "PLAIN":
                return secure.plain(user)
            case "OAUTHBEARER":
                return secure.oauth(self.tokens.source(user))
        return secure.mutual_tls(client_certificate(self.folder / "tls", user))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("secured")
    port, controller, plain, oauth, mutual = free_ports(5)
    processes, commands = Processes(), []
    run = subprocess.run

    def recorded(argv: list[str], **options: Any) -> Any:
        commands.append(argv)
        return run(argv, **options)

    with token_server(life_s=TOKEN_S) as tokens, pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", recorded)
        security = BrokerSecurity(
            certificate=server_certificate(folder / "tls"),
            passwords={user: secrets.token_urlsafe(12) for user in (ADMIN, "archive", "speed")},
            plain_port=plain,
            oauth_port=oauth,
            tokens=tokens.issuer,
            mutual_tls_port=mutual,
            session_ms=SESSION_MS,
        )
        try:
            managed = start_kafka(
                processes,
                folder / "kafka",
                Node(port=port, voters={1: controller}, security=security),
                jars=PROJECT / ".tidemark" / "jars" / "kafka",
                log=folder / "kafka.log",
            )
            commands.append(psutil.Process(managed.pid).cmdline())
            found = Broker(
                folder=folder, port=port, security=security, tokens=tokens, managed=managed, commands=commands
            )
            assert ensure_topic(security.plain(ADMIN), TOPIC, partitions=1)
            yield found
        finally:
            processes.stop(grace_s=0)


WAYS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER", "mutual TLS")


@pytest.mark.parametrize("way", WAYS)
def test_a_user_may_do_what_an_acl_allows_however_it_authenticates(broker: Broker, way: str) -> None:
    reads = Acl(cluster="source", resource="topic", name=TOPIC, operation="Read", purpose="reads")
    connection = broker.connection(way, "archive")
    with pytest.raises(ServiceError, match="TOPIC_AUTHORIZATION_FAILED"):
        describe_topic(connection, TOPIC)
    grant(broker.admin, "archive", [reads])
    try:
        (log,) = describe_topic(connection, TOPIC)
        (mark,) = watermarks(connection, [log])
    finally:
        revoke(broker.admin, "archive", [reads])
    assert mark.log_start == 0
    with pytest.raises(ServiceError, match="TOPIC_AUTHORIZATION_FAILED"):
        describe_topic(connection, TOPIC)


def wrong_password(broker: Broker, way: str) -> KafkaConnection:
    return KafkaConnection({**broker.connection(way, "archive").properties, "sasl.password": "wrong"})


def of_another_authority(broker: Broker) -> KafkaConnection:
    return broker.security.mutual_tls(client_certificate(broker.folder / "other", "archive"))


def without_certificate(broker: Broker) -> KafkaConnection:
    properties = broker.connection("mutual TLS", "archive").properties
    return KafkaConnection(
        {name: value for name, value in properties.items() if "key" not in name and "cert" not in name}
    )


def with_another_ca(broker: Broker) -> KafkaConnection:
    other = server_certificate(broker.folder / "other")
    return replace(broker.security, certificate=other).scram(broker.port, "archive")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda broker: wrong_password(broker, "SCRAM-SHA-512"), REFUSED),
        (lambda broker: wrong_password(broker, "SCRAM-SHA-256"), REFUSED),
        (lambda broker: wrong_password(broker, "PLAIN"), REFUSED),
        (lambda broker: broker.connection("OAUTHBEARER", Tokens.FORGED), REFUSED),
        (lambda broker: broker.connection("OAUTHBEARER", Tokens.ELSEWHERE), REFUSED),
        (lambda broker: broker.security.oauth(broker.tokens.source("archive", "wrong")), REFUSED),
        (of_another_authority, NO_TLS),
        (without_certificate, NO_TLS),
        (with_another_ca, NO_TLS),
    ],
    ids=[
        "SCRAM-SHA-512",
        "SCRAM-SHA-256",
        "PLAIN",
        "token signed by another key",
        "token for another audience",
        "wrong secret for tokens",
        "certificate of another authority",
        "no certificate",
        "server of another authority",
    ],
)
def test_a_wrong_credential_is_refused(broker: Broker, wrong: Callable[[Broker], KafkaConnection], code: int) -> None:
    errors: list[KafkaError] = []
    client = Producer(wrong(broker).client({"error_cb": errors.append, "log_level": 0}))

    def is_refused() -> bool:
        client.poll(0.05)
        return any(error.code() == code for error in errors)

    wait_until(is_refused, "the broker refuses it")


def test_no_process_has_a_password_among_its_arguments_and_no_other_user_can_read_one(broker: Broker) -> None:
    assert [argv[argv.index("-cp") + 2] for argv in broker.commands] == ["kafka.tools.StorageTool", "kafka.Kafka"]
    arguments = {word for argv in broker.commands for word in argv}
    assert [word for word in arguments for password in broker.security.passwords.values() if password in word] == []
    secret = [*broker.security.passwords.values(), "PRIVATE KEY"]
    holders = [
        path
        for path in broker.folder.rglob("*")
        if path.is_file() and any(text in path.read_text(encoding="utf-8", errors="replace") for text in secret)
    ]
    assert broker.folder / "kafka" / "server.properties" in holders
    assert [path for path in holders if stat.S_IMODE(path.stat().st_mode) != 0o600] == []
    assert not any(text in repr(broker.security) for text in secret)


@pytest.mark.parametrize("way", ["OAUTHBEARER", "SCRAM-SHA-512"])
def test_a_producer_and_a_consumer_go_on_over_several_sessions(broker: Broker, way: str) -> None:
    """Their connections stay open, because they authenticate again before a session or a token ends."""
    user, topic = "speed", f"sessions-{way}"
    assert ensure_topic(broker.connection("PLAIN", ADMIN), topic, partitions=1)
    rights = [
        Acl(cluster="live", resource="topic", name=topic, operation="Write", purpose="writes"),
        Acl(cluster="live", resource="topic", name=topic, operation="Read", purpose="reads"),
        Acl(cluster="live", resource="group", name="readers", operation="Read", purpose="reads"),
    ]
    grant(broker.admin, user, rights)
    statistics: dict[str, Any] = {}

    def keep(text: str) -> None:
        found = json.loads(text)
        statistics[found["type"]] = found["brokers"].values()

    own = {"stats_cb": keep, "statistics.interval.ms": 200}
    connection = broker.connection(way, user)
    producer = Producer(connection.client(own))
    reader = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(connection.client({**own, **reader}))
    consumer.subscribe([topic])
    sent, read, began, issued = 0, [], time.monotonic(), len(broker.tokens.issued)
    try:
        while time.monotonic() - began < 3 * TOKEN_S or len(read) < sent:
            if time.monotonic() - began < 3 * TOKEN_S:
                producer.produce(topic, b"%d" % sent)
                sent += 1
            producer.poll(0)
            message = consumer.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                read.append(int(message.value()))
    finally:
        consumer.close()
        revoke(broker.admin, user, rights)
    assert producer.flush(10) == 0
    assert read == list(range(sent))
    lost = {kind: sum(item["disconnects"] for item in brokers) for kind, brokers in statistics.items()}
    assert lost == {"producer": 0, "consumer": 0}
    if way == "OAUTHBEARER":
        assert len(broker.tokens.issued) - issued >= 2 * 3  # both clients, once per token's life
