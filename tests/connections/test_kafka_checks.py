"""Mistakes in a Kafka connection are named by setting, expected and found, without the secret; files travel as text."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from tests.connections.keys import CERTIFICATE, KEY, PRIVATE, SIGNED, certificate_of
from tests.connections.test_kafka_java import HOST, LOGIN, OIDC, given_settings
from tidemark.connections.kafka import KafkaConnection
from tidemark.connections.kafka_names import ALIASES, OWN, SETTINGS
from tidemark.connections.shown import shown
from tidemark.core.errors import ConfigError

HUSH = "hush-3141"
WHERE = f"the Kafka connection to {HOST}"


def refusal(settings: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        KafkaConnection(settings)
    assert HUSH not in str(caught.value)
    return caught.value


def sasl(mechanism: str = "PLAIN", **more: Any) -> dict[str, Any]:
    login = {"sasl.username": "archive", "sasl.password": HUSH}
    named = {name.replace("__", "."): value for name, value in more.items()}
    return {**given_settings("SASL_SSL", mechanism, login), **named}


def without(settings: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != name}


def test_a_connections_text_is_its_brokers_and_it_travels_whole() -> None:
    connection = KafkaConnection(sasl())
    assert (str(connection), repr(connection)) == (HOST, f"KafkaConnection({HOST})")
    assert pickle.loads(pickle.dumps(connection)) == connection  # noqa: S301
    assert connection.at("other:1").properties == {**connection.properties, "bootstrap.servers": "other:1"}


def test_an_extra_as_airflow_has_it_is_understood() -> None:
    extra: dict[str, Any] = {
        "bootstrap.servers": HOST,
        "group.id": "my-group",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "scram-sha-512",
        "sasl.username": "archive",
        "sasl.password": HUSH,
        "enable.auto.commit": False,
        "auto.offset.reset": "beginning",
        "session.timeout.ms": 45000,
        "socket.timeout.ms": 30000,
        "error_cb": "callbacks.on_error",
    }
    connection = KafkaConnection(extra)
    assert connection.ignored == (
        "auto.offset.reset", "enable.auto.commit", "error_cb", "group.id", "session.timeout.ms"
    )  # fmt: skip
    found = without(without(connection.client({"group.id": "own"}), "error_cb"), "log_level")
    assert found == {
        **given_settings("SASL_SSL", "SCRAM-SHA-512", {"sasl.username": "archive", "sasl.password": HUSH}),
        "socket.timeout.ms": "30000",
        "group.id": "own",
    }
    assert connection.java()["request.timeout.ms"] == "30000"


def test_librdkafka_takes_every_setting_that_is_not_tidemarks_own() -> None:
    values = {"text": "a", "a whole number, at least 0": "1000", "a URL": "https://id.example/token"}
    plain = {
        name: kind[0] if isinstance(kind, tuple) else values[kind]
        for name, kind in SETTINGS.items()
        if isinstance(kind, tuple) or kind in values
    }
    plain["security.protocol"] = "SASL_SSL"
    taken = {name: value for name, value in plain.items() if not name.startswith(("aws.", "ssl.keystore"))}
    Producer(taken)
    for name in ALIASES:
        Producer({name: "PLAIN" if "mechanism" in name else "a"})


@pytest.mark.parametrize("name", ["librdkafka.group.id", "java.enable.auto.commit", *sorted(OWN)])
def test_what_tidemark_decides_is_left_out_and_listed(name: str) -> None:
    connection = KafkaConnection({"bootstrap.servers": HOST, name: "x"})
    assert connection.ignored == (name,)
    plain = KafkaConnection.plain(HOST)
    assert (connection.client(), connection.java()) == (plain.client(), plain.java())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sasl.user", "sasl.username"),
        ("sasl.passwort", "sasl.password"),
        ("ssl.ca.locations", "ssl.ca.location"),
        ("ssl.truststore.location", "ssl.ca.location"),
        ("sasl.jaas.config", "sasl.username and sasl.password"),
    ],
)
def test_a_near_miss_of_a_name_gets_a_suggestion(name: str, meant: str) -> None:
    error = refusal(sasl(**{name.replace(".", "__"): HUSH}))
    assert (error.found, error.where) == (name, WHERE)
    assert error.hint is not None
    assert error.hint.startswith(f"Did you mean {meant}? ")


@pytest.mark.parametrize("name", ["debug", "ssl.cipher.suites", "enable.ssl.certificate.verification"])
def test_a_setting_of_one_client_is_refused_with_the_names_that_count(name: str) -> None:
    hint = refusal({"bootstrap.servers": HOST, name: "x"}).hint
    assert hint == f"For Python's clients alone write librdkafka.{name}, for Spark's alone java.{name}"


@pytest.mark.parametrize(
    ("settings", "name", "expected", "found"),
    [
        ({"security.protocol": "SASL_TLS"}, "security.protocol", "PLAINTEXT or SSL or SASL_PLAINTEXT", "'SASL_TLS'"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "PLAIN or SCRAM-SHA-256", "'GSSAPI'"),
        ({"sasl.password": ""}, "sasl.password", "text, not empty", "0 characters"),
        ({"sasl.username": " "}, "sasl.username", "text, not empty", "' '"),
        ({"socket.timeout.ms": "-1"}, "socket.timeout.ms", "a whole number, at least 0", "'-1'"),
        ({"socket.timeout.ms": 1.5}, "socket.timeout.ms", "a whole number, at least 0", "'1.5'"),
        ({"sasl.password": [HUSH]}, "sasl.password", "text", "list"),
        ({"sasl.oauthbearer.token.endpoint.url": HUSH}, "sasl.oauthbearer.token.endpoint.url", "a URL", "9 characters"),
        ({"sasl.oauthbearer.token.endpoint.url": f"https://u:a/{HUSH}@h"}, "sasl.oauthbearer.token.endpoint.url",
         "a URL", "23 characters"),
        ({"ssl.ca.pem": HUSH}, "ssl.ca", "a block that begins with -----BEGIN", "9 characters"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_what_is_expected(
    settings: dict[str, Any], name: str, expected: str, found: str
) -> None:
    error = refusal({**sasl(), **settings})
    assert str(error.expected).startswith(expected)
    assert (error.found, error.where) == (found, f"{name} in {WHERE}")


@pytest.mark.conformance(29)
@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
def test_brokers_with_a_login_are_refused_and_not_shown(name: str) -> None:
    error = refusal({name: f"SASL_SSL://archive:a/{HUSH}@b:9093", "nonsense": "x"})
    assert (error.problem, error.found, error.where) == ("brokers with a login", "37 characters", "bootstrap.servers")


@pytest.mark.conformance(29)
def test_every_setting_of_kafka_is_shown_but_for_keys_passwords_and_free_texts() -> None:
    hidden = """https.ca.pem sasl.oauthbearer.client.secret sasl.oauthbearer.extensions sasl.password ssl.ca.pem
        ssl.certificate.pem ssl.key.password ssl.key.pem ssl.keystore.password"""
    assert sorted(name for name in SETTINGS if not shown(name)) == hidden.split()


def test_a_mechanism_that_is_nearly_right_is_completed() -> None:
    assert refusal(sasl("SCRAM-512")).hint == "Did you mean SCRAM-SHA-512?"


OAUTH = given_settings("SASL_SSL", "OAUTHBEARER", OIDC)
MUTUAL = {"ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": KEY}


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (without(sasl(), "bootstrap.servers"), None),
        (without(sasl(), "sasl.mechanism"), "no sasl.mechanism"),
        (without(sasl(), "sasl.username"), "no sasl.username"),
        (without(sasl("SCRAM-SHA-256"), "sasl.password"), "no sasl.password"),
        *((without(OAUTH, name), f"no {name}") for name in OIDC),
        (given_settings("SASL_SSL", "AWS_MSK_IAM", {}), "no aws.region"),
        (given_settings("SASL_SSL", "AWS_MSK_IAM", {"aws.region": "r", **LOGIN}), "sasl.username, and sasl.mechanism"),
        (sasl(aws__region="r"), "aws.region, and sasl.mechanism PLAIN"),
        (sasl(sasl__oauthbearer__scope="s"), "sasl.oauthbearer.scope, and sasl.mechanism PLAIN"),
        ({**OAUTH, "sasl.oauthbearer.extensions": "auth=x"}, "6 characters"),
        ({**OAUTH, "sasl.oauthbearer.extensions": "a=b,c"}, "5 characters"),
        ({**sasl(), "security.protocol": "SSL"}, "SSL, and sasl.mechanism"),
        (without(sasl(), "security.protocol"), "PLAINTEXT, and sasl.mechanism"),
        ({"bootstrap.servers": HOST, "ssl.ca.pem": CERTIFICATE}, "PLAINTEXT, and ssl.ca.pem"),
        ({**sasl(), "sasl.mechanisms": "SCRAM-SHA-256"}, "sasl.mechanisms, sasl.mechanism"),
        ({**sasl(), "ssl.key.pem": KEY}, "no ssl.certificate"),
        ({**sasl(), "ssl.certificate.pem": CERTIFICATE}, "no ssl.key"),
        ({**sasl(), "ssl.ca.pem": CERTIFICATE, "ssl.ca.location": "/x"}, "ssl.ca.location and ssl.ca.pem"),
        ({**sasl(), **MUTUAL, "ssl.keystore.location": "/x"}, "ssl.keystore and ssl.certificate or ssl.key"),
        ({**sasl(), "ssl.ca.location": "/no/such"}, "/no/such: No such file or directory"),
        ({**sasl(), **MUTUAL, "ssl.certificate.pem": CERTIFICATE[:90]}, None),
    ],
)
def test_a_connection_that_can_not_work_is_refused(settings: dict[str, Any], found: str | None) -> None:
    error = refusal(settings)
    assert found is None or str(error.found).startswith(found), error


def key_text(form: PrivateFormat, password: str | None = None) -> str:
    hidden = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return PRIVATE.private_bytes(Encoding.PEM, form, hidden).decode()


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", [None, HUSH])
@pytest.mark.parametrize("as_file", [False, True])
def test_any_form_of_a_key_travels_as_the_one_that_both_clients_read(
    tmp_path: Path, form: PrivateFormat, password: str | None, *, as_file: bool
) -> None:
    texts = {"ssl.certificate": CERTIFICATE, "ssl.key": key_text(form, password), "ssl.ca": CERTIFICATE}
    settings = {"bootstrap.servers": HOST, "security.protocol": "SSL"}
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text)
        settings |= {f"{name}.location": str(path)} if as_file else {f"{name}.pem": text.replace("\n", "\\n")}
    connection = KafkaConnection({**settings, **({"ssl.key.password": password} if password else {})})
    for name in texts:
        (tmp_path / name).unlink()
    assert connection.properties == {
        "bootstrap.servers": HOST,
        "security.protocol": "SSL",
        "ssl.ca.pem": CERTIFICATE,
        "ssl.certificate.pem": CERTIFICATE,
        "ssl.key.pem": KEY,
    }
    Producer(connection.client())  # librdkafka reads them, too


def test_a_key_store_and_a_file_with_both_are_taken_apart(tmp_path: Path) -> None:
    store, both = tmp_path / "client.p12", tmp_path / "client.pem"
    store.write_bytes(
        serialize_key_and_certificates(b"x", PRIVATE, SIGNED, None, BestAvailableEncryption(HUSH.encode()))
    )
    both.write_text(KEY + CERTIFICATE)
    settings = {"bootstrap.servers": HOST, "security.protocol": "SSL"}
    unpacked = KafkaConnection({**settings, "ssl.keystore.location": str(store), "ssl.keystore.password": HUSH})
    assert (unpacked.properties["ssl.key.pem"], unpacked.properties["ssl.certificate.pem"]) == (KEY, CERTIFICATE)
    assert KafkaConnection({**settings, "ssl.certificate.location": str(both)}).properties["ssl.key.pem"] == KEY
    error = refusal({**settings, "ssl.keystore.location": str(store), "ssl.keystore.password": HUSH[:-1]})
    assert error.expected == "PKCS#12, and its password in ssl.keystore.password"


def test_a_key_that_can_not_be_used_says_how_to_make_one() -> None:
    settings = {"bootstrap.servers": HOST, "security.protocol": "SSL", **MUTUAL}
    locked = refusal({**settings, "ssl.key.pem": key_text(PrivateFormat.PKCS8, HUSH)})
    assert "ssl.key.password" in str(locked.expected)
    assert "openssl pkcs8 -topk8 -nocrypt" in str(locked.hint)
    other = rsa.generate_private_key(65537, 2048)
    wrong = certificate_of(other, "speed").public_bytes(Encoding.PEM).decode()
    assert refusal({**settings, "ssl.certificate.pem": wrong}).expected == "the key of CN=speed"


def test_the_authorities_of_the_machine_need_no_file() -> None:
    connection = KafkaConnection({**sasl(), "ssl.ca.location": "probe"})
    assert not any("ssl.ca" in name or "truststore" in name for name in {**connection.client(), **connection.java()})


def test_msk_signs_with_the_identity_of_the_machine_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = given_settings("SASL_SSL", "AWS_MSK_IAM", {"aws.region": "eu-west-1"})
    client = KafkaConnection(settings).client()
    sign = pickle.loads(pickle.dumps(client["oauth_cb"]))  # noqa: S301
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", HUSH)
    token, expires = sign("")
    assert (client["sasl.mechanism"], len(token) > 100, expires > 1_700_000_000) == ("OAUTHBEARER", True, True)
    assert not any(name.startswith("aws.") for name in client)
    Producer(client)


@pytest.mark.parametrize(
    "name", ["java.bootstrap.servers", "librdkafka.bootstrap.servers", "librdkafka.metadata.broker.list"]
)
def test_both_clients_have_the_same_brokers(name: str) -> None:
    assert refusal({"bootstrap.servers": HOST, name: "other:9092"}).found == name
