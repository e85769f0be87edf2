"""Sizes and properties of Spark applications: whose value wins, what they become, and what is refused."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from tidemark.connections.spark import LAYERS, Layer, SparkSettings, size_properties
from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.spark.conf import needed_conf, session_conf, submit_environment
from tidemark.spark.s3_conf import require_usable
from tidemark.spark.session import unprotected

CLUSTER = "spark://master:7077"


def given(**more: Any) -> Settings:
    raw = {"kafka_bootstrap": "h:1", "bucket": "lake", "catalog_uri": "jdbc:sqlite:c", "spark_master": CLUSTER}
    return Settings.model_validate({**raw, **more})


def stream(**spark: Any) -> Stream:
    speed = {"topic": "out", "dead_letter_topic": "dead"}
    raw = {"name": "s", "topic": "in", "value_schema": "n INT", "speed": speed, "spark": spark}
    return Stream.model_validate(raw)


def test_the_nearest_value_wins_key_by_key() -> None:
    deployment = given(
        spark={
            "executor_memory": "1g",
            "executor_cores": 3,
            "conf": {"spark.a": "deployment", "spark.b": "deployment", "spark.c": "deployment"},
            "batch": {"executor_memory": "2g", "driver_memory": "2g", "conf": {"spark.b": "deployment's batch"}},
        }
    )
    own = stream(driver_memory="3g", conf={"spark.c": "stream"}, batch={"executor_memory": "4g"})
    found = {layer: deployment.spark_sizes(layer, own.spark) for layer in LAYERS}
    assert {
        layer: (item.driver_memory, item.executor_memory, item.executor_cores) for layer, item in found.items()
    } == {
        "archive": ("3g", "1g", 3),
        "speed": ("3g", "1g", 3),
        "batch": ("3g", "4g", 3),
    }
    assert found["batch"].conf == {"spark.a": "deployment", "spark.b": "deployment's batch", "spark.c": "stream"}


@pytest.mark.parametrize(("layer", "cores"), [("archive", 1), ("speed", 1), ("batch", 2)])
def test_an_application_leaves_cores_of_a_standalone_cluster_to_others(layer: Layer, cores: int) -> None:
    assert size_properties(SparkSettings().of(layer), layer, CLUSTER) == {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.executor.cores": str(cores),
        "spark.executor.instances": "2",
        "spark.cores.max": str(2 * cores),
    }


def test_dynamic_allocation_is_bounded_by_the_instances() -> None:
    sizes = SparkSettings(executor_cores=2, instances=5, dynamic_allocation=True).of("batch")
    found = size_properties(sizes, "batch", "yarn")
    assert found == {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.executor.cores": "2",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "5",
    }


def test_a_local_application_has_a_driver_only_and_its_own_python() -> None:
    local = given(spark_master="local[2]", spark={"executor_cores": 2, "executor_python": "/there/python"})
    sizes = local.spark_sizes("batch")
    assert size_properties(sizes, "batch", "local[2]") == {"spark.driver.memory": "1g"}
    assert submit_environment(local, sizes)["PYSPARK_PYTHON"] != "/there/python"
    assert submit_environment(given(), sizes)["PYSPARK_PYTHON"] == "/there/python"


def test_numbers_and_truth_values_are_spark_texts() -> None:
    conf = {"spark.ui.enabled": True, "spark.locality.wait": 3, "spark.memory.fraction": 0.5}
    assert SparkSettings.model_validate({"conf": conf}).conf == {
        "spark.ui.enabled": "true",
        "spark.locality.wait": "3",
        "spark.memory.fraction": "0.5",
    }


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("spark.master", "set TIDEMARK_SPARK_MASTER"),
        ("spark.executor.cores", "set executor_cores and instances"),
        ("spark.sql.session.timeZone", "Tidemark computes days in UTC"),
        ("spark.speculation", "two attempts of one task would displace each other"),
        ("spark.sql.files.ignoreCorruptFiles", "a day would silently lack the rows of such a file"),
        ("spark.sql.redaction.string.regex", "it hides secrets"),
        ("spark.authenticate.secret", "put it into spark-defaults.conf in the folder of SPARK_CONF_DIR"),
        ("spark.executorEnv.AWS_SECRET_ACCESS_KEY", "a secret would stand on command lines"),
        ("spark.hadoop.fs.s3a.access.key", "a secret would stand on command lines"),
        ("spark.hadoop.fs.s3a.encryption.key", "a secret would stand on command lines"),
        ("spark.hadoop.fs.azure.sas.fixed.token.x", "a secret would stand on command lines"),
        ("spark.sql.catalog.other.jdbc.pwd", "a secret would stand on command lines"),
        ("spark.executorEnv.MY_JWT", "a secret would stand on command lines"),
        ("executor.cores", "the name of a Spark property begins with 'spark.'"),
    ],
)
def test_a_property_that_tidemark_needs_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SparkSettings.model_validate({"batch": {"conf": {name: "1"}}})
    assert reason in str(caught.value)
    assert name in str(caught.value)


def test_an_address_with_a_login_is_refused_without_it() -> None:
    with pytest.raises(ValidationError) as caught:
        SparkSettings(conf={"spark.sql.catalog.other.uri": "jdbc:postgresql://u:a/planted@h/db"})
    assert "spark.sql.catalog.other.uri can't be given: a secret would stand on command lines" in str(caught.value)
    assert "planted" not in caught.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    "name",
    [
        "spark.kubernetes.node.selector.example.com/key",
        "spark.kubernetes.driver.secrets.tidemark",
        "spark.kubernetes.executor.secretKeyRef.TOKEN",
        "spark.authenticate.secret.file",
        "spark.executorEnv.TZ",
        "spark.io.encryption.keySizeBits",
        "spark.kubernetes.authenticate.driver.clientKeyFile",
        "spark.eventLog.dir",
    ],
)
def test_a_name_of_a_place_or_of_something_else_is_allowed(name: str) -> None:
    assert SparkSettings(conf={name: "there"}).conf == {name: "there"}


def test_a_conf_may_repeat_what_tidemark_needs_and_not_contradict_it() -> None:
    name = "spark.sql.catalog.tidemark.uri"
    needed = needed_conf(given())[name]
    assert session_conf(given(), given(spark={"conf": {name: needed}}).spark_sizes("batch"))[name] == needed
    with pytest.raises(ConfigError) as caught:
        session_conf(given(), given(spark={"conf": {name: "jdbc:sqlite:other"}}).spark_sizes("batch"))
    assert f"expected {needed}" in str(caught.value)
    assert f"{name}=jdbc:sqlite:other" in str(caught.value)
    name = "spark.sql.catalog.tidemark.s3.sse"
    own = given(catalog_properties={"s3.sse": "planted-own"})
    with pytest.raises(ConfigError, match=f"found {name} ") as caught:
        session_conf(own, given(spark={"conf": {name: "planted-other"}}).spark_sizes("batch"))
    assert "planted" not in str(caught.value)


@pytest.mark.conformance(29)
def test_spark_hides_every_property_of_catalogs_and_kafka_that_is_not_listed() -> None:
    hidden = """spark.sql.catalog.tidemark.s3.sse.key spark.sql.catalog.tidemark.x spark.sql.catalog.other.jdbc.pwd
        spark.sql.catalog.c.private-key kafka.sasl.jaas.config kafka.new.name spark.hadoop.fs.s3a.secret.key
        spark.executorEnv.MY_JWT spark.app.cookie"""
    seen = """spark.sql.catalog.tidemark spark.sql.catalog.tidemark.uri spark.sql.catalog.tidemark.type
        spark.executor.memory kafka.bootstrap.servers kafka.security.protocol startingOffsets kafka.example.com:9092
        org.apache.iceberg.spark.SparkCatalog jdbc:postgresql://h:5432/db"""
    pattern = needed_conf(given())["spark.redaction.regex"]
    assert [name for name in hidden.split() if not re.search(pattern, name)] == []
    assert [name for name in seen.split() if re.search(pattern, name)] == []


def test_a_deployments_conf_replaces_what_tidemark_prefers() -> None:
    conf = {"spark.ui.enabled": "true", "spark.eventLog.enabled": "true", "spark.sql.shuffle.partitions": "50"}
    found = session_conf(given(), given(spark={"conf": conf}).spark_sizes("batch"))
    assert {name: found[name] for name in conf} == conf


def test_keys_that_assume_a_role_are_refused_on_a_cluster_only() -> None:
    identity = {"s3_access_key": "k", "s3_secret_key": "k", "s3_role_arn": "arn:aws:iam::1:role/lake"}
    require_usable(given(**identity, spark_master="local[2]"))
    require_usable(given(s3_role_arn=identity["s3_role_arn"]))
    with pytest.raises(
        ConfigError, match=r"keys that assume a role don't reach a cluster's executors: .*spark://master"
    ):
        require_usable(given(**identity))


@pytest.mark.parametrize(
    ("conf", "lack"),
    [
        ({}, "spark.authenticate true, spark.network.crypto.enabled true"),
        ({"spark.authenticate": "true", "spark.network.crypto.enabled": "false"}, "spark.network.crypto.enabled true"),
        ({"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}, ""),
        ({"spark.ssl.rpc.enabled": "true"}, ""),
    ],
)
def test_what_protects_secrets_on_their_way_to_executors_is_named_where_it_lacks(
    conf: dict[str, str], lack: str
) -> None:
    assert unprotected(conf) == lack
