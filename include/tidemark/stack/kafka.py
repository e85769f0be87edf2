"""One Kafka broker, which is its own controller (KRaft), on 127.0.0.1."""

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidemark.core.errors import StackError
from tidemark.stack.java import java_argv
from tidemark.stack.processes import Managed, Processes

READY_S = 60
MAX_RECORD_BYTES = 16 * 1024 * 1024
LOGGING = {
    "org.slf4j.simpleLogger.defaultLogLevel": "warn",
    "org.slf4j.simpleLogger.showDateTime": "true",
    "org.slf4j.simpleLogger.dateTimeFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
}


def start_kafka(
    processes: Processes, folder: Path, *, jars: Path, log: Path, port: int, controller_port: int
) -> Managed:
    """Start the broker over the data in ``folder``, which is formatted first where it is new.

    Raises StackError when it can't be formatted or is not ready within a minute.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "server.properties"
    config.write_text(_properties(_config(folder, port, controller_port)), encoding="utf-8")
    if not (folder / "data" / "meta.properties").exists():
        _format(config, jars)
    argv = java_argv(jars, "kafka.Kafka", str(config), heap="512m", properties=LOGGING)
    probe = _Probe(f"127.0.0.1:{port}")
    return processes.start("kafka", argv, env={}, ready=probe.answers, timeout_s=READY_S, log=log, cwd=folder)


def _config(folder: Path, port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / "data"),
        # A misspelt topic is an error, not a new topic.
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # The offsets of a group nobody joins are the speed layer's memory: keep them for ten years.
        "offsets.retention.minutes": str(10 * 366 * 24 * 60),
        "message.max.bytes": str(MAX_RECORD_BYTES),
        "replica.fetch.max.bytes": str(MAX_RECORD_BYTES),
        # The default of 128 MiB is a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }


def _properties(config: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in config.items())


def _format(config: Path, jars: Path) -> None:
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)
    argv = java_argv(
        jars, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config), heap="256m", properties=LOGGING
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=READY_S, check=False)
    if done.returncode != 0:
        raise StackError(
            "Kafka could not format its folder", found=(done.stdout + done.stderr).strip(), where=str(config.parent)
        )


class _Probe:
    """Asks for the cluster's description until a broker that isn't fenced answers."""

    def __init__(self, bootstrap: str) -> None:
        # Refused connections are expected until the broker listens; librdkafka would log each.
        self._admin = AdminClient(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 100,
            }
        )

    def answers(self) -> bool:
        try:
            return bool(self._admin.describe_cluster(request_timeout=1).result(timeout=5).nodes)
        except (KafkaException, TimeoutError):
            return False
