"""Airflow's connections as settings: what its providers keep, in which order, and only where nothing else says it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pages import blocks
from tests.test_sources import LEAST, PLANTED, read, refusal
from tidemark.connections.airflow import AirflowConnection
from tidemark.installation import PROJECT
from tidemark.settings import Settings

KEYS: dict[str, Any] = {"login": "an-access-key", "password": "a-secret-key"}
DEFAULTS = read(LEAST)


def differences(found: Settings) -> dict[str, Any]:
    """What is not as without a connection, with secrets in plain text."""
    there, before = found.environment(), DEFAULTS.environment()
    return {name.removeprefix("TIDEMARK_"): text for name, text in there.items() if before.get(name) != text}


def test_a_kafka_connections_extra_is_the_mapping_without_what_is_for_airflows_consumers() -> None:
    extra = {"bootstrap.servers": "b:9", "security.protocol": "SASL_SSL", "sasl.password": "p", "retries": 3}
    of_consumers = {"group.id": "airflow", "auto.offset.reset": "latest", "enable.auto.commit": False}
    connection = AirflowConnection(id="tidemark_kafka", extra={**extra, **of_consumers})
    without = {name: text for name, text in LEAST.items() if name != "TIDEMARK_KAFKA_BOOTSTRAP"}
    assert read(without, connection).kafka_properties.get_secret_value() == {**extra, "retries": "3"}
    assert read(without, connection).kafka_bootstrap == "b:9"
    assert read(LEAST, connection).kafka_bootstrap == "h:1"  # a variable says it
    given = {**LEAST, "TIDEMARK_KAFKA_PROPERTIES": '{"a": "b"}'}
    assert read(given, connection).kafka_properties.get_secret_value() == {"a": "b"}
    assert "a" not in repr(connection).replace("AirflowConnection(id='tidemark_kafka'", "")


def test_keys_of_a_connection_are_never_used_with_a_token_or_external_id_from_elsewhere() -> None:
    connection = AirflowConnection(id="tidemark_s3", **KEYS)
    assert "TIDEMARK_S3_SESSION_TOKEN: needs" in refusal({**LEAST, "TIDEMARK_S3_SESSION_TOKEN": PLANTED}, connection)
    assert "TIDEMARK_S3_EXTERNAL_ID: needs" in refusal({**LEAST, "TIDEMARK_S3_EXTERNAL_ID": PLANTED}, connection)


def test_a_speed_cluster_of_its_own_has_a_connection_of_its_own() -> None:
    connection = AirflowConnection(id="speed", extra={"bootstrap.servers": "b:9"})
    assert read({**LEAST, "TIDEMARK_SPEED_KAFKA_CONNECTION": "speed"}, connection).speed_kafka_bootstrap == "b:9"
    assert read(LEAST, connection).speed_kafka_bootstrap is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (KEYS, {"S3_ACCESS_KEY": "an-access-key", "S3_SECRET_KEY": "a-secret-key"}),
        (
            {**KEYS, "extra": {"aws_session_token": "t", "region_name": "eu-west-1", "endpoint_url": "https://s3"}},
            {
                "S3_ACCESS_KEY": "an-access-key",
                "S3_SECRET_KEY": "a-secret-key",
                "S3_SESSION_TOKEN": "t",
                "S3_REGION": "eu-west-1",
                "S3_ENDPOINT": "https://s3",
            },
        ),
        ({"extra": {"profile_name": "data"}}, {"S3_PROFILE": "data"}),
        (
            {"extra": {"session_kwargs": {"profile_name": "data", "region_name": "r"}}},
            {"S3_PROFILE": "data", "S3_REGION": "r"},
        ),
        (
            {
                "extra": {
                    "role_arn": "arn:r",
                    "assume_role_method": "assume_role",
                    "assume_role_kwargs": {"ExternalId": "x"},
                    "service_config": {
                        "s3": {"endpoint_url": "https://s3", "bucket_name": "of-the-connection"},
                        "sts": {"endpoint_url": "https://sts"},
                    },
                    "endpoint_url": "https://other",
                    "config_kwargs": {"s3": {"addressing_style": "virtual"}, "proxies": {"https": "http://p:1"}},
                    "verify": "/ca.pem",
                }
            },
            {
                "S3_ROLE_ARN": "arn:r",
                "S3_EXTERNAL_ID": "x",
                "S3_ENDPOINT": "https://s3",
                "S3_STS_ENDPOINT": "https://sts",
                "S3_ADDRESSING": "virtual",
                "S3_PROXY": "http://p:1",
                "S3_CA_BUNDLE": "/ca.pem",
            },
        ),
    ],
    ids=["keys", "token", "profile", "session", "role"],
)
def test_an_aws_connection_gives_identity_and_server(fields: dict[str, Any], expected: dict[str, str]) -> None:
    assert differences(read(LEAST, AirflowConnection(id="tidemark_s3", **fields))) == expected
    # Whoever the variables name is the client: then the connection is not even asked.
    given = {**LEAST, "TIDEMARK_S3_PROFILE": "mine"}
    assert differences(read(given, AirflowConnection(id="tidemark_s3", **fields))) == {"S3_PROFILE": "mine"}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            {"assume_role_method": "assume_role_with_saml"},
            "only be assumed by assume_role: found assume_role_method assume",
        ),
        ({"assume_role_kwargs": {"Policy": PLANTED}}, "only be assumed with an ExternalId: found Policy [Airflow conn"),
        ({"verify": False}, "S3's certificate is always verified: found verify false [Airflow connection tidemark_s3]"),
    ],
)
def test_a_login_that_tidemark_does_not_have_is_refused(extra: dict[str, Any], message: str) -> None:
    assert message in refusal(LEAST, AirflowConnection(id="tidemark_s3", extra=extra))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"host": "https://c/api", "extra": {"type": "rest", "credential": "id:secret"}},
            {
                "CATALOG_TYPE": "rest",
                "CATALOG_URI": "https://c/api",
                "CATALOG_PROPERTIES": '{"credential": "id:secret"}',
            },
        ),
        (
            {"extra": {"type": "rest", "uri": "https://c"}, "login": "id", "password": "secret"},
            {"CATALOG_TYPE": "rest", "CATALOG_URI": "https://c", "CATALOG_PROPERTIES": '{"credential": "id:secret"}'},
        ),
        (
            {"host": "jdbc:postgresql://h/db", "login": "me", "password": "secret"},
            {
                "CATALOG_URI": "jdbc:postgresql://h/db",
                "CATALOG_PROPERTIES": '{"jdbc.user": "me", "jdbc.password": "secret"}',
            },
        ),
        (
            {"host": "thrift://h", "port": 9083, "extra": {"type": "hive"}},
            {"CATALOG_TYPE": "hive", "CATALOG_URI": "thrift://h:9083"},
        ),
    ],
    ids=["rest", "rest with a login", "jdbc", "hive"],
)
def test_a_generic_connection_gives_the_catalog(fields: dict[str, Any], expected: dict[str, str]) -> None:
    least = {name: text for name, text in LEAST.items() if name != "TIDEMARK_CATALOG_URI"}
    assert differences(read(least, AirflowConnection(id="tidemark_catalog", **fields))) == expected


def test_a_catalogs_login_fits_the_type_that_a_variable_gives() -> None:
    catalog = AirflowConnection(id="tidemark_catalog", host="https://c", **KEYS)
    least = {name: text for name, text in LEAST.items() if name != "TIDEMARK_CATALOG_URI"}
    found = read({**least, "TIDEMARK_CATALOG_TYPE": "rest"}, catalog)
    assert found.catalog_properties.get_secret_value() == {"credential": "an-access-key:a-secret-key"}


def test_a_catalog_without_a_login_refuses_one_and_a_named_connection_must_exist() -> None:
    glue = AirflowConnection(id="tidemark_catalog", password=PLANTED, extra={"type": "glue"})
    assert "a catalog of this type has no login: found a login or password, type glue" in refusal(LEAST, glue)
    expected = "no such Airflow connection: expected the one that s3_connection names, found mine [variable TIDEMARK_S3"
    assert expected in refusal({**LEAST, "TIDEMARK_S3_CONNECTION": "mine"})


def test_a_connection_with_a_wrong_value_is_named_without_the_value() -> None:
    connection = AirflowConnection(id="tidemark_kafka", extra={"oauth_cb": {"a": PLANTED}})
    assert "TIDEMARK_KAFKA_PROPERTIES.oauth_cb (Airflow connection tidemark_kafka): Input should" in refusal(
        LEAST, connection
    )


def test_settings_without_airflow_never_import_it() -> None:
    program = "import sys; from tidemark.settings import settings; settings(); print('airflow' in sys.modules)"
    environment = {**LEAST, "PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT / "include")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_how_tos_file_and_connections_are_read_as_it_says(tmp_path: Path) -> None:
    texts = {block.language: block.text for block in blocks(PROJECT / "docs" / "how-to" / "connect.md")}
    path, password = tmp_path / "tidemark.toml", tmp_path / "kafka-password"
    path.write_text(texts["toml"].replace("/run/secrets/", ""), encoding="utf-8")
    password.write_text("of-kafka\n", encoding="utf-8")
    config = {"TIDEMARK_CONFIG": str(path), "CATALOG": "https://c", "CATALOG_CREDENTIAL": "id:secret"}
    dev, prod = (read({**config, "TIDEMARK_PROFILE": name}) for name in ("dev", "prod"))
    assert (dev.bucket, dev.s3_profile, dev.s3_role_arn) == ("lake-dev", "dev", "")
    assert (prod.bucket, prod.s3_profile, prod.catalog_uri) == ("lake-prod", "", "https://c")
    assert prod.kafka_properties.get_secret_value()["sasl.password"] == "of-kafka"
    assert prod.catalog_properties.get_secret_value() == {"credential": "id:secret"}
    connections = []
    for name, text in re.findall(r"^export AIRFLOW_CONN_(\w+)='([^']+)'$", texts["sh"], re.MULTILINE):
        fields = json.loads(text)
        del fields["conn_type"]
        connections.append(AirflowConnection(id=name.lower(), **fields))
    found = read({"TIDEMARK_BUCKET": "lake"}, *connections)
    assert (found.kafka_bootstrap, found.s3_region, found.catalog_type, found.catalog_uri) == (
        "kafka-1.example.com:9093",
        "eu-central-1",
        "rest",
        "https://catalog.example.com",
    )
    assert found.catalog_properties.get_secret_value() == {"credential": "id:secret"}
