"""Permissions in Kafka on a broker with TLS, users and ACLs: each one removed by itself is the one red line."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import Secret

from tests.doctor.lines import of_state, red
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError
from tidemark.definitions.stream import Stream
from tidemark.inspect.doctor import kafka_rights
from tidemark.inspect.doctor.checkup import Checkup, run_checks
from tidemark.inspect.doctor.roles import USES_KAFKA, Role
from tidemark.installation import PROJECT
from tidemark.kafka import permitted as permitted_operations
from tidemark.kafka.acls import Acl, acls
from tidemark.kafka.names import marker_topic
from tidemark.kafka.permitted import permitted
from tidemark.kafka.reach import reach
from tidemark.kafka.topics import admin_client, ensure_topic
from tidemark.settings import Settings
from tidemark.stack import acls as stack_acls
from tidemark.stack.acls import grant
from tidemark.stack.certificates import server_certificate
from tidemark.stack.files import free_ports
from tidemark.stack.kafka import Node, start_kafka
from tidemark.stack.kafka_security import ADMIN, BrokerSecurity
from tidemark.stack.processes import Processes

pytestmark = [pytest.mark.services, pytest.mark.conformance(64)]

STREAM = Stream.model_validate(
    {
        "name": "orders",
        "topic": "orders",
        "value_schema": "n BIGINT",
        "speed": {"topic": "orders.live", "dead_letter_topic": "orders.dead", "delivery": "exactly_once"},
    }
)
SETTINGS = Settings.model_validate(
    {
        "kafka_bootstrap": "unused:1",
        "s3_access_key": "unused",
        "s3_secret_key": "unused",
        "bucket": "lake",
        "catalog_uri": "jdbc:sqlite:unused",
    }
)


def needed(role: Role) -> tuple[Acl, ...]:
    """What the role needs, each once, without DESCRIBE where another permission includes it by Kafka's rules."""
    found = acls(role, STREAM, SETTINGS)
    describing = {(acl.resource, acl.name) for acl in found if acl.operation in {"Read", "Write", "Alter"}}
    return tuple(acl for acl in found if acl.operation != "Describe" or (acl.resource, acl.name) not in describing)


ROLES: tuple[Role, ...] = tuple(sorted(USES_KAFKA))
# A user for each permission of each role that lacks just that one, and one per role that lacks none.
LACKING: dict[str, tuple[Role, Acl | None]] = {
    f"{role}-{number}": (role, acl) for role in ROLES for number, acl in enumerate((None, *needed(role)))
}


@dataclass(frozen=True, kw_only=True)
class SecuredBroker:
    """The running broker, with every user of ``LACKING``."""

    port: int
    security: BrokerSecurity


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("rights")
    port, controller, plain = free_ports(3)
    security = BrokerSecurity(
        certificate=server_certificate(folder / "tls"),
        passwords={user: secrets.token_hex(16) for user in (ADMIN, *LACKING)},
        plain_port=plain,
    )
    processes, patch = Processes(), pytest.MonkeyPatch()
    # A busy broker needs its time for so many users, and for each call.
    patch.setattr(stack_acls, "TIMEOUT_S", 30 * len(LACKING))
    patch.setattr(permitted_operations, "TIMEOUT_S", 30)
    try:
        node = Node(port=port, voters={1: controller}, security=security)
        start_kafka(processes, folder / "kafka", node, jars=PROJECT / ".tidemark/jars/kafka", log=folder / "kafka.log")
        cluster = security.plain(ADMIN)
        speed = STREAM.speed
        for topic in (STREAM.topic, speed.topic, speed.dead_letter_topic):
            ensure_topic(cluster, topic, partitions=1)
        for topic in (speed.topic, speed.dead_letter_topic):
            ensure_topic(cluster, marker_topic(topic), partitions=1)
        permitted(cluster, "group", "first", frozenset({"Describe"}))  # creates Kafka's own topics
        permitted(cluster, "transactional-id", "first", frozenset({"Write"}))
        admin = admin_client(cluster)

        def grant_all_but_one(user: str) -> None:
            role, lacking = LACKING[user]
            grant(admin, user, [acl for acl in needed(role) if acl != lacking])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(grant_all_but_one, LACKING))
        yield SecuredBroker(port=port, security=security)
    finally:
        patch.undo()
        processes.stop()


def rights(cluster: KafkaConnection, role: Role) -> tuple[Checkup, ...]:
    properties = Secret(dict(cluster.properties))
    settings = SETTINGS.model_copy(update={"kafka_bootstrap": cluster.servers, "kafka_properties": properties})
    checks = kafka_rights.rights_checks(settings, [STREAM], [role])
    return tuple(run_checks(tuple(checks), lambda _: None))


def test_each_permission_removed_by_itself_is_the_only_red_line_and_named_by_it(secured: SecuredBroker) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = dict(
            zip(
                LACKING,
                pool.map(lambda user: rights(secured.security.plain(user), LACKING[user][0]), LACKING),
                strict=True,
            )
        )
    for user, (role, lacking) in LACKING.items():
        if lacking is None:
            assert of_state(found[user], "failed", "skipped") == [], role
            continue
        line = red(found[user])
        name = "cluster" if lacking.resource == "cluster" else f"{lacking.resource} {lacking.name}"
        assert line.name == f"{lacking.operation} on {name}{'*' if lacking.prefixed else ''}", user
        assert role in line.found
        assert line.hint == lacking.command(secured.security.plain(user).servers, f"User:{user}")


def test_a_wrong_password_and_an_unknown_authority_are_different_errors(secured: SecuredBroker, tmp_path: Path) -> None:
    other = server_certificate(tmp_path).ca
    good = secured.security.scram(secured.port, "archive-0")
    for properties, problem in (
        ({**good.properties, "sasl.password": "wrong"}, "Kafka refuses the user"),
        ({**good.properties, "ssl.ca.pem": other.read_text(encoding="ascii")}, "no TLS connection to Kafka"),
        ({"bootstrap.servers": good.servers}, "Kafka is unreachable"),
    ):
        with pytest.raises(ServiceError) as raised:
            reach(KafkaConnection(properties))
        assert raised.value.problem == problem
        assert raised.value.hint
        assert "wrong" not in str(raised.value)
    assert reach(good).brokers == (f"127.0.0.1:{secured.port}",)
