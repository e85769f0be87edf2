"""Errors of Kafka's clients as errors of Tidemark, with the cause where librdkafka only reports a time-out."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tidemark.connections.client_errors import forget_errors, kept_errors
from tidemark.core.errors import ConfigError, ServiceError, TidemarkError

_CAUSE_S = 0.2
UNAVAILABLE_HINT = "Check that its brokers answer there and that the user has access, then try again"
# What Kafka answers a user who lacks a permission.
NOT_PERMITTED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
# In the order in which they count: a broker that refuses a user then also breaks the connection.
_HINTS = {
    "Check sasl.mechanism and the user and password, or the token endpoint, client id and secret, of the connection": (
        KafkaError._AUTHENTICATION,  # noqa: SLF001  # its name in the library
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    ),
    "Check ssl.ca and ssl.certificate of the connection, and that the brokers' certificates name the hosts that you"
    " connect to": (KafkaError._SSL,),  # noqa: SLF001
    "Check the host names in bootstrap.servers, and those that the brokers advertise": (KafkaError._RESOLVE,),  # noqa: SLF001
    "Grant the user access to what the message names, then try again": NOT_PERMITTED,
    "Check that the topic exists, and its name in the definition": (KafkaError.UNKNOWN_TOPIC_OR_PART,),
    "Check that its brokers answer there, and security.protocol of the connection, then try again": (
        KafkaError._TRANSPORT,  # noqa: SLF001
    ),
}


@contextmanager
def kafka_errors(problem: str, where: str) -> Iterator[None]:
    """Raise a refusal by Kafka, or a missing answer, as ServiceError; a setting that librdkafka refuses as ConfigError.

    It names the cause if ``reporting`` was around the client's call.
    """
    forget_errors()
    try:
        yield
    except (KafkaException, TimeoutError) as error:
        raise explained(problem, error, where) from error


@contextmanager
def reporting(client: Any) -> Iterator[None]:
    """If the block fails, ask the client why it could not connect, before it is closed. Inside ``kafka_errors``."""
    try:
        yield
    except (KafkaException, TimeoutError, ServiceError):
        hear(client)
        raise


def hear(client: Any) -> None:
    """Have the client report its errors to this thread. The cause may come a moment after the call that it fails."""
    with suppress(KafkaException, RuntimeError):  # a fatal error, which its calls raise, too; it is closed
        client.poll(0)
        causes = {code for codes in _HINTS.values() for code in codes}
        if not any(item.code() in causes for item in kept_errors()):
            client.poll(_CAUSE_S)


def explained(problem: str, error: Any, where: str) -> TidemarkError:
    """``error`` with the likeliest cause: an exception of a client, a ``KafkaError``, or what did not come."""
    own = _kafka_error(error)
    refused = own is not None and own.code() == KafkaError._INVALID_ARG and "onfiguration property" in own.str()  # noqa: SLF001
    if own is not None and refused:
        return ConfigError("librdkafka refuses a setting of a Kafka connection", found=own.str(), where=where)
    found, hint = with_cause(error)
    return ServiceError(problem, found=found, where=where, hint=hint)


def with_cause(error: Any) -> tuple[object, str]:
    """The error's text with the likeliest cause among those that clients reported to this thread, and what to check."""
    own = _kafka_error(error)
    for hint, codes in _HINTS.items():
        for candidate in [*([] if own is None else [own]), *kept_errors()]:
            if candidate.code() in codes:
                return error if candidate is own else f"{error}, because {candidate.str()}", hint
    return error, UNAVAILABLE_HINT


def _kafka_error(error: Any) -> KafkaError | None:
    error = error.args[0] if isinstance(error, KafkaException) else error
    return error if isinstance(error, KafkaError) else None
