"""Kafka nodes (KRaft) on 127.0.0.1: a single one for the local stack, or several as a cluster."""

import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import StackError
from tidemark.stack import kafka_security
from tidemark.stack.files import properties_text, write_private
from tidemark.stack.java import java_argv
from tidemark.stack.kafka_security import ADMIN, BrokerSecurity
from tidemark.stack.processes import Managed, Processes

FORMAT_S = 60
MAX_RECORD_BYTES = 16 * 1024 * 1024
LOGGING = {
    "org.slf4j.simpleLogger.defaultLogLevel": "warn",
    "org.slf4j.simpleLogger.showDateTime": "true",
    "org.slf4j.simpleLogger.dateTimeFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
}


def new_cluster_id() -> str:
    """A random cluster id in Kafka's format, shared by the nodes of one cluster."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One Kafka process and its place in the cluster; all processes are on 127.0.0.1.

    ``voters`` are the ports of the cluster's controllers, by node id. ``port`` is the broker's, None for a controller
    without a broker. ``replicas`` is the number of replicas of Kafka's own topics; above 1, a majority must acknowledge
    every write. ``settings`` are added to the server's properties, and override them. ``essential`` as in
    ``Processes.start``. With ``security``, which has the same passwords on every node, ``port`` is its SCRAM listener.
    """

    voters: Mapping[int, int]
    port: int | None
    id: int = 1
    name: str = "kafka"
    cluster_id: str = field(default_factory=new_cluster_id)
    replicas: int = 1
    ready_s: float = 60
    heap: str = "512m"
    settings: Mapping[str, str] = field(default_factory=dict)
    essential: bool = False
    security: BrokerSecurity | None = None


def start_kafka(processes: Processes, folder: Path, node: Node, *, jars: Path, log: Path) -> Managed:
    """Start the node with the data in ``folder``. A new folder is formatted first."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "server.properties"
    write_private(config, properties_text(_config(folder, node)))
    if not (folder / "data" / "meta.properties").exists():
        _format(config, jars, node.cluster_id)
    secure = node.security
    java = {} if secure is None else kafka_security.java_properties(secure)
    argv = java_argv(jars, "kafka.Kafka", str(config), heap=node.heap, properties={**LOGGING, **java})
    if node.port is None:
        ready = _listens(node.voters[node.id])
    else:
        plain = KafkaConnection.plain(f"127.0.0.1:{node.port}")
        ready = _answers(plain if secure is None else secure.plain(ADMIN), node.id)
    started = processes.start(
        node.name, argv, env={}, ready=ready, timeout_s=node.ready_s, log=log, cwd=folder, essential=node.essential
    )
    if secure is not None and node.port is not None:
        kafka_security.create_scram_users(secure, node.port)
    return started


def _config(folder: Path, node: Node) -> dict[str, str]:
    return {
        "node.id": str(node.id),
        **_listeners(node),
        "controller.quorum.voters": ",".join(f"{number}@127.0.0.1:{port}" for number, port in node.voters.items()),
        "controller.listener.names": "CONTROLLER",
        **_security(node),
        "log.dirs": str(folder / "data"),
        **server_defaults(node.replicas),
        **node.settings,
    }


def server_defaults(replicas: int) -> dict[str, str]:
    """The properties that are the same on every node of a cluster whose own topics have this many replicas."""
    return {
        # A misspelt topic is an error, not a new topic.
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        **_copies(replicas),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        # The speed layer's markers are offsets of a group without members: keep them for ten years.
        "offsets.retention.minutes": str(10 * 366 * 24 * 60),
        "message.max.bytes": str(MAX_RECORD_BYTES),
        "replica.fetch.max.bytes": str(MAX_RECORD_BYTES),
        # The default of 128 MiB is a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }


def _listeners(node: Node) -> dict[str, str]:
    addresses = [f"{name}://127.0.0.1:{port}" for name, port in _ports(node).items()]
    advertised = {"advertised.listeners": ",".join(addresses)} if addresses else {}
    roles = ["broker"] if addresses else []
    if node.id in node.voters:
        roles.append("controller")
        addresses.append(f"CONTROLLER://127.0.0.1:{node.voters[node.id]}")
    return {"process.roles": ",".join(roles), "listeners": ",".join(addresses), **advertised}


def _ports(node: Node) -> dict[str, int]:
    """The broker's ports by listener."""
    if node.port is None:
        return {}
    return {"PLAINTEXT": node.port} if node.security is None else kafka_security.listeners(node.security, node.port)


def _security(node: Node) -> dict[str, str]:
    if node.security is None:
        return {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    return kafka_security.server_properties(node.security)


def _copies(replicas: int) -> dict[str, str]:
    majority = str(replicas // 2 + 1)
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": majority,
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": majority,
        # The offsets topic has no such setting of its own.
        "min.insync.replicas": majority,
    }


def _format(config: Path, jars: Path, cluster_id: str) -> None:
    argv = java_argv(
        jars, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config), heap="256m", properties=LOGGING
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=FORMAT_S, check=False)
    if done.returncode != 0:
        raise StackError(
            "Kafka could not format its folder", found=(done.stdout + done.stderr).strip(), where=str(config.parent)
        )


def _listens(port: int) -> Callable[[], bool]:
    def answers() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    return answers


def _answers(connection: KafkaConnection, node_id: int) -> Callable[[], bool]:
    """Whether a broker is part of the cluster that it describes, which means that it is no longer fenced."""
    # Refused connections are normal until the broker listens; librdkafka would log each of them.
    quiet = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100}
    admin = AdminClient(connection.client(quiet))

    def answers() -> bool:
        try:
            nodes = admin.describe_cluster(request_timeout=1).result(timeout=5).nodes
        except (KafkaException, TimeoutError):
            return False
        return any(node.id == node_id for node in nodes)

    return answers
