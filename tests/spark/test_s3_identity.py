"""Who calls S3: the same identity for boto3, S3A, Iceberg's S3FileIO and pyiceberg, with its keys refreshed."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from tests.s3_server import EXTERNAL_ID, ROLE, S3Server, s3_server
from tidemark.core.errors import ServiceError
from tidemark.objects.upload import Upload
from tidemark.s3 import ObjectStore, ensure_bucket
from tidemark.settings import Settings
from tidemark.spark.java import jvm
from tidemark.spark.s3_conf import s3_conf, s3_variables
from tidemark.tables.reader import s3_properties

pytestmark = [pytest.mark.services, pytest.mark.conformance(65)]
CATALOG = "spark.sql.catalog.x"
BUCKET = "identity"
CLIENTS = ("boto3", "s3a", "file-io")
KEY = "arn:aws:kms:us-east-1:123456789012:key/1"
NO_KEYS = {"s3_access_key": SecretStr(""), "s3_secret_key": SecretStr("")}


Changed = Callable[..., Settings]


@pytest.fixture
def server(settings: Settings) -> Iterator[S3Server]:
    """A server that knows the local stack's key, which is in the environment of the tests' JVM."""
    with s3_server() as running:
        running.known.add(settings.s3_access_key.get_secret_value())
        ensure_bucket(settings.model_copy(update={"s3_endpoint": running.url, "bucket": BUCKET}))
        running.requests.clear()
        yield running


@pytest.fixture
def changed(settings: Settings, server: S3Server) -> Changed:
    """The stack's settings, but the server's URL and the named ones."""

    def change(**more: Any) -> Settings:
        return settings.model_copy(update={"s3_endpoint": server.url, "bucket": BUCKET, **more})

    return change


def role(server: S3Server, external_id: str = EXTERNAL_ID) -> dict[str, str]:
    return {"s3_role_arn": ROLE, "s3_external_id": external_id, "s3_sts_endpoint": server.url}


class Clients:
    """One write per call and client. Each client lives as long as this object, so that its keys may expire."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        java: Any = jvm(spark)
        conf = s3_conf(settings, CATALOG)
        hadoop = java.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
        options = java.java.util.HashMap()
        for name, value in conf.items():
            if name.startswith("spark.hadoop."):
                hadoop.set(name.removeprefix("spark.hadoop."), value)
            elif name.startswith(CATALOG):
                options.put(name.removeprefix(f"{CATALOG}."), value)
        self.java = java
        self.store = ObjectStore(settings)
        self.s3a = java.org.apache.hadoop.fs.FileSystem.newInstance(java.java.net.URI(f"s3a://{BUCKET}/"), hadoop)
        self.file_io = java.org.apache.iceberg.aws.s3.S3FileIO()
        self.file_io.initialize(options)

    def write(self, name: str) -> None:
        """An object by every client: boto3/NAME, s3a/NAME and file-io/NAME."""
        for client in CLIENTS:
            self.write_by(client, name)

    def write_by(self, client: str, name: str) -> None:
        if client == "boto3":
            self.store.put(f"boto3/{name}", b"x")
            return
        if client == "s3a":
            output = self.s3a.create(self.java.org.apache.hadoop.fs.Path(f"s3a://{BUCKET}/s3a/{name}"))
        else:
            output = self.file_io.newOutputFile(f"s3://{BUCKET}/file-io/{name}").create()
        output.write(b"x")
        output.close()

    def close(self) -> None:
        self.s3a.close()
        self.file_io.close()


@pytest.fixture
def clients(spark: SparkSession) -> Iterator[Callable[[Settings], Clients]]:
    made: list[Clients] = []

    def make(settings: Settings) -> Clients:
        made.append(Clients(spark, settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def java_property(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets what an application gets as a variable: a running JVM can't change its variables."""
    system, names = jvm(spark).java.lang.System, []

    def set_property(name: str, value: str) -> None:
        names.append(name)
        system.setProperty(name, value)

    yield set_property
    for name in names:
        system.clearProperty(name)


def test_keys_of_a_role_are_fetched_with_the_external_id_and_again_before_they_expire(
    server: S3Server,
    changed: Changed,
    clients: Callable[[Settings], Clients],
    java_property: Callable[[str, str], None],
) -> None:
    java_property("aws.endpointUrlSts", server.url)
    server.lifetime = timedelta(seconds=30)
    writer = clients(changed(**role(server)))
    for name in ("first", "second"):
        writer.write(name)
    for client in CLIENTS:
        first, second = (set(server.callers(f"/{client}/{name}")) for name in ("first", "second"))
        assert first | second <= server.issued.keys(), client
        assert first != second, client


def test_a_role_gives_boto3_and_pyiceberg_its_keys(server: S3Server, changed: Changed) -> None:
    found = changed(**role(server))
    ObjectStore(found).put("boto3/x", b"x")
    keys = s3_properties(found)
    assert set(server.callers("/boto3/x")) == server.issued.keys() == {keys["s3.access-key-id"]}
    assert keys["s3.session-token"]


def test_every_upload_asks_for_the_encryption(server: S3Server, changed: Changed) -> None:
    store = ObjectStore(changed(s3_encryption="AES256"))
    assert store.put_if_absent("boto3/one", b"x")
    upload = Upload(store, "boto3/parts", part_bytes=5 << 20)
    upload.write(b"x" * (6 << 20))
    assert upload.complete()
    heads = [store.client.head_object(Bucket=BUCKET, Key=f"boto3/{name}") for name in ("one", "parts")]
    assert [head["ServerSideEncryption"] for head in heads] == ["AES256", "AES256"]


def test_a_role_that_asks_for_another_external_id_is_an_explained_error(server: S3Server, changed: Changed) -> None:
    store = ObjectStore(changed(**role(server, "another")))
    with pytest.raises(ServiceError, match=r"AccessDenied.*AssumeRole.* check TIDEMARK_S3_EXTERNAL_ID"):
        store.put("boto3/x", b"x")
    with pytest.raises(ServiceError, match=r"AccessDenied.*AssumeRole.* check TIDEMARK_S3_EXTERNAL_ID"):
        s3_properties(changed(**role(server, "another")))


def test_a_profile_is_used_before_the_keys_of_the_environment(
    server: S3Server,
    changed: Changed,
    clients: Callable[[Settings], Clients],
    java_property: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "config"
    file.write_text("[profile of-a-person]\naws_access_key_id = AKIAPERSON\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    java_property("aws.configFile", str(file))
    server.known = {"AKIAPERSON"}
    found = changed(s3_profile="of-a-person", **NO_KEYS)
    assert s3_variables(found)["AWS_PROFILE"] == "of-a-person"
    java_property("aws.profile", "of-a-person")
    clients(found).write("x")
    assert [set(server.callers(f"/{client}/x")) for client in CLIENTS] == [{"AKIAPERSON"}] * 3
    assert s3_properties(found)["s3.access-key-id"] == "AKIAPERSON"


def test_without_keys_and_profile_every_client_uses_what_it_finds(
    server: S3Server, changed: Changed, clients: Callable[[Settings], Clients], settings: Settings
) -> None:
    own = settings.s3_access_key.get_secret_value()
    found = changed(**NO_KEYS)
    clients(found).write("x")  # the environment has the stack's key
    assert [set(server.callers(f"/{client}/x")) for client in CLIENTS] == [{own}] * 3
    assert s3_properties(found)["s3.access-key-id"] == own
    assert s3_variables(found) == {"AWS_REGION": "us-east-1"}


def test_every_client_uses_the_settings_way_to_the_server(
    server: S3Server, changed: Changed, clients: Callable[[Settings], Clients]
) -> None:
    """A proxy answers for a host that does not exist, so the test sees which one a client asked."""
    found = changed(
        s3_endpoint="http://s3.example",
        s3_addressing="virtual",
        s3_proxy=server.url,
        s3_requester_pays=True,
        s3_encryption="aws:kms",
        s3_kms_key=KEY,
        s3_bucket_key=True,
    )
    writer = clients(found)
    writer.write("x")
    sent = {one.path.split("/")[1]: one for one in server.requests if one.path.endswith("/x")}
    assert {one.host for one in server.requests} == {f"{found.bucket}.s3.example"}
    encrypted = {"server_side_encryption": "aws:kms", "server_side_encryption_aws_kms_key_id": KEY}
    for client in CLIENTS:
        assert encrypted.items() <= sent[client].headers.items(), client
    assert sent["boto3"].headers["server_side_encryption_bucket_key_enabled"] == "true"
    assert [sent[client].headers.get("request_payer") for client in ("boto3", "s3a")] == ["requester"] * 2
