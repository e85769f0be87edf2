"""Security of a local Kafka node: TLS everywhere, a listener per way to authenticate, and ACLs that deny by default.

The node talks to itself, and the stack to it, over the PLAIN listener, whose users are in ``server.properties``. The
SCRAM listener's users are created there after the start, because ``StorageTool format`` would take their passwords as
arguments, which every user of the machine can read.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # as in its docs
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tidemark.connections.kafka import SERVERS, KafkaConnection
from tidemark.core.errors import StackError
from tidemark.stack.certificates import Certificate

# The user that no ACL binds.
ADMIN = "admin"
TIMEOUT_S = 30
_ITERATIONS = 4096
_SCRAM = {"SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512, "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256}
_MODULE = "org.apache.kafka.common.security"
_PROTOCOLS = {
    "SCRAM": "SASL_SSL",
    "PLAIN": "SASL_SSL",
    "OAUTH": "SASL_SSL",
    "MUTUALTLS": "SSL",
    "CONTROLLER": "SASL_SSL",
}
ScramName = Literal["SCRAM-SHA-512", "SCRAM-SHA-256"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer:
    """Who issues the tokens of the OAUTHBEARER listener: JWTs for ``audience``, whose ``sub`` is the user's name.

    ``keys_url``: its JWKS, a ``file:`` or ``http:`` URL.
    """

    issuer: str
    audience: str
    keys_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """How clients authenticate to the broker at ``host``. Its user names are the principals of its ACLs, as in
    ``User:archive``.

    ``passwords`` by user, with that of ``ADMIN``; they count for SCRAM (the node's own ``port``) and for PLAIN.
    ``oauth_port`` needs ``tokens``. On ``mutual_tls_port`` a certificate's common name is the user. ``session_ms``: how
    long a SASL session lasts before its client must authenticate again; None: as long as the connection, or its token.
    """

    certificate: Certificate
    passwords: Mapping[str, str] = field(repr=False)
    plain_port: int
    oauth_port: int | None = None
    tokens: TokenIssuer | None = None
    mutual_tls_port: int | None = None
    session_ms: int | None = None
    host: str = "127.0.0.1"

    def scram(self, port: int, user: str, *, mechanism: ScramName = "SCRAM-SHA-512") -> KafkaConnection:
        """A connection to the node's own port."""
        return self._sasl(port, mechanism, **self._login(user))

    def plain(self, user: str) -> KafkaConnection:
        """A connection with PLAIN."""
        return self._sasl(self.plain_port, "PLAIN", **self._login(user))

    def oauth(self, source: Mapping[str, str]) -> KafkaConnection:
        """A connection with tokens; ``source`` are librdkafka's settings of where they come from."""
        assert self.oauth_port is not None
        return self._sasl(self.oauth_port, "OAUTHBEARER", **source)

    def mutual_tls(self, client: Certificate) -> KafkaConnection:
        """A connection with the client's certificate."""
        assert self.mutual_tls_port is not None
        files = {"ssl.certificate.location": str(client.certificate), "ssl.key.location": str(client.key)}
        return self._tls(self.mutual_tls_port, "SSL", **files)

    def _login(self, user: str) -> dict[str, str]:
        return {"sasl.username": user, "sasl.password": self.passwords[user]}

    def _sasl(self, port: int, mechanism: str, **properties: str) -> KafkaConnection:
        return self._tls(port, "SASL_SSL", **{"sasl.mechanism": mechanism, **properties})

    def _tls(self, port: int, protocol: str, **properties: str) -> KafkaConnection:
        ca = {"ssl.ca.location": str(self.certificate.ca)}
        return KafkaConnection({SERVERS: f"{self.host}:{port}", "security.protocol": protocol, **ca, **properties})


def listeners(security: BrokerSecurity, port: int) -> dict[str, int]:
    """The broker's ports by listener."""
    optional = {"OAUTH": security.oauth_port, "MUTUALTLS": security.mutual_tls_port}
    return {
        "SCRAM": port,
        "PLAIN": security.plain_port,
        **{name: value for name, value in optional.items() if value is not None},
    }


def server_properties(security: BrokerSecurity) -> dict[str, str]:
    """The server's properties, except for its listeners' addresses. They have the passwords of the PLAIN listener."""
    plain = _jaas(
        "plain.PlainLoginModule",
        username=ADMIN,
        password=security.passwords[ADMIN],
        **{f"user_{user}": password for user, password in security.passwords.items()},
    )
    return {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in _PROTOCOLS.items()),
        "inter.broker.listener.name": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": plain,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": plain,
        "listener.name.scram.sasl.enabled.mechanisms": ",".join(_SCRAM),
        **{f"listener.name.scram.{name.lower()}.sasl.jaas.config": _jaas("scram.ScramLoginModule") for name in _SCRAM},
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(security.certificate.store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(security.certificate.ca),
        "listener.name.mutualtls.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
        **_token_properties(security.tokens),
        **({} if security.session_ms is None else {"connections.max.reauth.ms": str(security.session_ms)}),
    }


def _token_properties(tokens: TokenIssuer | None) -> dict[str, str]:
    if tokens is None:
        return {}
    listener = "listener.name.oauth"
    return {
        f"{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.oauthbearer.sasl.jaas.config": _jaas("oauthbearer.OAuthBearerLoginModule"),
        f"{listener}.oauthbearer.sasl.server.callback.handler.class": (
            f"{_MODULE}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": tokens.keys_url,
        "sasl.oauthbearer.expected.issuer": tokens.issuer,
        "sasl.oauthbearer.expected.audience": tokens.audience,
        # By default a token counts for another 30 s after its end.
        "sasl.oauthbearer.clock.skew.seconds": "1",
    }


def java_properties(security: BrokerSecurity) -> dict[str, str]:
    """The system properties that the server needs beside its own."""
    if security.tokens is None:
        return {}
    return {"org.apache.kafka.sasl.oauthbearer.allowed.urls": security.tokens.keys_url}


def _jaas(module: str, **options: str) -> str:
    quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in options.items()}
    return " ".join((f"{_MODULE}.{module} required", *(f'{name}="{value}"' for name, value in quoted.items()))) + ";"


def create_scram_users(security: BrokerSecurity, port: int) -> None:
    """Set the SCRAM passwords of a running broker's users, and return when it accepts them. Raises StackError."""
    admin = AdminClient(security.plain(ADMIN).client({"log_level": 0}))
    deadline = time.monotonic() + TIMEOUT_S
    try:
        for mechanism in _SCRAM.values():  # a request may name a user only once
            wanted: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, _ITERATIONS), password.encode())
                for user, password in security.passwords.items()
            ]
            for done in admin.alter_user_scram_credentials(wanted).values():
                done.result(TIMEOUT_S)
        for user in security.passwords:
            _await_accepted(security.scram(port, user), deadline)
    except (KafkaException, TimeoutError) as error:
        raise StackError("Kafka could not create its users", found=error, where=f"{security.host}:{port}") from error


def _await_accepted(connection: KafkaConnection, deadline: float) -> None:
    """Wait until the broker accepts the credentials: it learns of them a moment after it confirmed them."""
    quick = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
    admin = AdminClient(connection.client(quick))
    admin.list_topics(timeout=max(deadline - time.monotonic(), 0.1))
