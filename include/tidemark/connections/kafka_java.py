"""Settings of Kafka's Java clients, derived from checked settings in librdkafka's names."""

import re
from collections.abc import Callable, Mapping

from tidemark.connections.kafka_names import (
    CLIENT_ID,
    CLIENT_SECRET,
    EXTENSIONS,
    IDENTITY_CHECK,
    JAVA,
    MECHANISM,
    MSK_IAM,
    PROTOCOL,
    SCOPE,
    SETTINGS,
    TOKEN_URL,
    is_own,
)

_SECURITY = "org.apache.kafka.common.security"
_MSK = "software.amazon.msk.auth.iam"
_OTHER_NAMES = {
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
}
# librdkafka writes 0 for "as the system has it" and "never", Java -1.
_ZERO_IS_DEFAULT = ("socket.receive.buffer.bytes", "socket.send.buffer.bytes", "connections.max.idle.ms")
_NOT_SHARED = ("security.", "sasl.", "ssl.", "https.", "aws.")
# The lexer of Java's parser ends a quoted value at the end of a line, and knows these escapes.
_ESCAPED = re.compile(r'[\\"\x00-\x1f\x7f]')
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def java_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """What a Java client needs to reach the same brokers as the same user."""
    derived = {PROTOCOL: settings[PROTOCOL], **_network(settings)}
    if MECHANISM in settings:
        derived |= _sasl(settings)
    if "SSL" in settings[PROTOCOL].split("_"):
        derived |= _tls(settings)
    overrides = {name.removeprefix(JAVA): value for name, value in settings.items() if name.startswith(JAVA)}
    return derived | {name: value for name, value in overrides.items() if not is_own(name)}


def _network(settings: Mapping[str, str]) -> dict[str, str]:
    shared = {name: value for name, value in settings.items() if name in SETTINGS and not name.startswith(_NOT_SHARED)}
    return {
        _OTHER_NAMES.get(name, name): "-1" if value == "0" and name in _ZERO_IS_DEFAULT else value
        for name, value in shared.items()
    }


def _tls(settings: Mapping[str, str]) -> dict[str, str]:
    """Stores as PEM text, which needs no file on any machine. Without an authority, the JVM's own are trusted."""
    tls: dict[str, str] = {}
    if "ssl.ca.pem" in settings:
        tls |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": settings["ssl.ca.pem"]}
    if "ssl.key.pem" in settings:
        tls |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": settings["ssl.certificate.pem"],
            "ssl.keystore.key": settings["ssl.key.pem"],
        }
    if IDENTITY_CHECK in settings:
        tls[IDENTITY_CHECK] = settings[IDENTITY_CHECK].replace("none", "")
    return tls


def _sasl(settings: Mapping[str, str]) -> dict[str, str]:
    mechanism = settings[MECHANISM]
    return {MECHANISM: mechanism, **_LOGINS.get(mechanism, _scram)(settings)}


def _plain(settings: Mapping[str, str]) -> dict[str, str]:
    return {"sasl.jaas.config": jaas_line(f"{_SECURITY}.plain.PlainLoginModule", _user(settings))}


def _scram(settings: Mapping[str, str]) -> dict[str, str]:
    return {"sasl.jaas.config": jaas_line(f"{_SECURITY}.scram.ScramLoginModule", _user(settings))}


def _user(settings: Mapping[str, str]) -> dict[str, str]:
    return {"username": settings["sasl.username"], "password": settings["sasl.password"]}


def _oauth(settings: Mapping[str, str]) -> dict[str, str]:
    options = {"clientId": settings[CLIENT_ID], "clientSecret": settings[CLIENT_SECRET]}
    if SCOPE in settings:
        options["scope"] = settings[SCOPE]
    for pair in filter(None, settings.get(EXTENSIONS, "").split(",")):
        name, _, value = pair.partition("=")
        options[f"extension_{name}"] = value
    if "https.ca.pem" in settings:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": settings["https.ca.pem"]}
    return {
        "sasl.jaas.config": jaas_line(f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule", options),
        "sasl.login.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
        TOKEN_URL: settings[TOKEN_URL],
    }


def _msk_iam(settings: Mapping[str, str]) -> dict[str, str]:
    names = {
        "aws.profile": "awsProfileName",
        "aws.role.arn": "awsRoleArn",
        "aws.role.session.name": "awsRoleSessionName",
    }
    options = {java: settings[name] for name, java in names.items() if name in settings}
    if "aws.role.arn" in settings:
        options["awsStsRegion"] = settings["aws.region"]
    return {
        "sasl.jaas.config": jaas_line(f"{_MSK}.IAMLoginModule", options),
        "sasl.client.callback.handler.class": f"{_MSK}.IAMClientCallbackHandler",
    }


_LOGINS: Mapping[str, Callable[[Mapping[str, str]], dict[str, str]]] = {
    "PLAIN": _plain,
    "OAUTHBEARER": _oauth,
    MSK_IAM: _msk_iam,
}


def jaas_line(module: str, options: Mapping[str, str]) -> str:
    """A line for Java's login; any text may be a value."""
    quoted = (f'{name}="{_ESCAPED.sub(_escape, value)}"' for name, value in options.items())
    return " ".join((module, "required", *quoted)) + ";"


def _escape(character: re.Match[str]) -> str:
    return _ESCAPES.get(character[0], f"\\{ord(character[0]):03o}")
