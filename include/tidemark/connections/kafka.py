"""One Kafka cluster, as every client reaches it: librdkafka in Python, and Kafka's own client in Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

SERVERS = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """Settings in librdkafka's names. Its text is the brokers' addresses: settings hold secrets."""

    properties: Mapping[str, str] = field(repr=False, hash=False)

    @classmethod
    def plain(cls, servers: str) -> Self:
        """A cluster without security."""
        return cls({SERVERS: servers})

    @property
    def servers(self) -> str:
        return self.properties[SERVERS]

    def __str__(self) -> str:
        return self.servers

    def at(self, servers: str) -> "KafkaConnection":
        """The same cluster, asked at other brokers."""
        return KafkaConnection({**self.properties, SERVERS: servers})

    def client(self, own: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """Settings for confluent-kafka's clients, with the client's ``own``, which come last."""
        return {**self.properties, **own}

    def java(self) -> dict[str, str]:
        """Settings for Kafka's Java clients."""
        return dict(self.properties)
