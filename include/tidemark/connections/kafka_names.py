"""The settings of a Kafka connection: which names there are, which values they may have, and what becomes of each."""

from difflib import get_close_matches

from tidemark.connections.shown import is_open_address, shown
from tidemark.core.errors import ConfigError

SERVERS = "bootstrap.servers"
PROTOCOL = "security.protocol"
MECHANISM = "sasl.mechanism"
IDENTITY_CHECK = "ssl.endpoint.identification.algorithm"
JAVA = "java."
LIBRDKAFKA = "librdkafka."
WRONG_VALUE = "a Kafka setting has a wrong value"

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MSK_IAM = "AWS_MSK_IAM"  # a mechanism of Java's client; librdkafka does the same by OAUTHBEARER
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER", MSK_IAM)
OIDC = "sasl.oauthbearer.method"
CLIENT_ID = "sasl.oauthbearer.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.secret"  # noqa: S105  # a name
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  # a name
SCOPE = "sasl.oauthbearer.scope"
EXTENSIONS = "sasl.oauthbearer.extensions"

# Every setting that both clients have, with its kind of value: a list of choices, or one of the kinds below.
TEXT, NUMBER, PEM, FILE, URL, PAIRS = (
    "text",
    "a whole number, at least 0",
    "PEM text",
    "a file",
    "a URL",
    "name=value,…",
)
SETTINGS: dict[str, str | tuple[str, ...]] = {
    SERVERS: TEXT,
    "client.id": TEXT,
    "client.rack": TEXT,
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "connections.max.idle.ms": NUMBER,
    "metadata.max.age.ms": NUMBER,
    "reconnect.backoff.max.ms": NUMBER,
    "reconnect.backoff.ms": NUMBER,
    "retry.backoff.max.ms": NUMBER,
    "retry.backoff.ms": NUMBER,
    "socket.connection.setup.timeout.ms": NUMBER,
    "socket.receive.buffer.bytes": NUMBER,
    "socket.send.buffer.bytes": NUMBER,
    "socket.timeout.ms": NUMBER,
    PROTOCOL: PROTOCOLS,
    MECHANISM: MECHANISMS,
    "sasl.username": TEXT,
    "sasl.password": TEXT,
    OIDC: ("oidc",),
    "sasl.oauthbearer.grant.type": ("client_credentials",),
    CLIENT_ID: TEXT,
    CLIENT_SECRET: TEXT,
    SCOPE: TEXT,
    EXTENSIONS: PAIRS,
    TOKEN_URL: URL,
    "https.ca.location": FILE,
    "https.ca.pem": PEM,
    "ssl.ca.location": FILE,
    "ssl.ca.pem": PEM,
    "ssl.certificate.location": FILE,
    "ssl.certificate.pem": PEM,
    "ssl.key.location": FILE,
    "ssl.key.pem": PEM,
    "ssl.key.password": TEXT,
    "ssl.keystore.location": FILE,
    "ssl.keystore.password": TEXT,
    IDENTITY_CHECK: ("https", "none"),
    # Tidemark's own, for MSK's IAM
    "aws.region": TEXT,
    "aws.profile": TEXT,
    "aws.role.arn": TEXT,
    "aws.role.session.name": TEXT,
}
ALIASES = {
    "sasl.mechanisms": MECHANISM,
    "metadata.broker.list": SERVERS,
    "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
    "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
}

# What Tidemark sets for each of its clients, or has no use for: it joins no consumer groups and needs no callbacks.
_OWN = """
group.id group.instance.id group.protocol group.protocol.type group.remote.assignor session.timeout.ms
heartbeat.interval.ms max.poll.interval.ms max.poll.records partition.assignment.strategy
coordinator.query.interval.ms enable.auto.commit auto.commit.enable auto.commit.interval.ms
enable.auto.offset.store auto.offset.reset isolation.level enable.partition.eof allow.auto.create.topics check.crcs
fetch.min.bytes fetch.max.bytes fetch.message.max.bytes max.partition.fetch.bytes fetch.wait.max.ms
fetch.max.wait.ms queued.min.messages queued.max.messages.kbytes
acks request.required.acks enable.idempotence enable.gapless.guarantee transactional.id transaction.timeout.ms
delivery.timeout.ms message.timeout.ms retries message.send.max.retries max.in.flight
max.in.flight.requests.per.connection linger.ms queue.buffering.max.ms batch.size batch.num.messages
queue.buffering.max.messages queue.buffering.max.kbytes message.max.bytes max.request.size buffer.memory
partitioner delivery.report.only.error topic.metadata.propagation.max.ms
key.serializer value.serializer key.deserializer value.deserializer default.topic.config
error_cb logger log_cb stats_cb statistics.interval.ms throttle_cb oauth_cb on_commit on_delivery
"""
OWN = frozenset(_OWN.split())

# Java's names, as people know them from elsewhere, and what has the same effect for both clients.
_INSTEAD = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "sasl.login.callback.handler.class": OIDC,
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}


def is_own(name: str) -> bool:
    """Whether the setting is left out, because Tidemark decides on it."""
    return name.removeprefix(JAVA).removeprefix(LIBRDKAFKA) in OWN


def check_name(name: str, where: str) -> None:
    """Raise ConfigError unless the connection knows what to do with the setting."""
    plain = name.removeprefix(JAVA).removeprefix(LIBRDKAFKA)
    if plain != name and ALIASES.get(plain, plain) == SERVERS:
        raise ConfigError(
            "a Kafka connection has brokers for one client only",
            expected=f"{SERVERS}, the same cluster for all clients",
            found=name,
            where=where,
        )
    if name in SETTINGS or is_own(name) or name.startswith((JAVA, LIBRDKAFKA)):
        return
    close = get_close_matches(name, [*SETTINGS, *ALIASES, *OWN], n=1, cutoff=0.8)
    instead = _INSTEAD.get(name) or next(iter(close), None)
    hint = f"For Python's clients alone write {LIBRDKAFKA}{name}, for Spark's alone {JAVA}{name}"
    if instead:
        hint = f"Did you mean {instead}? {hint}"
    raise ConfigError(
        "a setting that not all Kafka clients have",
        expected="a name that librdkafka and Java's client share",
        found=name,
        where=where,
        hint=hint,
    )


def check_value(name: str, value: str, where: str) -> str:
    """The value as both clients take it; raises ConfigError, which never shows a secret."""
    kind = SETTINGS[name]
    found = repr(value) if shown(name) else f"{len(value)} characters"
    if isinstance(kind, tuple):
        by_text = {choice.lower(): choice for choice in kind}
        if name == IDENTITY_CHECK:
            by_text[""] = "none"  # as Java has it
        if value.lower() in by_text:
            return by_text[value.lower()]
        expected = " or ".join(kind)
    elif kind == NUMBER:
        if value.isascii() and value.isdecimal():
            return value
        expected = kind
    elif kind == URL:
        if value.startswith(("https://", "http://")) and is_open_address(value):
            return value
        expected = "a URL that begins with https:// or http://, with no login and no unlisted parameter"
        found = f"{len(value)} characters"
    elif value.strip():
        return value
    else:
        expected = f"{kind}, not empty"
    close = get_close_matches(value.upper(), kind, n=1) if isinstance(kind, tuple) else []
    hint = f"Did you mean {close[0]}?" if close else None
    raise ConfigError(
        "a Kafka setting has a wrong value", expected=expected, found=found, where=f"{name} in {where}", hint=hint
    )
