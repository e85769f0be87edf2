"""What Spark gets to reach S3: no secret in its properties, and a trust store that Java reads."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark import SparkFiles

from tidemark.core.errors import ConfigError
from tidemark.settings import Settings
from tidemark.spark.conf import session_conf, submit_environment
from tidemark.spark.java_command import java_command
from tidemark.spark.task_settings import task_settings
from tidemark.spark.trust import SENT_BUNDLE, java_trust
from tidemark.stack.certificates import server_certificate

KEYS = {"s3_access_key": "AN-ACCESS-KEY", "s3_secret_key": "A-SECRET-KEY"}
ROLE = {"s3_role_arn": "arn:aws:iam::1:role/lake", "s3_external_id": "external", "s3_sts_endpoint": "http://sts:1"}


def given(**more: Any) -> Settings:
    raw = {"kafka_bootstrap": "h:1", "bucket": "lake", "catalog_uri": "jdbc:sqlite:c", "s3_region": "eu-west-1"}
    return Settings.model_validate({**raw, **more})


@pytest.mark.conformance(29)
@pytest.mark.parametrize("more", [KEYS, {**KEYS, "s3_session_token": "A-TOKEN"}, {**KEYS, **ROLE}])
def test_sparks_properties_have_no_key(more: dict[str, str]) -> None:
    conf = session_conf(given(**more))
    assert [name for name, value in conf.items() if {*KEYS.values(), "A-TOKEN"} & {value}] == []


@pytest.mark.parametrize(
    ("more", "variables"),
    [
        (
            KEYS,
            {"AWS_ACCESS_KEY_ID": "AN-ACCESS-KEY", "AWS_SECRET_ACCESS_KEY": "A-SECRET-KEY", "AWS_SESSION_TOKEN": ""},
        ),
        (
            {**KEYS, "s3_session_token": "A-TOKEN"},
            {
                "AWS_ACCESS_KEY_ID": "AN-ACCESS-KEY",
                "AWS_SECRET_ACCESS_KEY": "A-SECRET-KEY",
                "AWS_SESSION_TOKEN": "A-TOKEN",
            },
        ),
        ({}, {}),
        ({"s3_profile": "work"}, {"AWS_PROFILE": "work"}),
        (ROLE, {"AWS_ENDPOINT_URL_STS": "http://sts:1"}),
        (
            {"s3_profile": "work", "s3_role_arn": ROLE["s3_role_arn"]},
            {
                "AWS_PROFILE": "work",
                "AWS_ACCESS_KEY_ID": "",
                "AWS_SECRET_ACCESS_KEY": "",
                "AWS_WEB_IDENTITY_TOKEN_FILE": "",
            },
        ),
    ],
    ids=["keys", "session", "chain", "profile", "role", "role of a profile"],
)
def test_a_started_application_inherits_what_its_identity_needs(
    more: dict[str, str], variables: dict[str, str]
) -> None:
    found = {name: text for name, text in submit_environment(given(**more)).items() if name.startswith("AWS_")}
    assert found == {"AWS_REGION": "eu-west-1", **variables}


@pytest.mark.parametrize(
    ("more", "provider"),
    [(KEYS, None), ({}, "DefaultCredentialsProvider"), ({"s3_profile": "lake"}, "ProfileCredentialsProvider")],
    ids=["keys", "chain", "profile"],
)
def test_no_provider_hides_the_keys_that_iceberg_gets(more: dict[str, str], provider: str | None) -> None:
    found = session_conf(given(**more)).get("spark.sql.catalog.tidemark.client.credentials-provider")
    assert (found or "").rpartition(".")[2] == (provider or "")


def test_executors_and_driver_get_a_trust_store_that_java_reads(tmp_path: Path) -> None:
    authority = server_certificate(tmp_path).ca
    settings = given(**KEYS, s3_ca_bundle=authority)
    driver = java_trust(settings.s3_ca_bundle)
    store, password = driver["javax.net.ssl.trustStore"], driver["javax.net.ssl.trustStorePassword"]
    keytool = Path(java_command()).resolve().parent / "keytool"
    listed = subprocess.run(
        [keytool, "-list", "-v", "-keystore", store, "-storepass", password], capture_output=True, text=True, check=True
    ).stdout
    assert "Owner: CN=Tidemark's local stack" in listed
    assert listed.count("trustedCertEntry") > 50  # public authorities
    conf = session_conf(settings)
    sent = [Path(path) for path in conf["spark.files"].split(",")]
    assert [path.name for path in sent] == [Path(store).name, SENT_BUNDLE]
    assert sent[1].read_bytes() == authority.read_bytes()
    assert f"-Djavax.net.ssl.trustStore={Path(store).name} " in conf["spark.executor.defaultJavaOptions"]


def test_a_task_reads_the_bundle_that_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    settings = given(**KEYS, s3_ca_bundle="/only/on/the/driver.pem")
    assert task_settings(settings) == settings
    (tmp_path / SENT_BUNDLE).touch()
    assert task_settings(settings).s3_ca_bundle == tmp_path / SENT_BUNDLE
    assert task_settings(given(**KEYS)) == given(**KEYS)


def test_a_bundle_without_a_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    with pytest.raises(ConfigError, match=r"no certificates: .*/empty\.pem, named by TIDEMARK_S3_CA_BUNDLE"):
        session_conf(given(**KEYS, s3_ca_bundle=tmp_path / "empty.pem"))


def test_a_proxy_with_a_password_is_refused() -> None:
    with pytest.raises(ValidationError, match="s3_proxy"):
        given(**KEYS, s3_proxy="http://user:password@proxy:3128")
