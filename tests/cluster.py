"""A cluster of real Kafka brokers whose members can be killed, stopped, held and started again one by one.

Beside the stack's broker, for tests of what happens when one of several fails. Starts a controller of its own, so
that any of the brokers may go, or all. An authoriser is on and lets everyone do what no ACL speaks of; clients and
brokers all are ``User:ANONYMOUS``.
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # in its docs
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.cimpl import NewTopic  # where its stub is

from tests.waiting import wait_until
from tidemark.connections.kafka import KafkaConnection
from tidemark.installation import PROJECT
from tidemark.stack.files import free_ports
from tidemark.stack.kafka import Node, new_cluster_id, start_kafka
from tidemark.stack.processes import Managed, Processes

CONTROLLER = 100
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # By default a topic with unclean elections waits up to five minutes for one.
    "unclean.leader.election.interval.ms": "500",
}


class Cluster:
    """Running brokers 1, 2, …; ``bootstrap`` names them all. A test that takes one away ends with ``heal()``."""

    def __init__(self, ports: dict[int, int], brokers: dict[int, Managed]) -> None:
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self.kafka = KafkaConnection.plain(self.bootstrap)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._brokers = brokers

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._brokers)

    def kill(self, broker: int) -> None:
        """SIGKILL. What it led has a new leader some nine seconds later."""
        self._brokers[broker].kill()

    def stop(self, broker: int) -> None:
        """SIGTERM: it hands over what it leads, and ends."""
        self._brokers[broker].stop()

    def start(self, broker: int) -> None:
        """Start it again over its data; returns when the cluster has it back."""
        self._brokers[broker].launch()

    @contextmanager
    def without(self, *numbers: int) -> Iterator[None]:
        """Those brokers killed, and the cluster whole again at the end."""
        try:
            for number in numbers:
                self.kill(number)
            yield
        finally:
            self.heal()

    def pause(self, broker: int) -> None:
        """SIGSTOP: its connections stay open and nothing answers."""
        os.kill(self._brokers[broker].pid, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """SIGCONT."""
        os.kill(self._brokers[broker].pid, signal.SIGCONT)

    def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        copies: int = 3,
        on: list[list[int]] | None = None,
        **config: str,
    ) -> str:
        """The topic's name, once every broker knows it; ``config`` keys are Kafka's with ``_`` for ``.``.

        ``on`` names the brokers of each partition, its leader first. Without another ``retention_ms`` it keeps records
        of any age.
        """
        wanted = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        placed = {"replication_factor": copies} if on is None else {"replica_assignment": on}
        number = partitions if on is None else len(on)
        self.admin.create_topics([NewTopic(topic, number, config=wanted, **placed)])[topic].result()
        wait_until(
            lambda: all(self._knows(address, topic) for address in self.bootstrap.split(",")), "a topic is known"
        )
        return topic

    def deny(self, topic: str, operation: AclOperation) -> None:
        """Forbid everyone one thing, and allow all else."""
        rules = ((operation, AclPermissionType.DENY), (AclOperation.ALL, AclPermissionType.ALLOW))
        bindings = [
            AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", what, how)
            for what, how in rules
        ]
        for done in self.admin.create_acls(bindings).values():
            done.result()

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The id of the partition's leader as the brokers tell it now; None where there is none."""
        return self._partition(topic, partition)[0]

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Ids of the replicas in sync, ascending, as the brokers tell them now."""
        return self._partition(topic, partition)[1]

    def heal(self) -> None:
        """Start what does not run, and return when every partition of every topic has all its replicas in sync."""
        for number, managed in self._brokers.items():
            if managed.returncode is not None:
                managed.launch()
            else:
                self.resume(number)
        wait_until(self._whole, "every replica of the cluster is in sync")

    def _partition(self, topic: str, partition: int) -> tuple[int | None, tuple[int, ...]]:
        # By metadata, which any broker has: the client sends other questions to one broker until it learns better.
        info = self._topics()[topic].partitions[partition]
        return (None if info.leader < 0 else info.leader), tuple(sorted(info.isrs))

    def _topics(self) -> Mapping[str, TopicMetadata]:
        deadline = time.monotonic() + 120
        while True:
            try:
                return self.admin.list_topics(timeout=60).topics
            except KafkaException:  # the broker may be paused, or stopped
                if time.monotonic() > deadline:
                    raise

    def _knows(self, address: str, topic: str) -> bool:
        one = AdminClient({"bootstrap.servers": address, "log_level": 0})
        known = one.list_topics(timeout=30).topics.get(topic)
        return known is not None and all(item.leader >= 0 for item in known.partitions.values())

    def _whole(self) -> bool:
        try:
            known = self.admin.list_topics(timeout=30)
        except KafkaException:
            return False
        return len(known.brokers) == len(self._brokers) and all(
            len(partition.isrs) == len(partition.replicas) and partition.leader >= 0
            for topic in known.topics.values()
            for partition in topic.partitions.values()
        )


@contextmanager
def cluster(folder: Path, *, brokers: int = 3) -> Iterator[Cluster]:
    """Start it with its data in ``folder``; killed at the end."""
    jars = PROJECT / ".tidemark" / "jars" / "kafka"
    controller_port, *broker_ports = free_ports(brokers + 1)
    ports = dict(enumerate(broker_ports, start=1))
    cluster_id = new_cluster_id()
    processes = Processes()

    def node(number: int) -> Managed:
        name = f"kafka-{number}"
        wanted = Node(
            id=number,
            name=name,
            port=ports.get(number),
            voters={CONTROLLER: controller_port},
            cluster_id=cluster_id,
            replicas=min(brokers, 3),
            ready_s=300,
            heap="320m" if number in ports else "192m",
            settings=SETTINGS,
        )
        return start_kafka(processes, folder / name, wanted, jars=jars, log=folder / f"{name}.log")

    try:
        node(CONTROLLER)
        yield Cluster(ports, {number: node(number) for number in ports})
    finally:
        processes.stop(grace_s=0)
