"""Java's settings, derived from librdkafka's, for every mechanism and setting."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.connections.keys import CERTIFICATE, KEY
from tidemark.connections.kafka import KafkaConnection
from tidemark.connections.kafka_java import jaas_line
from tidemark.connections.kafka_names import MECHANISMS, PROTOCOLS, SETTINGS
from tidemark.core.errors import ConfigError
from tidemark.spark.java import jvm

HOST = "broker.example:9092"
LOGIN = {"sasl.username": "archive", "sasl.password": 'p"w\\;'}
JAAS_LOGIN = 'username="archive" password="p\\"w\\\\;";'
OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "archive",
    "sasl.oauthbearer.client.secret": "hush",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
}
KAFKA = "org.apache.kafka.common.security"
TOKEN_JAVA = {
    "sasl.login.callback.handler.class": f"{KAFKA}.oauthbearer.OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
}
MSK = {"sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"}
MSK_HOST = "b-1.events.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"

# Mechanism, what is given beside protocol and mechanism, what Java gets beside them.
LOGINS: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("PLAIN", LOGIN, {"sasl.jaas.config": f"{KAFKA}.plain.PlainLoginModule required {JAAS_LOGIN}"}),
    ("SCRAM-SHA-256", LOGIN, {"sasl.jaas.config": f"{KAFKA}.scram.ScramLoginModule required {JAAS_LOGIN}"}),
    ("SCRAM-SHA-512", LOGIN, {"sasl.jaas.config": f"{KAFKA}.scram.ScramLoginModule required {JAAS_LOGIN}"}),
    (
        "OAUTHBEARER",
        OIDC,
        {
            "sasl.jaas.config": f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required"
            ' clientId="archive" clientSecret="hush";',
            **TOKEN_JAVA,
        },
    ),
    (
        "OAUTHBEARER",
        {
            **OIDC,
            "sasl.oauthbearer.grant.type": "client_credentials",
            "sasl.oauthbearer.scope": "kafka all",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2=",
            "https.ca.pem": CERTIFICATE,
        },
        {
            "sasl.jaas.config": f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required"
            ' clientId="archive" clientSecret="hush" scope="kafka all" extension_logicalCluster="lkc-1"'
            ' extension_identityPoolId="pool-2=" ssl.truststore.type="PEM" ssl.truststore.certificates="'
            + CERTIFICATE.replace("\n", "\\n")
            + '";',
            **TOKEN_JAVA,
        },
    ),
    (
        "AWS_MSK_IAM",
        {"aws.region": "eu-west-1"},
        {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;", **MSK},
    ),
    (
        "AWS_MSK_IAM",
        {"aws.region": "eu-west-1", "aws.profile": "lake prod"},
        {"sasl.jaas.config": 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="lake prod";', **MSK},
    ),
    (
        "AWS_MSK_IAM",
        {"aws.region": "eu-west-1", "aws.role.arn": "arn:aws:iam::1:role/r", "aws.role.session.name": "archive"},
        {
            "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required"
            ' awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName="archive" awsStsRegion="eu-west-1";',
            **MSK,
        },
    ),
]
# What is given for TLS, what Java gets.
STORES: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {}),
    (
        {"ssl.ca.pem": CERTIFICATE},
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CERTIFICATE},
    ),
    (
        {"ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": KEY, "ssl.endpoint.identification.algorithm": "none"},
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": CERTIFICATE,
            "ssl.keystore.key": KEY,
            "ssl.endpoint.identification.algorithm": "",
        },
    ),
    ({"ssl.endpoint.identification.algorithm": "https"}, {"ssl.endpoint.identification.algorithm": "https"}),
]
# One value of every other setting, and what Java gets.
NETWORK: list[tuple[str, str, str, str]] = [
    ("bootstrap.servers", "a:1,b:2", "bootstrap.servers", "a:1,b:2"),
    ("client.id", "archive", "client.id", "archive"),
    ("client.rack", "euw1-az2", "client.rack", "euw1-az2"),
    ("client.dns.lookup", "use_all_dns_ips", "client.dns.lookup", "use_all_dns_ips"),
    ("compression.type", "zstd", "compression.type", "zstd"),
    ("connections.max.idle.ms", "0", "connections.max.idle.ms", "-1"),
    ("connections.max.idle.ms", "9", "connections.max.idle.ms", "9"),
    ("metadata.max.age.ms", "9", "metadata.max.age.ms", "9"),
    ("reconnect.backoff.max.ms", "0", "reconnect.backoff.max.ms", "0"),
    ("reconnect.backoff.ms", "9", "reconnect.backoff.ms", "9"),
    ("retry.backoff.max.ms", "9", "retry.backoff.max.ms", "9"),
    ("retry.backoff.ms", "9", "retry.backoff.ms", "9"),
    ("socket.connection.setup.timeout.ms", "9", "socket.connection.setup.timeout.ms", "9"),
    ("socket.receive.buffer.bytes", "0", "receive.buffer.bytes", "-1"),
    ("socket.send.buffer.bytes", "9", "send.buffer.bytes", "9"),
    ("socket.timeout.ms", "9", "request.timeout.ms", "9"),
]


def given_settings(protocol: str, mechanism: str | None, more: dict[str, str]) -> dict[str, str]:
    named = {} if mechanism is None else {"sasl.mechanism": mechanism}
    return {"bootstrap.servers": HOST, "security.protocol": protocol, **named, **more}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("mechanism", "login", "java_login"), [(None, {}, {}), *LOGINS])
@pytest.mark.parametrize(("tls", "java_tls"), STORES)
def test_java_gets_the_same_security(
    protocol: str,
    mechanism: str | None,
    login: dict[str, str],
    java_login: dict[str, str],
    tls: dict[str, str],
    java_tls: dict[str, str],
) -> None:
    given = given_settings(protocol, mechanism, {**login, **tls})
    if (mechanism is not None) != protocol.startswith("SASL") or (tls and "SSL" not in protocol.split("_")):
        with pytest.raises(ConfigError):
            KafkaConnection(given)
        return
    found = KafkaConnection(given).java()
    assert found == given_settings(protocol, mechanism, {**java_login, **java_tls})


@pytest.mark.parametrize(("name", "value", "java_name", "java_value"), NETWORK)
def test_java_gets_the_same_network_settings(name: str, value: str, java_name: str, java_value: str) -> None:
    found = KafkaConnection({"bootstrap.servers": HOST, name: value}).java()
    assert found == {"bootstrap.servers": HOST, "security.protocol": "PLAINTEXT", java_name: java_value}


def test_the_cases_above_have_every_setting_and_every_mechanism() -> None:
    files = {f"{name}.location" for name in ("https.ca", "ssl.ca", "ssl.certificate", "ssl.key", "ssl.keystore")}
    read = {*files, "ssl.key.password", "ssl.keystore.password"}  # when the connection is made
    secure = {name for _, login, _ in LOGINS for name in login} | {name for tls, _ in STORES for name in tls}
    network = {name for name, *_ in NETWORK}
    assert secure | network | read | {"security.protocol", "sasl.mechanism"} == set(SETTINGS)
    assert {mechanism for mechanism, *_ in LOGINS} == set(MECHANISMS)


def test_a_setting_for_java_replaces_the_derived_one_for_java_only() -> None:
    settings = {**given_settings("SASL_SSL", "PLAIN", LOGIN), "java.sasl.jaas.config": "own", "java.group.id": "g"}
    connection = KafkaConnection(settings)
    assert connection.java()["sasl.jaas.config"] == "own"
    assert "group.id" not in connection.java()
    assert not any("jaas" in name or name == "group.id" for name in connection.client())


def test_each_client_may_have_a_mechanism_of_its_own() -> None:
    own = {
        "java.sasl.mechanism": "GSSAPI",
        "librdkafka.sasl.mechanisms": "GSSAPI",
        "java.sasl.kerberos.service.name": "k",
    }
    connection = KafkaConnection({"bootstrap.servers": HOST, "security.protocol": "SASL_SSL", **own})
    assert connection.java() == {
        "bootstrap.servers": HOST,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "k",
    }
    assert connection.client()["sasl.mechanisms"] == "GSSAPI"


def test_msks_region_is_taken_from_the_brokers_names() -> None:
    settings = given_settings("SASL_SSL", "AWS_MSK_IAM", {"bootstrap.servers": MSK_HOST})
    found = KafkaConnection(settings)
    assert found.properties["aws.region"] == "eu-west-1"
    assert KafkaConnection({**settings, "aws.region": "us-east-1"}).properties["aws.region"] == "us-east-1"


# Kafka's parser has no escape for half a surrogate pair, and Java's strings none for what is no text.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(
    "\"\\;= \n\r\t\0\x07/*#'17nü€😀", max_size=12
)


@pytest.mark.services
def test_kafka_reads_any_text_from_the_jaas_line(spark: SparkSession) -> None:
    java: Any = jvm(spark)
    common = java.org.apache.kafka.common

    @given(st.dictionaries(st.sampled_from(["username", "password", "extension_a", "ssl.truststore.type"]), TEXTS))
    def check(options: dict[str, str]) -> None:
        settings = java.java.util.HashMap()
        line = jaas_line("a.Module", options)
        settings.put("sasl.jaas.config", common.config.types.Password(line))
        (entry,) = common.security.JaasContext.loadClientContext(settings).configurationEntries()
        assert (entry.getLoginModuleName(), dict(entry.getOptions())) == ("a.Module", options), line

    check()


@pytest.mark.services
def test_the_jvm_has_every_class_that_the_settings_name(spark: SparkSession) -> None:
    java: Any = jvm(spark)
    names = {
        word
        for _, _, settings in LOGINS
        for name, value in settings.items()
        if name.endswith(("class", "jaas.config"))
        for word in [value.split()[0]]
    }
    msk = "software.amazon.msk.auth.iam.internals"
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    for name in [*names, f"{msk}.AWS4SignedPayloadGenerator", f"{msk}.MSKCredentialProvider"]:
        java.java.lang.Class.forName(name, True, loader)
