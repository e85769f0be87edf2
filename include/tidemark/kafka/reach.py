"""Whether a cluster answers, and if not, why: librdkafka reports a failed connection as a time-out."""

import re
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ConfigError, ServiceError

REACH_S = 8.0
# After one broker refused the connection, the others have this time to answer.
_REFUSED_S = 2.0
_POLL_S = 0.05
# The first that was seen is the cause; a time-out follows each of them.
_CAUSES = (
    (
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - the library's public constants begin with an underscore
        "Kafka refuses the user",
        "Check user and password (or token) and sasl.mechanism; the broker's log names the user",
    ),
    (
        KafkaError._SSL,  # noqa: SLF001
        "no TLS connection to Kafka",
        "Check ssl.ca.location (who signed the broker's certificate), the name in it, and that the port has TLS",
    ),
    (
        KafkaError._RESOLVE,  # noqa: SLF001
        "Kafka's host name can't be resolved",
        "Correct the host name in TIDEMARK_KAFKA_BOOTSTRAP, or this machine's DNS",
    ),
    (
        KafkaError._BAD_MSG,  # noqa: SLF001
        "the server that answers does not speak Kafka's protocol",
        "Check the port, and security.protocol: a port with TLS needs SSL or SASL_SSL",
    ),
    (
        KafkaError._TRANSPORT,  # noqa: SLF001
        "Kafka is unreachable",
        "Check that its brokers run, and that this machine may connect to them (address, port, firewall)",
    ),
)
_PROTOCOL = re.compile(r"security\.protocol|PLAINTEXT broker listener|requesting ApiVersion", re.IGNORECASE)
_PROTOCOL_HINT = "Check security.protocol: the port expects another one (PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL)"
# The state of librdkafka's connection, and its name of a bootstrap server.
_DETAIL = re.compile(r" \(after \d+ms in state \w+(, [^)]*)?\)|(?<=\d)/(bootstrap|\d+)(?=:)|^[a-z_]+://")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedCluster:
    """What a cluster says about itself; ``brokers`` are the addresses under which its clients must reach them."""

    cluster_id: str
    brokers: tuple[str, ...]


def reach(kafka: KafkaConnection, *, timeout_s: float = REACH_S) -> ReachedCluster:
    """Connect, authenticate and ask for the brokers.

    Raises ConfigError for settings that librdkafka refuses, ServiceError with the cause if no broker answers.
    """
    seen: list[KafkaError] = []
    try:
        admin = AdminClient(kafka.client({"log_level": 0, "error_cb": seen.append}))
        answer = admin.describe_cluster(request_timeout=timeout_s)
    except (KafkaException, ValueError) as error:
        raise ConfigError(
            "a setting of Kafka's clients is wrong",
            found=_text(error),
            where=str(kafka),
            hint="Correct TIDEMARK_KAFKA_PROPERTIES; librdkafka's page CONFIGURATION.md has every name",
        ) from error
    _await(admin, answer, seen, timeout_s)
    try:
        found = answer.result(timeout=0)
    except (KafkaException, TimeoutError) as error:
        raise _unreachable(kafka, seen, error) from error
    return ReachedCluster(
        cluster_id=str(found.cluster_id), brokers=tuple(f"{node.host}:{node.port}" for node in found.nodes)
    )


def _await(admin: AdminClient, answer: Any, seen: list[KafkaError], timeout_s: float) -> None:
    """Until the answer is there, or none can come."""
    start = time.monotonic()
    while not answer.done() and time.monotonic() < start + timeout_s:
        admin.poll(_POLL_S)
        refused = any(item.code() == KafkaError._ALL_BROKERS_DOWN for item in seen)  # noqa: SLF001
        if refused and time.monotonic() > start + _REFUSED_S:
            return


def _unreachable(kafka: KafkaConnection, seen: list[KafkaError], error: Exception) -> ServiceError:
    for code, problem, hint in _CAUSES:
        for item in seen:
            if item.code() == code:
                text = _DETAIL.sub("", item.str())
                wrong_protocol = code == KafkaError._TRANSPORT and _PROTOCOL.search(text)  # noqa: SLF001
                return ServiceError(
                    problem, found=text, where=str(kafka), hint=_PROTOCOL_HINT if wrong_protocol else hint
                )
    _, problem, hint = _CAUSES[-1]
    if seen:  # librdkafka gives no reason if a server closes the connection at once
        return ServiceError(problem, found="connections are closed", where=str(kafka), hint=_PROTOCOL_HINT)
    found = _text(error) if isinstance(error, KafkaException) else "no answer"
    return ServiceError(problem, found=found, where=str(kafka), hint=hint)


def _text(error: Exception) -> str:
    """The library's own sentence."""
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(first)
