"""One Kafka cluster, as every client reaches it: librdkafka in Python, and Kafka's own client in Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from tidemark.connections.client_errors import keep_error
from tidemark.connections.kafka_checks import checked
from tidemark.connections.kafka_java import java_settings
from tidemark.connections.kafka_names import LIBRDKAFKA, MECHANISM, MSK_IAM, SERVERS, SETTINGS, is_own
from tidemark.connections.msk_iam import MskToken

__all__ = ["SERVERS", "KafkaConnection"]


@dataclass(frozen=True, slots=True, repr=False)
class KafkaConnection:
    """Settings in librdkafka's names, checked. Its text is the brokers' addresses: settings hold secrets.

    Files are read when it is made: it can travel to machines that do not have them. Raises ConfigError.
    """

    properties: Mapping[str, str] = field(hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", checked(self.properties))

    @classmethod
    def plain(cls, servers: str) -> Self:
        """A cluster without security."""
        return cls({SERVERS: servers})

    @property
    def servers(self) -> str:
        return self.properties[SERVERS]

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of given settings that have no effect, because Tidemark decides on them."""
        return tuple(sorted(filter(is_own, self.properties)))

    def __str__(self) -> str:
        return self.servers

    def __repr__(self) -> str:
        return f"KafkaConnection({self.servers})"

    def at(self, servers: str) -> "KafkaConnection":
        """The same cluster, asked at other brokers."""
        return KafkaConnection({**self.properties, SERVERS: servers})

    def client(self, own: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """Settings for confluent-kafka's clients, with the client's ``own``, which come last.

        A client logs nothing while brokers are away, only what is critical: ``kafka_errors`` reports the cause.
        """
        given = self.properties
        derived: dict[str, Any] = {
            name: value for name, value in given.items() if name in SETTINGS and not name.startswith("aws.")
        }
        if given.get(MECHANISM) == MSK_IAM:
            derived |= {MECHANISM: "OAUTHBEARER", "oauth_cb": self._msk_token()}
        overrides = {
            name.removeprefix(LIBRDKAFKA): value
            for name, value in given.items()
            if name.startswith(LIBRDKAFKA) and not is_own(name)
        }
        return {"log_level": 2, "error_cb": keep_error, **derived, **overrides, **own}

    def _msk_token(self) -> MskToken:
        given = self.properties
        return MskToken(
            region=given["aws.region"],
            profile=given.get("aws.profile"),
            role_arn=given.get("aws.role.arn"),
            role_session=given.get("aws.role.session.name"),
        )

    def java(self) -> dict[str, str]:
        """Settings for Kafka's Java clients."""
        return java_settings(self.properties)
