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
from pydantic import Secret, SecretStr

from tests.tokens import Tokens, token_server
from tests.waiting import wait_until
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.core.offsets import TopicPartition
from tidemark.definitions.sections import Speed
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.kafka.acls import Acl, acls
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.settings import Settings
from tidemark.speed.exactly_once.batches import sink_of
from tidemark.speed.exactly_once.marker import commit_markers, delivered_until, ensure_markers, fence
from tidemark.stack.acls import grant, revoke
from tidemark.stack.certificates import client_certificate, server_certificate
from tidemark.stack.files import free_ports
from tidemark.stack.kafka import Node, start_kafka
from tidemark.stack.kafka_security import ADMIN, BrokerSecurity
from tidemark.stack.processes import Managed, Processes

pytestmark = pytest.mark.services

TOKEN_S = 10.0
SESSION_S = 20.0  # of SCRAM; a client authenticates again in the last tenth, and a busy machine may be late
TOPIC = "events"
REFUSED = "_AUTHENTICATION"


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
            session_ms=60_000,
        )
        try:
            managed = start_kafka(
                processes,
                folder / "kafka",
                Node(
                    port=port,
                    voters={1: controller},
                    security=security,
                    settings={
                        "listener.name.scram.scram-sha-512.connections.max.reauth.ms": str(round(SESSION_S * 1000))
                    },
                ),
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
    ("wrong", "expected"),
    [
        (lambda broker: wrong_password(broker, "SCRAM-SHA-512"), REFUSED),
        (lambda broker: wrong_password(broker, "SCRAM-SHA-256"), REFUSED),
        (lambda broker: wrong_password(broker, "PLAIN"), REFUSED),
        (lambda broker: broker.connection("OAUTHBEARER", Tokens.FORGED), REFUSED),
        (lambda broker: broker.connection("OAUTHBEARER", Tokens.ELSEWHERE), REFUSED),
        (lambda broker: broker.security.oauth(broker.tokens.source("archive", "wrong")), REFUSED),
        (of_another_authority, "alert certificate unknown"),
        (without_certificate, "alert bad certificate"),
        (with_another_ca, "certificate verify failed"),
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
def test_a_wrong_credential_is_refused(
    broker: Broker, wrong: Callable[[Broker], KafkaConnection], expected: str
) -> None:
    errors: list[KafkaError] = []
    client = Producer(wrong(broker).client({"error_cb": errors.append, "log_level": 0}))

    def is_refused() -> bool:
        client.poll(0.05)
        return any(expected in f"{error.name()}: {error.str()}" for error in errors)

    wait_until(is_refused, f"{expected} among {errors}")


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


@pytest.mark.parametrize(("way", "session_s"), [("OAUTHBEARER", TOKEN_S), ("SCRAM-SHA-512", SESSION_S)])
def test_a_producer_and_a_consumer_work_over_several_sessions(broker: Broker, way: str, session_s: float) -> None:
    """They authenticate again before a session ends, with a new token, because the broker refuses one after its end."""
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

    own = {"stats_cb": keep, "statistics.interval.ms": 200, "log_level": 0}
    connection = broker.connection(way, user)
    producer = Producer(connection.client(own))
    refusals: list[KafkaError] = []
    stale = with_one_token(broker, user, refusals)
    reader = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(connection.client({**own, **reader}))
    consumer.subscribe([topic])
    sent, read, issued = 0, list[int](), len(broker.tokens.issued)
    end = time.monotonic() + 2.5 * session_s
    try:
        while time.monotonic() < end or len(read) < sent:
            if time.monotonic() < end:
                producer.produce(topic, b"%d" % sent)
                sent += 1
            producer.poll(0)
            stale.poll(0)
            message = consumer.poll(0.05)
            if message is None:
                continue
            error = message.error()
            if error is not None:  # a late token: the client logs in again by itself
                assert (way, error.code()) == ("OAUTHBEARER", KafkaError._AUTHENTICATION), error
                continue
            read.append(int(message.value() or b""))
    finally:
        consumer.close()
        revoke(broker.admin, user, rights)
    assert producer.flush(60) == 0
    assert read == list(range(sent))
    if way == "OAUTHBEARER":
        assert len(broker.tokens.issued) - issued >= 2 * 2  # both clients, once per token's life
        assert REFUSED in {error.name() for error in refusals}
    else:
        # Not with tokens as short as these: the client looks for a new one once a second, so it uses up the last second
        # of an old one, and Kafka refuses to authenticate a connection twice within a second.
        lost = {kind: sum(item["disconnects"] for item in brokers) for kind, brokers in statistics.items()}
        assert lost == {"producer": 0, "consumer": 0}


def with_one_token(broker: Broker, user: str, errors: list[KafkaError]) -> Producer:
    """A connected client that presents its first token for ever; its errors are added to ``errors``."""
    token = broker.tokens.token(user)["access_token"]
    properties = broker.security.oauth(broker.tokens.source(user)).client(
        {
            "sasl.oauthbearer.method": "default",
            "oauth_cb": lambda _: (token, time.time() + 3600),
            "error_cb": errors.append,
            "log_level": 0,
            "reconnect.backoff.max.ms": 100,
        }
    )
    client = Producer(properties)
    assert client.list_topics(timeout=20).brokers
    return client


def test_the_permissions_of_the_speed_layer_let_it_commit_markers_and_each_is_needed(
    broker: Broker, tmp_path: Path
) -> None:
    known = Settings(
        kafka_bootstrap=str(broker.connection("SCRAM-SHA-256", "speed")),
        kafka_properties=Secret(dict(broker.connection("SCRAM-SHA-256", "speed").properties)),
        s3_access_key=SecretStr("unused"),
        s3_secret_key=SecretStr("unused"),
        bucket="lake",
        catalog_uri="jdbc:sqlite:unused",
        streams_dir=tmp_path,
    )
    topics = Speed(topic="marked", dead_letter_topic="unmarked", delivery="exactly_once")
    stream = Stream(name="marks", topic=TOPIC, value_schema="n BIGINT", speed=topics)
    rights = acls("speed", stream, known)
    log = TopicPartition(topic=TOPIC, topic_id="an-id", partition=0)
    sink = replace(sink_of(stream, known, log.topic_id), timeout_s=20)

    def deliver(position: int) -> dict[int, int]:
        ensure_markers(sink.kafka, sink.marker_topic, 1)
        commit_markers(fence(sink, log), sink, {0: position})
        return delivered_until(sink, [log])

    grant(broker.admin, "speed", rights)
    try:
        assert deliver(7) == {0: 7}
        needed = [item for item in rights if item.prefixed or (item.name, item.operation) == ("marked.markers", "Read")]
        assert len(needed) == 3
        for number, item in enumerate(needed, start=10):
            revoke(broker.admin, "speed", [item])
            with pytest.raises(ServiceError, match="AUTHORIZATION_FAILED"):
                deliver(number)
            grant(broker.admin, "speed", [item])
        assert deliver(8) == {0: 8}
    finally:
        revoke(broker.admin, "speed", rights)
