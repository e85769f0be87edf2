"""A wrong setting is reported by the name of its variable before anything connects."""

import os
import traceback
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tidemark.core.errors import ConfigError
from tidemark.inspect.doctor.s3_needs import s3_needs
from tidemark.s3 import s3_client
from tidemark.settings import Settings, settings
from tidemark.spark.conf import loopback, session_conf, session_secrets, submit_environment
from tidemark.tables.reader import s3_properties


@pytest.mark.parametrize("endpoint", ["", "minio:9000", "http://"])
def test_an_s3_endpoint_that_is_not_a_url_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    names = ("KAFKA_BOOTSTRAP", "S3_ACCESS_KEY", "S3_SECRET_KEY", "BUCKET", "CATALOG_URI")
    for name in names:
        monkeypatch.setenv(f"TIDEMARK_{name}", "given")
    monkeypatch.setenv("TIDEMARK_S3_ENDPOINT", endpoint)
    settings.cache_clear()
    with pytest.raises(ConfigError) as caught:
        settings()
    assert "TIDEMARK_S3_ENDPOINT: String should match pattern '^https?://" in str(caught.value)


def given(**more: Any) -> Settings:
    keys = {"s3_access_key": "k", "s3_secret_key": "k", "catalog_uri": "jdbc:sqlite:c"}
    return Settings.model_validate({"kafka_bootstrap": "h:1", "bucket": "lake", **keys, **more})


@pytest.mark.conformance(32)
@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "lake"),
        ({"prefix": "teams/prod"}, "lake/teams/prod"),
        ({"deployment": "prod.eu-1_b"}, "prod.eu-1_b"),
        ({"deployment": "lake/teams/prod", "prefix": "moved"}, "lake/teams/prod"),
    ],
)
def test_a_deployment_is_named_by_its_setting_or_by_bucket_and_prefix(more: dict[str, str], name: str) -> None:
    found = given(**more)
    assert (found.deployment, found.client_prefix) == (name, f"tidemark-{name}")


@pytest.mark.parametrize(
    "more", [{"deployment": "a b"}, {"deployment": "-"}, {"deployment": "a" * 201}, {"prefix": "ü"}]
)
def test_a_name_that_is_no_deployments_is_refused_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    for name, text in {**given().model_dump(include={"kafka_bootstrap", "bucket", "catalog_uri"}), **more}.items():
        monkeypatch.setenv(f"TIDEMARK_{name.upper()}", text)
    for name in ("S3_ACCESS_KEY", "S3_SECRET_KEY"):
        monkeypatch.setenv(f"TIDEMARK_{name}", "k")
    settings.cache_clear()
    with pytest.raises(ConfigError, match="TIDEMARK_DEPLOYMENT: expected letters, digits and") as caught:
        settings()
    assert repr(more.get("deployment", "lake/ü")) in str(caught.value)


@pytest.mark.conformance(29)
def test_printed_settings_never_show_a_secret() -> None:
    keys = {"s3_access_key": "AN-ACCESS-KEY", "s3_secret_key": "A-SECRET-KEY"}
    found = Settings.model_validate({"kafka_bootstrap": "h:1", "bucket": "b", "catalog_uri": "jdbc:sqlite:c", **keys})
    assert {name: getattr(found, name).get_secret_value() for name in keys} == keys
    printed = [str(found), repr(found), f"{found.s3_secret_key}", str(found.model_dump()), found.model_dump_json()]
    assert [text for text in printed if "ACCESS-KEY" in text or "SECRET-KEY" in text] == []


@pytest.mark.conformance(61)
def test_an_inherited_session_token_is_not_sent_with_the_configured_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another-login")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-another-login")
    raw = {"kafka_bootstrap": "h:1", "bucket": "b", "catalog_uri": "jdbc:sqlite:c"}
    found = Settings.model_validate({**raw, "s3_access_key": "OURS", "s3_secret_key": "KEY"})
    url = s3_client(found).generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"})
    assert "OURS" in url
    assert "of-another-login" not in url
    # Java's client and pyiceberg: an empty token counts as none.
    assert {**os.environ, **submit_environment(found)}["AWS_SESSION_TOKEN"] == ""
    assert session_conf(found)["spark.executorEnv.AWS_SESSION_TOKEN"] == ""
    files = PyArrowFileIO(s3_properties(found)).fs_by_scheme("s3", None)
    (options,) = files.__reduce__()[1]
    assert (options["access_key"], options["session_token"]) == ("OURS", "")


def test_equal_settings_are_one_key_of_a_cache_mappings_included() -> None:
    properties: Any = {"security.protocol": "SASL_SSL"}
    assert len({given(kafka_properties=properties), given(kafka_properties=properties), given()}) == 2


@pytest.mark.parametrize(("master", "local"), [("local[2]", True), ("local", True), ("spark://host:7077", False)])
def test_only_local_sessions_are_bound_to_this_machine(master: str, local: bool) -> None:
    here = {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
    assert loopback(master) == (here if local else {})


def named(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """The text of the ConfigError for a deployment with these variables."""
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:  # a running stack's
        monkeypatch.delenv(name)
    known = {"kafka_bootstrap": "h:1", "s3_access_key": "k", "s3_secret_key": "k", "bucket": "b"}
    for name, text in {**known, **variables}.items():
        monkeypatch.setenv(f"TIDEMARK_{name.upper()}", text)
    settings.cache_clear()
    with pytest.raises(ConfigError) as caught:
        settings()
    printed = "".join(traceback.format_exception(caught.value))
    assert "planted" not in printed
    return str(caught.value)


@pytest.mark.conformance(29)
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ('{"token": "planted"', ": not a JSON object"),
        ('["planted"]', ": not a JSON object"),
        ('{"token": {"planted": 1}}', ".token: Input should be a valid string"),
        ('{"token": "planted", "io-impl": "planted"}', ": io-impl: leave it out"),
    ],
)
def test_wrong_catalog_properties_are_refused_without_their_values(
    monkeypatch: pytest.MonkeyPatch, properties: str, message: str
) -> None:
    found = named(monkeypatch, catalog_type="rest", catalog_uri="https://h", catalog_properties=properties)
    assert f"TIDEMARK_CATALOG_PROPERTIES{message}" in found


def test_a_catalogs_address_that_is_missing_or_fits_another_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "TIDEMARK_CATALOG_URI: missing; a catalog of type rest needs it, such as" in named(
        monkeypatch, catalog_type="rest"
    )
    assert "TIDEMARK_CATALOG_URI: expected jdbc:sqlite:PATH or" in named(
        monkeypatch, catalog_type="jdbc", catalog_uri="postgresql://h/db"
    )
    assert "TIDEMARK_CATALOG_TYPE: Input should be 'jdbc', " in named(monkeypatch, catalog_type="polaris")
    assert "TIDEMARK_TABLE_LOCATION: String should match" in named(
        monkeypatch, catalog_type="glue", table_location="/tables"
    )


def test_a_glue_catalog_needs_no_address_and_properties_come_from_json(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"catalog_type": "glue", "catalog_properties": '{"glue.id": "1"}', "table_properties": '{"a": "b"}'}
    found = given(**{"catalog_uri": "", **values})
    assert found.iceberg.pyiceberg() == {"type": "glue", "glue.id": "1", "warehouse": "s3://lake/warehouse"}
    assert found.table_properties == {"a": "b"}


@pytest.mark.conformance(29)
def test_a_session_starts_with_placeholders_for_the_catalogs_secrets() -> None:
    properties = {"credential": "planted:planted", "header.X-Key": "planted", "scope": "s"}
    found = given(catalog_type="rest", catalog_uri="https://h", catalog_properties=properties)
    started, later = session_conf(found), session_secrets(found)
    assert "planted" not in str(started)
    hidden = {name: properties[name] for name in ("credential", "header.X-Key")}
    hidden |= {"s3.access-key-id": "k", "s3.secret-access-key": "k"}  # given's
    assert later == {f"spark.sql.catalog.tidemark.{name}": text for name, text in hidden.items()}
    assert later.keys() < started.keys()
    assert started["spark.sql.catalog.tidemark.scope"] == "s"
    assert "planted" not in f"{found} {found!r} {found.iceberg!r} {found.model_dump_json()}"


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("", "a/warehouse/"),
        ("s3://lake/iceberg/", "iceberg/"),
        ("s3://lake", ""),
        ("s3://another/iceberg", "a/warehouse/"),  # the policies know one bucket
    ],
)
def test_the_doctor_tries_the_folder_where_tables_are(location: str, folder: str) -> None:
    resources = {need.resource for need in s3_needs(given(prefix="a", table_location=location), ["maintenance"])}
    assert f"arn:aws:s3:::lake/{folder}*" in resources
    assert ("arn:aws:s3:::lake/a/warehouse/*" in resources) == (folder == "a/warehouse/")
