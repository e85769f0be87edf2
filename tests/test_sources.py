"""Where settings come from: variables, a TOML file with profiles, Airflow connections; and what an error says."""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Secret, SecretStr

from tidemark.connections.airflow import AirflowConnection
from tidemark.connections.config_file import from_file, toml_text
from tidemark.connections.spark import SparkSettings, SparkSizes
from tidemark.core.errors import ConfigError
from tidemark.settings import Settings, resolve, settings, settings_source, streams_dir

PLANTED = "PLANTED-VALUE"
PRIVATE_KEY = base64.b64encode(bytes.fromhex("302e020100300506032b657004220420") + bytes(32)).decode()
LEAST = {"TIDEMARK_KAFKA_BOOTSTRAP": "h:1", "TIDEMARK_BUCKET": "lake", "TIDEMARK_CATALOG_URI": "jdbc:sqlite:c"}
FILE = """\
# Of all
[default]
bucket = "lake"
catalog_uri = "jdbc:sqlite:${FOLDER:-/data}/catalog.db"
s3_region = "eu-west-1"

[dev]
kafka_bootstrap = "localhost:9092"

[prod]
kafka_bootstrap = "${BROKERS}"
s3_region = "eu-central-1"
s3_requester_pays = true
[prod.kafka_properties]
"sasl.username" = "tidemark"
"sasl.password" = "file:password"
"socket.timeout.ms" = 1000
"socket.keepalive.enable" = true
"""


def read(variables: Mapping[str, str], *connections: AirflowConnection) -> Settings:
    return resolve({item.id: item for item in connections}.get, {"TIDEMARK_ENV_FILE": "", **variables}).settings


def refusal(variables: Mapping[str, str], *connections: AirflowConnection) -> str:
    """The error's text, in which nothing planted may be."""
    with pytest.raises(ConfigError) as caught:
        read(variables, *connections)
    text = str(caught.value)
    assert PLANTED not in f"{text} {caught.value.__cause__!r} {caught.value.__cause__}"
    return text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tidemark.toml"
    path.write_text(FILE, encoding="utf-8")
    (tmp_path / "password").write_text(f"{PLANTED}\n", encoding="utf-8")
    return path


def test_a_profile_adds_to_the_shared_one_and_variables_come_first(file: Path) -> None:
    chosen = {"TIDEMARK_CONFIG": str(file), "TIDEMARK_PROFILE": "prod", "BROKERS": "a:1,b:2"}
    found = read(chosen)
    assert (found.bucket, found.catalog_uri, found.s3_region) == (
        "lake",
        "jdbc:sqlite:/data/catalog.db",
        "eu-central-1",
    )
    assert (found.kafka_bootstrap, found.s3_requester_pays) == ("a:1,b:2", True)
    assert found.kafka_properties.get_secret_value() == {
        "sasl.username": "tidemark",
        "sasl.password": PLANTED,
        "socket.timeout.ms": "1000",
        "socket.keepalive.enable": "true",
    }
    assert read({**chosen, "TIDEMARK_S3_REGION": "us-west-2"}) == found.model_copy(update={"s3_region": "us-west-2"})
    dev = read({**chosen, "TIDEMARK_PROFILE": "dev", "FOLDER": "/here"})
    assert (dev.kafka_bootstrap, dev.s3_region) == ("localhost:9092", "eu-west-1")
    assert dev.catalog_uri == "jdbc:sqlite:/here/catalog.db"


def test_the_only_profile_needs_no_choice(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text('[here]\nkafka_bootstrap = "h:1"\nbucket = "b"\ncatalog_uri = "jdbc:sqlite:x"\n', encoding="utf-8")
    assert read({"TIDEMARK_CONFIG": str(path)}).bucket == "b"
    path.write_text(path.read_text(encoding="utf-8").replace("[here]", "[default]"), encoding="utf-8")
    assert read({"TIDEMARK_CONFIG": str(path)}).bucket == "b"


def test_a_file_of_variables_comes_before_the_toml_file_and_the_local_stacks_is_not_read_beside_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stack = tmp_path / ".tidemark" / "local" / "stack.env"
    stack.parent.mkdir(parents=True)
    stack.write_text("TIDEMARK_BUCKET='of-the-stack'\n", encoding="utf-8")
    chosen = {"TIDEMARK_CONFIG": str(file), "TIDEMARK_PROFILE": "dev"}
    assert resolve(variables=chosen).settings.bucket == "lake"
    found = resolve(variables={**chosen, "TIDEMARK_ENV_FILE": str(stack)})
    assert (found.settings.bucket, found.sources["bucket"]) == ("of-the-stack", f"TIDEMARK_BUCKET in {stack}")
    alone = {name: text for name, text in LEAST.items() if name != "TIDEMARK_BUCKET"}
    assert resolve(variables=alone).settings.bucket == "of-the-stack"


def test_a_deployments_settings_are_not_mixed_with_a_local_stack_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stack = tmp_path / ".tidemark" / "local" / "stack.env"
    stack.parent.mkdir(parents=True)
    stack.write_text("TIDEMARK_S3_ENDPOINT='http://127.0.0.1:9'\nTIDEMARK_PREFIX='local'\n", encoding="utf-8")
    found = resolve(variables=LEAST)
    assert (found.settings.s3_endpoint, found.sources["s3_endpoint"]) == (None, "default")
    assert found.settings.prefix != "local"
    named = resolve(variables={**LEAST, "TIDEMARK_ENV_FILE": str(stack)})
    assert named.settings.prefix == "local"


@pytest.mark.conformance(29)
@pytest.mark.parametrize(
    ("change", "variables", "message"),
    [
        (
            ("", ""),
            {},
            "several profiles: expected a choice, found dev, prod [{file}]. Set TIDEMARK_PROFILE to one of them",
        ),
        (
            ("", ""),
            {"TIDEMARK_PROFILE": "prd"},
            "unknown profile: expected one of: default, dev, prod, found prd [{file}]. Did you mean prod?",
        ),
        (
            ('s3_region = "eu-c', 's3_regoin = "eu-c'),
            {"TIDEMARK_PROFILE": "dev"},
            "unknown setting: found s3_regoin [{file}, line 12, [prod]]. Did you mean s3_region?",
        ),
        (
            ("# Of all", f"password = '{PLANTED}'"),
            {"TIDEMARK_PROFILE": "dev"},
            "a key outside of a profile: found password [{file}]. Put it below a line [default], or the name of",
        ),
        (
            ("", ""),
            {"TIDEMARK_PROFILE": "prod"},
            "kafka_bootstrap: no value for ${BROKERS}: the variable BROKERS is not set [{file}, line 11, [prod]]",
        ),
        (
            ("file:password", "file:nothing"),
            {"TIDEMARK_PROFILE": "prod", "BROKERS": "b"},
            "kafka_properties.sasl.password: no value for file:nothing: found No such file or directory [{file}",
        ),
        (
            ('"tidemark"', f'"{PLANTED}${{"'),
            {"TIDEMARK_PROFILE": "prod", "BROKERS": "b"},
            "kafka_properties.sasl.username: no reference: expected ${NAME} or ${NAME:-default}",
        ),
        (
            ('"sasl.username" = "tidemark"', f'"sasl.username" = ["{PLANTED}"]'),
            {"TIDEMARK_PROFILE": "prod", "BROKERS": "b"},
            "TIDEMARK_KAFKA_PROPERTIES.sasl.username ({file}, line 14, [prod]): Input should be a valid string",
        ),
        (("[dev]", "[dev"), {}, "the file of settings can't be read: found "),
    ],
)
def test_a_wrong_file_is_explained_by_its_line_and_without_values(
    file: Path, change: tuple[str, str], variables: dict[str, str], message: str
) -> None:
    file.write_text(FILE.replace(*change) if change[0] else FILE, encoding="utf-8")
    assert message.replace("{file}", str(file)) in refusal({"TIDEMARK_CONFIG": str(file), **variables})


def test_a_profile_without_a_file_is_refused() -> None:
    expected = "a profile without a file: found prod [TIDEMARK_PROFILE]. Set TIDEMARK_CONFIG to the TOML file that"
    assert expected in refusal({**LEAST, "TIDEMARK_PROFILE": "prod"})


@pytest.mark.conformance(29)
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_a_value_of_an_env_file_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quote: str) -> None:
    monkeypatch.setenv("HOME_OF_X", "planted")
    key = "a${HOME_OF_X}b$HOME_OF_X${NONE:-c}$$"
    path = tmp_path / "stack.env"
    lines = [f"{name}={text}" for name, text in {**LEAST, "TIDEMARK_S3_ACCESS_KEY": "k"}.items()]
    path.write_text("\n".join([*lines, f"TIDEMARK_S3_SECRET_KEY={quote}{key}{quote}"]), encoding="utf-8")
    found = resolve(variables={"TIDEMARK_ENV_FILE": str(path)}).settings
    assert found.s3_secret_key.get_secret_value() == key


@pytest.mark.conformance(29)
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TIDEMARK_S3_ENDPIONT": "x"}, "found TIDEMARK_S3_ENDPIONT [environment]. Did you mean TIDEMARK_S3_ENDPOINT?"),
        ({"TIDEMARK_KAFKA_BOOTSTRAP": ""}, "TIDEMARK_KAFKA_BOOTSTRAP: missing; set it, or bootstrap.servers in"),
        ({"TIDEMARK_KAFKA_PROPERTIES": f'{{"sasl.password": "{PLANTED}"'}, "KAFKA_PROPERTIES: not a JSON object"),
        ({"TIDEMARK_CATALOG_PROPERTIES": f'["{PLANTED}"]'}, "TIDEMARK_CATALOG_PROPERTIES: not a JSON object"),
        ({"TIDEMARK_SPEED_KAFKA_PROPERTIES": '{"a": "b"}'}, "TIDEMARK_SPEED_KAFKA_BOOTSTRAP: missing; set it, or"),
        ({"TIDEMARK_S3_SECRET_KEY": PLANTED}, "TIDEMARK_S3_ACCESS_KEY: missing, TIDEMARK_S3_SECRET_KEY needs it"),
        ({"TIDEMARK_S3_ACCESS_KEY": PLANTED}, "TIDEMARK_S3_SECRET_KEY: missing, TIDEMARK_S3_ACCESS_KEY needs it"),
        ({"TIDEMARK_S3_SESSION_TOKEN": PLANTED}, "TIDEMARK_S3_SESSION_TOKEN: needs TIDEMARK_S3_ACCESS_KEY"),
        (
            {"TIDEMARK_S3_ACCESS_KEY": PLANTED, "TIDEMARK_S3_SECRET_KEY": PLANTED, "TIDEMARK_S3_PROFILE": "p"},
            "TIDEMARK_S3_PROFILE: excludes TIDEMARK_S3_ACCESS_KEY",
        ),
        ({"TIDEMARK_CERTIFICATE_KEY": PLANTED}, "TIDEMARK_CERTIFICATE_KEY: not an Ed25519 private key in PEM"),
        ({"TIDEMARK_S3_SESSION_TOKEN": f"{PLANTED}\n"}, "TIDEMARK_S3_SESSION_TOKEN: it has a space, a line break"),
        ({"TIDEMARK_S3_ENDPOINT": f"https://user:{PLANTED}@h"}, "TIDEMARK_S3_ENDPOINT: String should match pattern"),
        ({"TIDEMARK_S3_ENDPOINT": f"https://h/?sig={PLANTED}"}, "TIDEMARK_S3_ENDPOINT: it may have a password"),
        ({"TIDEMARK_SPEED_KAFKA_BOOTSTRAP": f"u:a/{PLANTED}@h:1"}, "TIDEMARK_SPEED_KAFKA_BOOTSTRAP: it may have a"),
        ({"TIDEMARK_KAFKA_BOOTSTRAP": f"u:a/{PLANTED}@h:1"}, "TIDEMARK_KAFKA_BOOTSTRAP: it may have a password"),
        ({"TIDEMARK_S3_PROXY": f"http://h/#{PLANTED}"}, "TIDEMARK_S3_PROXY: it may have a password"),
        ({"TIDEMARK_CATALOG": "a.b"}, "TIDEMARK_CATALOG: String should match pattern"),
        ({"TIDEMARK_NAMESPACE": "a; DROP TABLE b"}, "TIDEMARK_NAMESPACE: String should match pattern"),
        ({"TIDEMARK_S3_EXTERNAL_ID": PLANTED}, "TIDEMARK_S3_EXTERNAL_ID: needs TIDEMARK_S3_ROLE_ARN"),
        ({"TIDEMARK_S3_STS_ENDPOINT": "http://h"}, "TIDEMARK_S3_STS_ENDPOINT: needs TIDEMARK_S3_ROLE_ARN"),
        ({"TIDEMARK_S3_KMS_KEY": "k"}, "TIDEMARK_S3_KMS_KEY: needs aws:kms in TIDEMARK_S3_ENCRYPTION"),
        ({"TIDEMARK_S3_BUCKET_KEY": "1"}, "TIDEMARK_S3_BUCKET_KEY: needs aws:kms in TIDEMARK_S3_ENCRYPTION"),
        ({"TIDEMARK_S3_ENCRYPTION": "AES"}, "TIDEMARK_S3_ENCRYPTION: Input should be 'AES256' or 'aws:kms'"),
        ({"TIDEMARK_CATALOG_URI": ""}, "TIDEMARK_CATALOG_URI: missing; a catalog of type jdbc needs it, such as"),
        ({"TIDEMARK_CATALOG_URI": "http://h"}, "TIDEMARK_CATALOG_URI: expected jdbc:sqlite:PATH or jdbc:postgresql:"),
        ({"TIDEMARK_CATALOG_TYPE": "hadoop"}, "TIDEMARK_CATALOG_TYPE: Input should be 'jdbc', 'rest', 'glue', 'hive'"),
    ],
)
def test_a_wrong_or_contradictory_setting_is_named_by_its_variable(variables: dict[str, str], message: str) -> None:
    text = refusal({**LEAST, **variables})
    assert message in text
    assert "Value error" not in text


def test_a_variable_of_others_with_the_prefix_is_ignored_but_not_in_the_file(tmp_path: Path) -> None:
    assert read({**LEAST, "TIDEMARK_TEAM": "tide"}).bucket == "lake"
    path = tmp_path / "more.env"
    path.write_text("TIDEMARK_TEAM=tide\n", encoding="utf-8")
    expected = f"unknown setting: found TIDEMARK_TEAM [{path}]"
    assert refusal({**LEAST, "TIDEMARK_ENV_FILE": str(path)}) == expected


def test_what_others_fill_is_filled_and_an_empty_variable_is_none() -> None:
    variables = {
        "TIDEMARK_KAFKA_PROPERTIES": '{"bootstrap.servers": "a:1"}',
        "TIDEMARK_SPEED_KAFKA_PROPERTIES": '{"bootstrap.servers": "b:1"}',
        "TIDEMARK_CATALOG_TYPE": "rest",
        "TIDEMARK_CATALOG_PROPERTIES": '{"uri": "http://h/c"}',
        "TIDEMARK_BUCKET": "lake",
        "TIDEMARK_S3_CA_BUNDLE": "",
        "TIDEMARK_S3_ENCRYPTION": "",
        "TIDEMARK_S3_PROXY": "",
    }
    found = read(variables)
    assert (found.kafka_bootstrap, found.speed_kafka_bootstrap, found.catalog_uri) == ("a:1", "b:1", "http://h/c")
    assert (found.s3_ca_bundle, found.s3_encryption, found.s3_proxy) == (None, None, "")
    assert read({**LEAST, "TIDEMARK_CATALOG_TYPE": "glue", "TIDEMARK_CATALOG_URI": ""}).catalog_uri == ""


def other(name: str) -> Any:
    """A value of a setting that is not its default."""
    field = Settings.model_fields[name]
    special = {
        "s3_endpoint": "https://s3",
        "s3_sts_endpoint": "https://sts",
        "s3_proxy": "http://proxy:1",
        "s3_profile": "",  # excludes keys
        "s3_access_key": SecretStr("key$1'x\""),
        "s3_session_token": SecretStr("token$1'x\""),
        "certificate_key": SecretStr(PRIVATE_KEY),
        "catalog": "lake",
        "namespace": "tables_1",
        "s3_ca_bundle": Path("/ca.pem"),
        "spark_submit": "package.module:Class",
        "spark_application": Path("/application.yaml"),
        "spark_pool": "spark",
        "log_format": "json",
        "watch_minutes": 7,
        "notifiers": [{"class": "a.B", "kwargs": {"to": ["x ü", "${Y}"], "conf": {"port": 1}}}],
        "docs_url": "https://docs",
        "s3_encryption": "aws:kms",
        "s3_addressing": "virtual",
        "catalog_type": "rest",
        "catalog_uri": "https://h",
        "table_location": "s3://b/t",
        "spark": SparkSettings(executor_cores=3, conf={"spark.a": "b"}, speed=SparkSizes(driver_memory="3g")),
    }
    if name in special:
        return special[name]
    if isinstance(field.default, bool):
        return not field.default
    if isinstance(field.default, Path):
        return Path(f"/{name} '1'")
    if isinstance(field.default, SecretStr):
        return SecretStr(f"{name} $1 'x\"")
    if isinstance(field.default, Secret):
        return Secret({"a.b": f"{name} ü", "c": "${X}\n"})
    if isinstance(field.default, dict):
        return {"k": "v"}
    assert str in (field.annotation, *get_args(field.annotation)), name
    return f"{name}-1"


def test_a_program_that_inherits_the_environment_has_exactly_the_same_settings(file: Path) -> None:
    values = {name: other(name) for name in Settings.model_fields}
    whole = Settings.model_validate(values)
    assert {name for name in values if getattr(whole, name) == Settings.model_fields[name].default} == {"s3_profile"}
    inherited = {"TIDEMARK_CONFIG": str(file), "TIDEMARK_PROFILE": "none", "TIDEMARK_ENV_FILE": str(file)}
    for found in (whole, read(LEAST), read({**LEAST, "TIDEMARK_S3_PROFILE": "p", "TIDEMARK_KAFKA_CONNECTION": ""})):
        assert resolve(variables={**inherited, **found.environment()}).settings == found
        assert read(found.environment(), AirflowConnection(id="tidemark_kafka", extra={"a": "b"})) == found


def test_a_file_of_the_settings_texts_has_exactly_the_same_settings(tmp_path: Path) -> None:
    whole = Settings.model_validate({name: other(name) for name in Settings.model_fields})
    file = tmp_path / "whole.toml"
    file.write_text(toml_text(whole.texts()), encoding="utf-8")
    assert resolve(variables={"TIDEMARK_CONFIG": str(file)}).settings == whole


@given(
    st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["file:/etc/x", "file://x", "a\\", "${A}$$"])
)
def test_a_written_text_is_read_as_it_is(text: str) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "one.toml"
        file.write_text(toml_text({"bucket": text}), encoding="utf-8")
        assert from_file(["bucket"], ["bucket"], {"TIDEMARK_CONFIG": str(file)})["bucket"].value == text


def test_every_setting_says_where_it_comes_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"TIDEMARK_CONFIG": str(file), "TIDEMARK_PROFILE": "prod", "BROKERS": "b:1", "TIDEMARK_BUCKET": "mine"}
    s3 = AirflowConnection(id="tidemark_s3", extra={"role_arn": "arn:r"})
    found = resolve({"tidemark_s3": s3}.get, variables).sources
    assert found.keys() == Settings.model_fields.keys()
    assert {name: source for name, source in found.items() if source != "default"} == {
        "bucket": "variable TIDEMARK_BUCKET",
        "deployment": "bucket: variable TIDEMARK_BUCKET",
        "catalog_uri": f"{file}, line 4, [default]",
        "kafka_bootstrap": f"{file}, line 11, [prod]",
        "kafka_properties": f"{file}, line 14, [prod]",
        "s3_region": f"{file}, line 12, [prod]",
        "s3_requester_pays": f"{file}, line 13, [prod]",
        "s3_role_arn": "Airflow connection tidemark_s3",
    }
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert settings_source("s3_region") == f"{file}, line 12, [prod]"
    settings.cache_clear()


def test_the_folder_of_streams_is_read_without_any_other_reference(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:  # a running stack's
        monkeypatch.delenv(name)
    (file.parent / "password").unlink()
    file.write_text(FILE.replace("[prod]", '[prod]\nstreams_dir = "${HERE}/streams"'), encoding="utf-8")
    for name, text in {"TIDEMARK_CONFIG": str(file), "TIDEMARK_PROFILE": "prod", "HERE": "/opt"}.items():
        monkeypatch.setenv(name, text)
    assert streams_dir() == Path("/opt/streams")
