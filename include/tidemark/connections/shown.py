"""Which values may be shown: those of properties whose names are listed here. Every other property counts as secret.

A shown value can appear in error texts, in Spark's arguments, pages and event logs, and in the chart's ConfigMap. The
patterns use the syntax that Python, Java and the chart's Go share.
"""

import re

# Properties of catalogs, by Iceberg's names; then settings of Kafka, by librdkafka's and Java's names.
_NAMES = """
type warehouse prefix scope audience resource oauth2-server-uri ref namespace-separator rest-page-size
snapshot-loading-mode scan-planning-mode view-endpoints-supported metrics-reporter-impl
clients client.region client.factory client.credentials-provider client.profile-name client.role-arn
client.assume-role.arn client.assume-role.region client.assume-role.session-name client.assume-role.timeout-sec
jdbc.user jdbc.schema-version jdbc.ssl jdbc.sslmode jdbc.sslrootcert jdbc.sslcert jdbc.currentschema
jdbc.applicationname jdbc.connecttimeout jdbc.logintimeout jdbc.sockettimeout jdbc.tcpkeepalive jdbc.gssencmode
jdbc.channelbinding jdbc.strict-mode
rest.auth.type rest.auth.basic.username rest.sigv4-enabled rest.sigv4.max-retries rest.signing-name
rest.signing-region auth.type auth.basic.username ssl.cabundle
token-expires-in-ms token-refresh-enabled token-exchange-enabled
glue.id glue.endpoint glue.account-id glue.skip-archive glue.skip-name-validation glue.max-retries glue.retry-mode
glue.lakeformation-enabled
hive.hive2-compatible hive.kerberos-authentication hive.kerberos-service-name lock-check-min-wait-time
lock-check-max-wait-time lock-check-retries
authentication.type authentication.oauth2.token-endpoint authentication.oauth2.client-id
authentication.oauth2.client-scopes authentication.oauth2.grant-type authentication.oauth2.issuer-url
s3.endpoint s3.region s3.path-style-access s3.force-virtual-addressing s3.remote-signing-enabled s3.sse.type
s3.proxy-uri s3.connect-timeout s3.request-timeout s3.role-arn s3.role-session-name s3.delete-enabled
s3.checksum-enabled s3.acl s3.threads s3.staging-dir s3.multipart.size s3.multipart.threshold
http-client.type http-client.proxy-endpoint http-client.connection-timeout-ms http-client.socket-timeout-ms
http-client.max-connections io-impl io.manifest.cache-enabled catalog-impl cache-enabled

bootstrap.servers client.id client.rack client.dns.lookup compression.type connections.max.idle.ms metadata.max.age.ms
reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms socket.connection.setup.timeout.ms
socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms receive.buffer.bytes send.buffer.bytes
request.timeout.ms security.protocol sasl.mechanism sasl.mechanisms sasl.username
sasl.oauthbearer.method sasl.oauthbearer.grant.type sasl.oauthbearer.client.id sasl.oauthbearer.scope
sasl.oauthbearer.token.endpoint.url
https.ca.location ssl.ca.location ssl.certificate.location ssl.key.location ssl.keystore.location ssl.keystore.type
ssl.truststore.location ssl.truststore.type ssl.endpoint.identification.algorithm
metadata.broker.list sasl.oauthbearer.client.credentials.client.id broker.address.family sasl.kerberos.service.name
socket.keepalive.enable socket.nagle.disable
aws.region aws.profile aws.role.arn aws.role.session.name
"""
_ANY = "|".join(name.replace(".", "[.]") for name in _NAMES.split()) + "|table-(default|override)[.][a-z0-9._-]+"
# pyiceberg.uri is not on the list: it is SQLAlchemy's whole URL, which contains the password.
SHOWN = f"(spark[.])?uri|((spark|pyiceberg|java|librdkafka)[.])?({_ANY})"
_SHOWN = re.compile(SHOWN, re.IGNORECASE)

# There is no list for variables, a notifier's arguments and Spark's own properties. Their names are refused if they
# contain one of these words.
SECRET_WORDS = (
    "secret|passw|passphrase|pwd|token|credential|authorization|bearer|cookie|jwt|connection[._-]?string|header[.]"  # noqa: S105 - words
    "|(^|[._-])sas([._-]|$)|(access|private|client|api|account|fernet|certificate)[._-]?key|[.]key$"
)
_WORDS = re.compile(SECRET_WORDS, re.IGNORECASE)
# Names that contain one of these words, but hold no secret.
HARMLESS = "credentials?-provider|token[.-](endpoint|refresh|exchange|expires)|token-type|credentials?-uri"
_HARMLESS = re.compile(HARMLESS)

# Parameters that an address may have: those of the JDBC drivers for PostgreSQL and SQLite, and of token servers.
PARAMETERS = (
    "user|applicationname|connecttimeout|logintimeout|sockettimeout|options|currentschema|ssl|sslmode|sslcert"
    "|sslrootcert|gssencmode|channelbinding|tcpkeepalive|targetservertype|loadbalancehosts|preparethreshold"
    "|preferquerymode|rewritebatchedinserts|stringtype|sslfactory|defaultrowfetchsize|readonly"
    "|journal_mode|synchronous|busy_timeout|realm|tenant"
)
_PARAMETER = re.compile(f"({PARAMETERS})(=.*)?", re.IGNORECASE | re.DOTALL)
_FILE = "jdbc:sqlite:"
_NAME = re.compile("[A-Za-z][A-Za-z0-9._-]*")
LOGIN = r"//[^\s@]*:[^\s@]*@|[?&;][^=&;\s]*(passw|pwd|secret|token)[^=&;\s]*="
_LOGIN = re.compile(LOGIN, re.IGNORECASE)


def shown(name: str) -> bool:
    """Whether the value of a catalog's or Kafka's property may be shown."""
    return _SHOWN.fullmatch(name) is not None


def has_secret_word(name: str) -> bool:
    """Whether a name for which there is no list contains a word that names of secrets contain."""
    return _WORDS.search(_HARMLESS.sub("", name)) is not None


def is_open_address(text: str) -> bool:
    """Whether an address can hold no secret: it has no login, and no parameter but those on the list."""
    return _hidden_part(text) is None


def open_address(text: str) -> str:
    """The address. Raises ValueError, which does not show it, if it may hold a secret."""
    if hidden := _hidden_part(text):
        raise ValueError(f"it may have a password: {hidden}. Addresses are shown, so set this in a property of its own")
    return text


def _hidden_part(text: str) -> str | None:
    """What may be a secret, without its value; None if nothing may be one.

    A password may contain any character, so an ``@`` anywhere counts as a login.
    """
    if text.startswith(_FILE):
        _, *parameters = re.split("[?&]", text)
    elif "@" in text:
        return "there is an '@' in it"
    else:
        _, *parameters = re.split("[?&;#]", text)
    unlisted = next((one for one in parameters if not _PARAMETER.fullmatch(one)), None)
    if unlisted is None:
        return None
    name, equals, _ = unlisted.partition("=")
    named = f"the parameter '{name}'" if equals and _NAME.fullmatch(name) else "a parameter"
    return f"{named} is not on the list of those that may be shown"


def looks_like_address(text: str) -> bool:
    """Whether a value is an address, and not a name or a user."""
    return "//" in text or text.startswith("jdbc:") or ("@" in text and ":" in text)


def has_login(text: str) -> bool:
    """Whether any text contains an address with user and password."""
    return _LOGIN.search(text) is not None
