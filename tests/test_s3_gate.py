"""The gate before the stack's S3 server: what it verifies, what passes through it, and what it says of encryption."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from pathlib import Path
from ssl import create_default_context
from typing import Any
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError, SSLError

from tests.conftest import unique
from tests.gate import EVERYTHING, Gate, Policy, gate
from tests.waiting import wait_until
from tidemark.archive.stream.conditional_writes import require_conditional_writes
from tidemark.core.errors import ConfigError
from tidemark.maintenance.archive import unfinished_uploads
from tidemark.objects.upload import Upload
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.stack.s3_gate.config import GateRole
from tidemark.stack.s3_gate.policy import allows

pytestmark = [pytest.mark.services, pytest.mark.conformance(35)]

KEY = "arn:aws:kms:us-east-1:000000000000:key/one"
PART = 5 * 1024 * 1024
BODY = bytes(range(256)) * (2 * PART // 256) + b"tail"


def statement(*actions: str, resource: str | list[str] = "*", **more: Any) -> dict[str, Any]:
    return {"Sid": "One", "Effect": "Allow", "Action": list(actions), "Resource": resource, **more}


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


@pytest.fixture(scope="module")
def opened(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    users: dict[str, list[Policy]] = {"admin": [EVERYTHING], "plain": [policy(statement("s3:*"))], "nobody": []}
    roles = [GateRole(name="job", policies=[EVERYTHING], trusted=["nobody"], external_id="ours")]
    with gate(settings, tmp_path_factory.mktemp("gate"), users=users, roles=roles) as running:
        yield running


def code(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    return error.value.response["Error"]["Code"], error.value.response["ResponseMetadata"]["HTTPStatusCode"]


def test_conditional_writes_hold_through_the_gate(opened: Gate) -> None:
    store, key = opened.store("admin"), f"{unique('gate')}/a+b =ü~(1).json"
    require_conditional_writes(store, unique("gate"))
    assert (store.put_if_absent(key, b"one"), store.put_if_absent(key, b"two")) == (True, False)
    assert (store.replace(key, b"x", expected=b"two"), store.replace(key, b"three", expected=b"one")) == (False, True)
    found = store.find(key)
    assert found is not None
    with pytest.raises(ClientError) as refused:
        store.client.put_object(Bucket=store.bucket, Key=key, Body=b"x", IfMatch='"0"')
    assert code(refused) == ("PreconditionFailed", 412)
    assert (store.delete_version(key, "0" * 32), store.get(key)) == (False, b"three")
    assert (store.delete_version(key, found.etag), store.get(key)) == (True, None)


def test_parts_become_visible_at_completion_and_a_taken_key_stays(opened: Gate, store: ObjectStore) -> None:
    through, folder = opened.store("admin"), unique("gate")
    for expected in (True, False):
        upload = Upload(through, f"{folder}/large", part_bytes=PART)
        upload.write(BODY)
        assert len(unfinished_uploads(through, f"{folder}/")) == 1
        assert len(list(through.list(f"{folder}/"))) == (0 if expected else 1)
        assert (upload.complete(), upload.parts) == (expected, 3)
        upload.close()
    assert unfinished_uploads(through, f"{folder}/") == []
    assert store.get(f"{folder}/large") == BODY  # as the guarded server has it


def test_a_listing_is_complete_and_in_order(opened: Gate, store: ObjectStore) -> None:
    folder = unique("gate")
    keys = sorted(f"{folder}/{name}" for name in ("a", "b/c", "a=1+2", "ü", "0 0", "z%2F"))
    for key in keys:
        store.put(key, b"")
    through = opened.client("admin")
    pages = through.get_paginator("list_objects_v2").paginate(
        Bucket=store.bucket, Prefix=f"{folder}/", PaginationConfig={"PageSize": 2}
    )
    assert [item["Key"] for page in pages for item in page["Contents"]] == keys
    assert [item.key for item in opened.store("admin").list(f"{folder}/", after=keys[2])] == keys[3:]
    through.delete_objects(Bucket=store.bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    assert list(store.list(f"{folder}/")) == []


def test_a_wrong_key_or_secret_is_refused_with_its_own_code(opened: Gate) -> None:
    for changes, expected in (
        ({"aws_secret_access_key": "other"}, ("SignatureDoesNotMatch", 403)),
        ({"aws_access_key_id": "AKIAOTHER"}, ("InvalidAccessKeyId", 403)),
        ({"aws_session_token": "other"}, ("InvalidToken", 400)),
    ):
        with pytest.raises(ClientError) as refused:
            opened.client("admin", **changes).list_objects_v2(Bucket=opened.settings.bucket, Prefix="none/")
        assert code(refused) == expected
    with pytest.raises(SSLError):
        opened.client("admin", verify=True).list_buckets()


def signed(opened: Gate, path: str, body: bytes, **headers: str) -> dict[str, str]:
    user = opened.config.user("admin")
    request = AWSRequest("PUT", f"{opened.url}{quote(path)}", headers=headers, data=body)
    S3SigV4Auth(Credentials(user.access_key, user.secret_key), "s3", "us-east-1").add_auth(request)
    return dict(request.headers.items())


def put(opened: Gate, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    connection = HTTPSConnection(
        "127.0.0.1", opened.config.port, context=create_default_context(cafile=str(opened.ca)), timeout=60
    )
    try:
        connection.request("PUT", quote(path), body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    return answer.status, text.partition("<Code>")[2].partition("</Code>")[0]


def test_a_request_changed_after_its_signature_is_refused(
    opened: Gate, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unique("gate")
    path = f"/{store.bucket}/{folder}/one"
    headers = signed(opened, path, b"one", **{"Content-Length": "3"})
    assert put(opened, path, b"two", headers)[0] == 400  # the guarded server compares the body with its signed hash
    mismatch = (403, "SignatureDoesNotMatch")
    assert put(opened, f"{path}x", b"one", headers) == mismatch
    assert put(opened, path, b"one", {**headers, "x-amz-acl": "public-read"}) == mismatch
    assert put(opened, path, b"one", {**headers, "Host": "elsewhere"}) == mismatch
    assert put(opened, path, b"one", {"Content-Length": "3"}) == (403, "AccessDenied")
    assert list(store.list(folder)) == []
    assert put(opened, path, b"one", headers) == (200, "")
    late = datetime.now(UTC) - timedelta(minutes=16)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: late.replace(tzinfo=None))
    assert put(opened, path, b"one", signed(opened, path, b"one")) == (403, "RequestTimeTooSkewed")


def test_encryption_is_kept_and_answered_and_needs_the_key(opened: Gate) -> None:
    store, folder = opened.store("admin"), unique("gate")
    asked = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": KEY, "BucketKeyEnabled": True}
    names = asked.keys()
    client, bucket, key = store.client, store.bucket, f"{folder}/one"
    wrote: Any = client.put_object(Bucket=bucket, Key=key, Body=b"one", **asked)  # type: ignore[arg-type]
    found: Any = client.get_object(Bucket=bucket, Key=key)
    assert [{name: answer[name] for name in names} for answer in (wrote, found)] == [asked, asked]
    assert (found["Body"].read(), found["Metadata"]) == (b"one", {})
    plain = opened.client("plain")
    with pytest.raises(ClientError, match="kms:GenerateDataKey on resource: " + KEY):
        plain.put_object(Bucket=bucket, Key=key, Body=b"two", **asked)
    with pytest.raises(ClientError, match="kms:Decrypt on resource: " + KEY):
        plain.get_object(Bucket=bucket, Key=key)
    assert plain.head_object(Bucket=bucket, Key=key)["SSEKMSKeyId"] == KEY
    with pytest.raises(ClientError, match="InvalidArgument"):
        plain.put_object(Bucket=bucket, Key=key, Body=b"", SSEKMSKeyId=KEY)
    upload = client.create_multipart_upload(Bucket=bucket, Key=f"{folder}/two", ServerSideEncryption="AES256")
    whose: dict[str, Any] = {"Bucket": bucket, "Key": f"{folder}/two", "UploadId": upload["UploadId"]}
    part = client.upload_part(**whose, PartNumber=1, Body=b"two")
    parts: Any = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    done = client.complete_multipart_upload(**whose, MultipartUpload=parts)
    head = client.head_object(Bucket=bucket, Key=f"{folder}/two")
    assert [answer["ServerSideEncryption"] for answer in (upload, done, head)] == ["AES256"] * 3


def test_a_buckets_policy_can_demand_encryption_of_every_object(opened: Gate) -> None:
    demand = statement("s3:PutObject", Condition={"StringNotEquals": {"s3:x-amz-server-side-encryption": "AES256"}})
    opened.configure(bucket_policies=[policy({**demand, "Effect": "Deny"})])
    try:
        client, bucket, key = opened.client("admin"), opened.settings.bucket, f"{unique('gate')}/one"
        with pytest.raises(ClientError, match="AccessDenied"):
            client.put_object(Bucket=bucket, Key=key, Body=b"")
        with pytest.raises(ClientError, match="AccessDenied"):
            client.create_multipart_upload(Bucket=bucket, Key=key)
        client.put_object(Bucket=bucket, Key=key, Body=b"", ServerSideEncryption="AES256")
        upload = client.create_multipart_upload(Bucket=bucket, Key=key, ServerSideEncryption="AES256")["UploadId"]
        client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"1")
        client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)
    finally:
        opened.configure(bucket_policies=[])


def test_a_roles_session_ends_and_outlives_a_restart_of_the_gate(opened: Gate) -> None:
    token, role = opened.client("nobody", "sts"), opened.config.roles[0]
    whose = {"RoleArn": role.arn, "RoleSessionName": "test"}
    for user, external in (("nobody", "theirs"), ("admin", "ours")):
        with pytest.raises(ClientError, match="AccessDenied"):
            opened.client(user, "sts").assume_role(**whose, ExternalId=external)

    def keys() -> dict[str, str]:
        found = token.assume_role(**whose, ExternalId="ours")["Credentials"]
        names = {
            "aws_access_key_id": "AccessKeyId",
            "aws_secret_access_key": "SecretAccessKey",
            "aws_session_token": "SessionToken",
        }
        return {name: found[key] for name, key in names.items()}

    def answer(session: dict[str, str]) -> str:
        try:
            opened.client("nobody", **session).list_objects_v2(**listing)
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "OK"

    long, listing = keys(), {"Bucket": opened.settings.bucket, "Prefix": "none/"}
    assert answer({}) == "AccessDenied"
    assert opened.client("nobody", "sts", **long).get_caller_identity()["Arn"].endswith("assumed-role/job/test")
    opened.process.restart()
    assert answer(long) == "OK"
    opened.configure(session_s=1)
    short = keys()
    wait_until(lambda: answer(short) == "ExpiredToken", "the session has ended")
    assert answer({**short, "aws_session_token": long["aws_session_token"]}) == "InvalidToken"


def test_only_those_who_may_list_see_that_there_is_nothing(opened: Gate, tmp_path: Path) -> None:
    reads = statement("s3:GetObject")
    users = {"reads": [policy(reads)], "lists": [policy(reads, statement("s3:ListBucket"))]}
    with gate(opened.settings, tmp_path, users=users) as running:
        assert running.store("lists").get("none/at/all") is None
        with pytest.raises(ClientError, match="s3:ListBucket"):
            running.client("reads").get_object(Bucket=opened.settings.bucket, Key="none/at/all")


LISTS = statement("s3:ListBucket", resource="bucket", Condition={"StringLikeIfExists": {"s3:prefix": ["data/*", "x"]}})
DENIES = {**statement("s3:*", resource="b/secret/*"), "Effect": "Deny"}


@pytest.mark.parametrize(
    ("statements", "action", "resource", "context", "expected"),
    [
        ([statement("s3:Get*", resource="b/*")], "s3:GetObject", "b/x/y", {}, True),
        ([statement("s3:get*", resource="b/?")], "s3:GetObject", "b/x", {}, True),
        ([statement("s3:Get*", resource="b/?")], "s3:GetObject", "b/xy", {}, False),
        ([statement("s3:Get*", resource="b/a.c")], "s3:GetObject", "b/abc", {}, False),
        ([statement("s3:GetObject", resource=["a", "b"])], "s3:PutObject", "b", {}, False),
        ([statement("s3:*", resource="b/*"), DENIES], "s3:GetObject", "b/secret/x", {}, False),
        ([LISTS], "s3:ListBucket", "bucket", {"s3:prefix": "data/s/"}, True),
        ([LISTS], "s3:ListBucket", "bucket", {"s3:prefix": "runs/"}, False),
        ([LISTS], "s3:ListBucket", "bucket", {}, True),
        ([], "s3:GetObject", "b", {}, False),
    ],
)
def test_policies(
    statements: list[dict[str, Any]], action: str, resource: str, context: dict[str, str], expected: bool
) -> None:
    assert allows([policy(*statements)], action, resource, context) is expected


def test_a_policy_with_an_unknown_part_is_refused() -> None:
    for unknown in ({"NotAction": "s3:*"}, {"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}):
        with pytest.raises(ConfigError, match="unknown"):
            allows([policy({**statement("s3:*"), **unknown})], "s3:GetObject", "b")
