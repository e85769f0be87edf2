"""A wrong setting is reported by the name of its variable before anything connects."""

import pytest

from tidemark.core.errors import ConfigError
from tidemark.settings import Settings, settings


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


def given(**more: str) -> Settings:
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
    with pytest.raises(ConfigError, match="TIDEMARK_DEPLOYMENT: Value error, expected letters, digits and") as caught:
        settings()
    assert repr(more.get("deployment", "lake/ü")) in str(caught.value)


@pytest.mark.conformance(29)
def test_printed_settings_never_show_a_secret() -> None:
    keys = {"s3_access_key": "AN-ACCESS-KEY", "s3_secret_key": "A-SECRET-KEY"}
    found = Settings.model_validate({"kafka_bootstrap": "h:1", "bucket": "b", "catalog_uri": "jdbc:sqlite:c", **keys})
    assert {name: getattr(found, name).get_secret_value() for name in keys} == keys
    printed = [str(found), repr(found), f"{found.s3_secret_key}", str(found.model_dump()), found.model_dump_json()]
    assert [text for text in printed if "ACCESS-KEY" in text or "SECRET-KEY" in text] == []
