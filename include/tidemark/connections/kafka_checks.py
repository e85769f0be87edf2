"""From the mapping that someone wrote to the checked settings of a Kafka connection, with files read into them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tidemark.connections.kafka_names import (
    ALIASES,
    CLIENT_ID,
    CLIENT_SECRET,
    EXTENSIONS,
    JAVA,
    LIBRDKAFKA,
    MECHANISM,
    MSK_IAM,
    OIDC,
    PROTOCOL,
    SERVERS,
    TOKEN_URL,
    WRONG_VALUE,
    check_name,
    check_value,
    is_own,
)
from tidemark.connections.pem import certificates, check_pair, pem_text, pkcs8, private_key, read_bytes, unpacked
from tidemark.connections.shown import is_open_address
from tidemark.core.errors import ConfigError

# As RFC 7628 has them; "auth" is the token itself.
_EXTENSION = re.compile(r"(?!auth=)([A-Za-z]+)=([\x21-\x2b\x2d-\x7e]+)")
_MSK_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::|$)")
_LOGIN = ("sasl.username", "sasl.password")
_OAUTH = (CLIENT_ID, CLIENT_SECRET, TOKEN_URL)


def checked(given: Mapping[str, Any]) -> dict[str, str]:
    """The settings by librdkafka's names, PEM files as text, keys as PKCS#8. Raises ConfigError for the first mistake.

    Checked settings pass through unchanged.
    """
    settings: dict[str, str] = {}
    where = f"the Kafka connection to {_brokers(given)}"
    for given_name, value in given.items():
        name = ALIASES.get(given_name, given_name)
        check_name(name, where)
        text = _text(value, f"{name} in {where}")
        if not (is_own(name) or name.startswith((JAVA, LIBRDKAFKA))):
            text = check_value(name, text, where)
        if settings.setdefault(name, text) != text:
            raise ConfigError(
                "a Kafka setting has two values, by two names", found=f"{given_name}, {name}", where=where
            )
    if SERVERS not in settings:
        raise ConfigError("a Kafka connection has no brokers", expected=f"{SERVERS}: host:port,...", where=where)
    _read_files(settings, where)
    _check_protocol(settings, where)
    _check_identity(settings, where)
    return settings


def _brokers(given: Mapping[str, Any]) -> str:
    """The brokers' addresses, which errors show. Raises ConfigError if they may contain a password."""
    servers = next((str(value) for name, value in given.items() if ALIASES.get(name, name) == SERVERS), "no servers")
    if not is_open_address(servers):
        raise ConfigError(
            "brokers with a login",
            expected="host:port,...",
            found=f"{len(servers)} characters",
            where=SERVERS,
            hint="Set user and password as sasl.username and sasl.password",
        )
    return servers


def _text(value: Any, where: str) -> str:
    """As librdkafka writes it; the JSON of an Airflow connection may have numbers and true."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(WRONG_VALUE, expected="text", found=type(value).__name__, where=where)


def _read_files(settings: dict[str, str], where: str) -> None:
    """Put the files' content in their places, so that no other machine needs the files."""
    for part in ("ssl.ca", "https.ca", "ssl.certificate", "ssl.key"):
        path = settings.pop(f"{part}.location", None)
        if path is not None:
            if f"{part}.pem" in settings:
                raise ConfigError("PEM is given twice", found=f"{part}.location and {part}.pem", where=where)
            if path != "probe":  # librdkafka's word for the machine's own authorities, the default of both clients
                settings[f"{part}.pem"] = read_bytes(path, f"{part}.location in {where}").decode("latin-1")
        if f"{part}.pem" in settings:
            settings[f"{part}.pem"] = pem_text(settings[f"{part}.pem"], f"{part} in {where}")
        if f"{part}.pem" in settings and part != "ssl.key":
            certificates(settings[f"{part}.pem"], f"{part} in {where}")
    store, password = settings.pop("ssl.keystore.location", None), settings.pop("ssl.keystore.password", None)
    if store is not None:
        if "ssl.certificate.pem" in settings or "ssl.key.pem" in settings:
            raise ConfigError("a key is given twice", found="ssl.keystore and ssl.certificate or ssl.key", where=where)
        place = f"ssl.keystore.location in {where}"
        chain, key = unpacked(read_bytes(store, place), password, place)
        settings |= {"ssl.certificate.pem": chain, "ssl.key.pem": key}
    _convert_key(settings, where)


def _convert_key(settings: dict[str, str], where: str) -> None:
    password, key_pem = settings.pop("ssl.key.password", None), settings.get("ssl.key.pem")
    certificate_pem = settings.get("ssl.certificate.pem")
    if key_pem is None and certificate_pem is not None and "PRIVATE KEY-----" in certificate_pem:
        key_pem = certificate_pem  # one file with both
    if (key_pem is None) != (certificate_pem is None):
        raise ConfigError(
            "mutual TLS lacks a part",
            expected="ssl.certificate and ssl.key, each as .location or .pem",
            found="no ssl.key" if key_pem is None else "no ssl.certificate",
            where=where,
        )
    if key_pem is not None and certificate_pem is not None:
        key = private_key(key_pem, password, f"ssl.key in {where}")
        check_pair(key, certificates(certificate_pem, where)[0], f"ssl.key in {where}")
        settings["ssl.key.pem"] = pkcs8(key)


def _check_protocol(settings: dict[str, str], where: str) -> None:
    """Raise ConfigError for settings that the protocol would ignore: then it is the wrong protocol."""
    protocol = settings.setdefault(PROTOCOL, "PLAINTEXT")
    for prefix, kind in (("sasl.", "SASL"), ("ssl.", "SSL"), ("aws.", "SASL")):
        needless = [name for name in settings if name.startswith(prefix) and not is_own(name)]
        if needless and kind not in protocol.split("_"):
            raise ConfigError(
                "a Kafka connection's protocol does not fit its other settings",
                expected=f"{PROTOCOL}: SASL_SSL" if kind == "SASL" else f"{PROTOCOL}: SSL or SASL_SSL",
                found=f"{protocol}, and {needless[0]}",
                where=where,
            )


def _check_identity(settings: dict[str, str], where: str) -> None:
    """Raise ConfigError unless everything is there that the mechanism needs, and nothing that it ignores."""
    mechanism = settings.get(MECHANISM)
    if mechanism is None:
        of_each = {name for name in settings if name.endswith(("." + MECHANISM, "." + MECHANISM + "s"))}
        if settings[PROTOCOL].startswith("SASL") and len(of_each) != 2:
            _require(settings, (MECHANISM,), f"with {PROTOCOL} {settings[PROTOCOL]}", where)
        return
    _MECHANISMS.get(mechanism, _check_login)(settings, where)
    prefixes = {"OAUTHBEARER": "sasl.oauthbearer.", MSK_IAM: "aws."}
    wanted = prefixes.get(mechanism, "sasl.username sasl.password")
    for name in settings:
        if name.startswith(("sasl.oauthbearer.", "aws.", *_LOGIN)) and not (
            name.startswith(wanted) or name in wanted.split()
        ):
            raise ConfigError(
                "a Kafka setting does not fit the mechanism", found=f"{name}, and {MECHANISM} {mechanism}", where=where
            )


def _check_login(settings: dict[str, str], where: str) -> None:
    _require(settings, _LOGIN, f"with {MECHANISM} {settings[MECHANISM]}", where)


def _check_oauth(settings: dict[str, str], where: str) -> None:
    _require(settings, (OIDC, *_OAUTH), f"with {MECHANISM} OAUTHBEARER", where)
    extensions = settings.get(EXTENSIONS)
    if extensions is not None and not all(map(_EXTENSION.fullmatch, extensions.split(","))):
        raise ConfigError(
            WRONG_VALUE,
            expected="name=value,name=value; names from A to Z, not auth",
            found=f"{len(extensions)} characters",
            where=f"{EXTENSIONS} in {where}",
        )


def _check_msk(settings: dict[str, str], where: str) -> None:
    """Find the region, which Java's client takes from the brokers' names."""
    region = _MSK_BROKER.search(settings[SERVERS])
    if region is not None:
        settings.setdefault("aws.region", region[1])
    _require(settings, ("aws.region",), f"with {MECHANISM} {MSK_IAM}, because the brokers' names have none", where)
    if "aws.profile" in settings and "aws.role.arn" in settings:
        raise ConfigError("MSK's IAM has two identities", found="aws.profile and aws.role.arn", where=where)
    if "aws.role.session.name" in settings:
        _require(settings, ("aws.role.arn",), "with aws.role.session.name", where)


_MECHANISMS: Mapping[str, Callable[[dict[str, str], str], None]] = {"OAUTHBEARER": _check_oauth, MSK_IAM: _check_msk}


def _require(settings: Mapping[str, str], names: tuple[str, ...], reason: str, where: str) -> None:
    missing = [name for name in names if name not in settings]
    if missing:
        raise ConfigError(
            "a Kafka connection lacks a setting",
            expected=f"{', '.join(names)} {reason}",
            found=f"no {missing[0]}",
            where=where,
        )
