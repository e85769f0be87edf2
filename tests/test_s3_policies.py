"""The policies of the roles, enforced by a gate before the S3 server: what each role may do where, and no more."""

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError

from tests.conftest import unique
from tests.gate import Gate, Policy, gate
from tidemark.archive.stream.conditional_writes import require_conditional_writes
from tidemark.connections.policies import ROLES, role_policy
from tidemark.core.errors import ConfigError, ServiceError
from tidemark.core.layout import Layout
from tidemark.objects.upload import Upload
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.stack.certificates import server_certificate
from tidemark.stack.s3_gate.policy import allows
from tidemark.stack.s3_gate.process import stack_config

pytestmark = [pytest.mark.services, pytest.mark.conformance(35)]

KEY = "arn:aws:kms:eu-west-1:111111111111:key/one"
# A key of each kind below the archive's prefix, and what each role may do with it:
# g(et), p(ut), d(elete), l(ist its folder), a(bort an upload), u(ploads: list them).
ALLOWED = {
    # key: archive, speed, reconcile, maintenance, reader
    "data/s/2013-01-01/one.parquet": ("gpla", "", "gpla", "gpdlau", "gl"),
    "manifests/s/writer/000000000000.json": ("gpl", "", "gpl", "gpl", "gl"),
    "ledger/s/00000001.ledger": ("gl", "", "gpl", "gpl", "gl"),
    "seals/s/2013-01-01/0001.json": ("", "", "gpl", "gl", "gl"),
    "certificates/s/2013-01-01/0001.json": ("", "", "gpl", "", "gl"),
    "summaries/s/2013-01.json": ("", "", "gpl", "", "gl"),
    "status/s.json": ("", "", "gp", "", "g"),
    "leases/s/reconcile.json": ("", "", "gp", "", "g"),
    "log-extents/s/reconcile.json": ("", "", "gp", "", ""),
    "runs/s/run/plan.json": ("", "gp", "gpl", "", "gl"),
    "runs/s/delivery-1/delivery.json": ("", "gp", "gpl", "", "gpl"),
    "runs/s/delivery-last": ("", "gp", "gpl", "", "gpl"),
    "checkpoints/s/archive/offsets/0": ("gpdla", "", "", "", ""),
    "checkpoints/s/speed/offsets/0": ("", "gpdla", "gl", "", "gl"),
    "checkpoints/s/replay/id/1.json": ("", "gpl", "gl", "", "gl"),
    "heartbeats/s/archive.json": ("gp", "", "g", "", "g"),
    "heartbeats/s/speed.json": ("", "gp", "g", "", "g"),
    "warehouse/tidemark/s/metadata/one.avro": ("", "", "gpdla", "gpdlau", "gl"),
    "conditional-writes.probe": ("pa", "", "", "", ""),
    "../elsewhere/one": ("", "", "", "", ""),
}


@pytest.fixture(scope="module")
def prefix() -> str:
    return unique("lake")


@pytest.fixture(scope="module")
def guarded(settings: Settings, prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate(settings, tmp_path_factory.mktemp("gate"), prefix=prefix) as running:
        yield running


def key_of(prefix: str, key: str) -> str:
    return f"{prefix}-{key.removeprefix('../')}" if key.startswith("../") else f"{prefix}/{key}"


def permitted(call: Callable[..., object], **arguments: Any) -> bool:
    """Whether the server did it, or refused it for another reason than the policy."""
    try:
        call(**arguments)
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        if status not in {403, 404}:
            raise
        return bool(status == 404)
    return True


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_its_calls_and_no_others(guarded: Gate, store: ObjectStore, prefix: str, role: str) -> None:
    client, bucket = guarded.client(role), store.bucket
    column = ("archive", "speed", "reconcile", "maintenance", "reader").index(role)
    found = {}
    for key in ALLOWED:
        name = key_of(prefix, key)
        folder = name.rpartition("/")[0] + "/"
        store.put(name, b"one")
        one = {"Bucket": bucket, "Key": name}
        calls: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
            "g": (client.get_object, one),
            "p": (client.put_object, {**one, "Body": b"two"}),
            "d": (client.delete_object, one),
            "l": (client.list_objects_v2, {"Bucket": bucket, "Prefix": folder}),
            "a": (client.abort_multipart_upload, {**one, "UploadId": "none"}),
            "u": (client.list_multipart_uploads, {"Bucket": bucket, "Prefix": folder}),
        }
        found[key] = "".join(letter for letter, (call, given) in calls.items() if permitted(call, **given))
    assert found == {key: columns[column] for key, columns in ALLOWED.items()}
    assert not permitted(client.create_bucket, Bucket=f"{bucket}-two")
    assert not permitted(client.delete_bucket, Bucket=bucket)
    assert not permitted(client.list_buckets)


def test_the_calls_of_the_archives_code_are_enough(guarded: Gate, prefix: str) -> None:
    archive, layout = guarded.store("archive"), Layout(prefix=prefix, stream="t")
    require_conditional_writes(archive, prefix)
    upload = Upload(archive, f"{layout.data_prefix}one.parquet", part_bytes=5 * 1024 * 1024)
    upload.write(bytes(6 * 1024 * 1024))
    assert upload.complete()
    broken = Upload(archive, f"{layout.data_prefix}two.parquet", part_bytes=5 * 1024 * 1024)
    broken.write(bytes(6 * 1024 * 1024))
    broken.close()
    assert [item.key for item in archive.list(layout.data_prefix)] == [upload.key]
    lease = f"{layout.checkpoint_prefix('archive')}lease.json"
    assert archive.get(lease) is None
    assert archive.update(lease, lambda _: b"one") == b"one"
    assert archive.update(lease, lambda _: b"two") == b"two"
    with pytest.raises(ServiceError, match="AccessDenied"):
        archive.delete(upload.key)
    maintenance = guarded.store("maintenance")
    info = maintenance.find(upload.key)
    assert info is not None
    assert maintenance.delete_version(upload.key, info.etag)


def test_every_statement_is_needed(settings: Settings, prefix: str) -> None:
    """Without any one statement a call of ``ALLOWED`` is refused; those for tags and keys have tests of their own."""
    arn, actions = f"arn:aws:s3:::{settings.bucket}", {"g": "GetObject", "p": "PutObject", "d": "DeleteObject"}
    actions |= {"l": "ListBucket", "a": "AbortMultipartUpload", "u": "ListBucketMultipartUploads"}

    def calls(policy: Policy) -> set[tuple[str, str]]:
        return {
            (letter, key)
            for letter, action in actions.items()
            for key in (key_of(prefix, name) for name in ALLOWED)
            if allows(
                [policy],
                f"s3:{action}",
                arn if letter in "lu" else f"{arn}/{key}",
                {"s3:prefix": key.rpartition("/")[0] + "/"} if letter in "lu" else {},
            )
        }

    for role in ROLES:
        policy = role_policy(role, bucket=settings.bucket, prefix=prefix)
        for statement in policy["Statement"]:
            if statement["Sid"] != "Tag":
                rest = {**policy, "Statement": [item for item in policy["Statement"] if item is not statement]}
                assert calls(rest) < calls(policy), (role, statement["Sid"])


def test_objects_under_a_key_of_ones_own_need_its_statement(settings: Settings, tmp_path: Path, prefix: str) -> None:
    def policies(role: str, kms_key: str = "") -> list[Policy]:
        return [role_policy(role, bucket=settings.bucket, prefix=prefix, kms_key=kms_key)]

    users = {"archive": policies("archive", KEY), "reader": policies("reader", KEY), "without": policies("reader")}
    one: dict[str, Any] = {"Bucket": settings.bucket, "Key": f"{prefix}/data/s/encrypted"}
    with gate(settings, tmp_path, users=users) as running:
        how: dict[str, Any] = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": KEY}
        running.client("archive").put_object(**one, Body=b"one", **how)
        upload = running.client("archive").create_multipart_upload(**one, **how)["UploadId"]
        running.client("archive").abort_multipart_upload(**one, UploadId=upload)
        assert running.client("reader").get_object(**one)["Body"].read() == b"one"
        with pytest.raises(ClientError, match="kms:Decrypt"):
            running.client("without").get_object(**one)


def test_a_new_start_keeps_every_users_keys_and_no_file_shows_them_to_others(guarded: Gate) -> None:
    certificate = server_certificate(guarded.ca.parent)
    later = stack_config(guarded.file, port=1, certificate=certificate, upstream=guarded.settings, prefix="other")
    kept = [(user.name, user.access_key, user.secret_key) for user in guarded.config.users]
    assert [(user.name, user.access_key, user.secret_key) for user in later.users] == kept
    assert [name for name, _, _ in kept] == ["admin", *ROLES]
    assert later.token_key == guarded.config.token_key
    assert stat.S_IMODE(guarded.file.stat().st_mode) == 0o600
    shown = f"{guarded.config!r} {' '.join(psutil.Process(guarded.process.pid).cmdline())}"
    assert not [secret for _, _, secret in kept if secret in shown]


def test_tags_of_data_objects_may_be_set_by_those_who_write_them() -> None:
    for role in ROLES:
        policy = role_policy(role, bucket="b")
        may = [allows([policy], "s3:PutObjectTagging", f"arn:aws:s3:::b/{key}") for key in ("data/s/x", "runs/s/x")]
        assert may == [role in {"archive", "reconcile", "maintenance"}, False]


def test_folders_of_ones_own() -> None:
    text = json.dumps(role_policy("reconcile", bucket="lake", prefix="a/b", tables="iceberg"))
    assert '"arn:aws:s3:::lake/iceberg/*"' in text
    assert '"arn:aws:s3:::lake/a/b/data/*"' in text
    assert '"a/b/data/*"' in text
    assert "warehouse" not in text
    assert "$" not in text
    assert "kms:" not in text
    assert '"arn:aws:s3:::lake/data/*"' in json.dumps(role_policy("archive", bucket="lake"))
    with pytest.raises(ConfigError, match="there is no such role"):
        role_policy("admin", bucket="lake")
