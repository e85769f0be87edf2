"""Multipart uploads against a server that fails on the first, middle and completing call."""

import pytest

from tests.archive.conftest import through
from tests.archive.oracle import Oracle
from tests.conftest import unique
from tests.faults import FaultProxy, Rule
from tidemark.core.errors import ServiceError
from tidemark.definitions.sections import Storage
from tidemark.objects.upload import Upload
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

PART = 5 * 1024 * 1024
BODY = bytes(range(256)) * (3 * PART // 256) + b"tail"


@pytest.fixture
def faulty(settings: Settings, proxy: FaultProxy) -> ObjectStore:
    return ObjectStore(through(settings, proxy))


@pytest.fixture
def oracle(settings: Settings) -> Oracle:
    return Oracle(settings, unique("upload"))


def key(oracle: Oracle) -> str:
    return f"data/{oracle.stream}/object"


def send(store: ObjectStore, oracle: Oracle, body: bytes = BODY, *, storage: Storage | None = None) -> tuple[bool, int]:
    """Whether the object was created, and the number of parts."""
    upload = Upload(store, key(oracle), part_bytes=PART, storage=storage)
    try:
        for start in range(0, len(body), 1_000_000):
            upload.write(body[start : start + 1_000_000])
        return upload.complete(), upload.parts
    finally:
        upload.close()


@pytest.mark.parametrize(("size", "parts"), [(0, 0), (1, 0), (PART, 0), (PART + 1, 2), (2 * PART, 2), (len(BODY), 4)])
def test_full_parts_and_a_rest_or_one_put(faulty: ObjectStore, oracle: Oracle, size: int, parts: int) -> None:
    assert send(faulty, oracle, BODY[:size]) == (True, parts)
    assert oracle.body(key(oracle)) == BODY[:size]


@pytest.mark.parametrize("size", [10, len(BODY)])
def test_an_upload_to_a_taken_key_changes_and_leaves_nothing(faulty: ObjectStore, oracle: Oracle, size: int) -> None:
    faulty.put(key(oracle), b"first")
    assert send(faulty, oracle, BODY[:size])[0] is False
    assert oracle.body(key(oracle)) == b"first"
    assert oracle.open_uploads() == []


@pytest.mark.parametrize(
    ("method", "pattern", "call"),
    [
        ("POST", r"\?uploads", "upload of part 1"),
        ("PUT", r"partNumber=2(&|$)", "upload of part 2"),
        ("POST", r"uploadId=", "complete"),
    ],
)
def test_a_refused_call_is_named_and_leaves_nothing(
    faulty: ObjectStore, proxy: FaultProxy, oracle: Oracle, method: str, pattern: str, call: str
) -> None:
    proxy.add(Rule(method=method, pattern=pattern, answer=(403, "AccessDenied")))
    with pytest.raises(ServiceError, match=f"S3 {call} failed: found AccessDenied: .*{key(oracle)}"):
        send(faulty, oracle)
    assert (oracle.keys("data"), oracle.open_uploads()) == ({}, [])


def test_a_failing_abort_does_not_hide_the_first_failure(
    faulty: ObjectStore, proxy: FaultProxy, oracle: Oracle
) -> None:
    proxy.add(Rule(method="PUT", pattern=r"partNumber=2(&|$)", answer=(403, "AccessDenied")))
    proxy.add(Rule(method="DELETE", pattern="uploadId=", answer=(403, "NoAbort")))
    with pytest.raises(ServiceError, match="upload of part 2 failed: found AccessDenied"):
        send(faulty, oracle)
    assert oracle.keys("data") == {}


@pytest.mark.parametrize("answer", [(500, "InternalError"), (503, "SlowDown"), None])
def test_a_transient_error_of_any_call_is_retried(
    faulty: ObjectStore, proxy: FaultProxy, oracle: Oracle, answer: tuple[int, str] | None
) -> None:
    rules = [
        proxy.add(Rule(method=method, pattern=pattern, answer=answer, reset=answer is None))
        for method, pattern in (("POST", r"\?uploads"), ("PUT", r"partNumber=3(&|$)"), ("POST", "uploadId="))
    ]
    assert send(faulty, oracle) == (True, 4)
    assert all(rule.fired.is_set() for rule in rules)
    assert oracle.body(key(oracle)) == BODY


@pytest.mark.parametrize(
    ("size", "rule", "created"),
    [
        (10, Rule(method="PUT", pattern="/object", when="after", reset=True), False),
        # S3Proxy answers a repeated completion as it did the first; other servers no longer know the upload.
        (len(BODY), Rule(method="POST", pattern="uploadId=", when="after", reset=True), True),
        (len(BODY), Rule(method="POST", pattern="uploadId=", when="after", answer=(404, "NoSuchUpload")), False),
    ],
)
def test_a_completion_whose_answer_was_lost_is_found_when_it_is_repeated(
    faulty: ObjectStore, proxy: FaultProxy, oracle: Oracle, size: int, rule: Rule, *, created: bool
) -> None:
    proxy.add(rule)
    assert send(faulty, oracle, BODY[:size])[0] is created  # where not, the key is taken by us: the footer will tell
    assert rule.fired.is_set()
    assert oracle.body(key(oracle)) == BODY[:size]
    assert oracle.open_uploads() == []


STORAGE_FIELDS = {
    "x-amz-storage-class",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-tagging",
}


@pytest.mark.parametrize(("size", "asking"), [(10, "PUT"), (len(BODY), "POST")])
def test_the_storage_settings_are_sent_once_per_object(
    faulty: ObjectStore, proxy: FaultProxy, oracle: Oracle, size: int, asking: str
) -> None:
    storage = Storage(
        storage_class="GLACIER_IR",
        tags={"team": "data & co", "ünï": "a=b"},
    )
    # This server can't tag, so the test checks the requests.
    proxy.add(Rule(method=asking, pattern="/object", times=9, answer=(403, "AccessDenied")))
    with pytest.raises(ServiceError, match=r"archive\.storage asks for StorageClass GLACIER_IR, "):
        send(faulty, oracle, BODY[:size], storage=storage)
    asked = [{name: value for name, value in fields.items() if name in STORAGE_FIELDS} for _, _, fields in proxy.sent]
    assert asked == [
        {
            "x-amz-storage-class": "GLACIER_IR",
            "x-amz-tagging": "team=data%20%26%20co&%C3%BCn%C3%AF=a%3Db",
        }
    ]


@pytest.mark.parametrize("size", [10, len(BODY)])
def test_without_storage_settings_only_the_content_type_is_sent(
    faulty: ObjectStore, proxy: FaultProxy, oracle: Oracle, size: int
) -> None:
    assert send(faulty, oracle, BODY[:size])[0]
    assert [name for _, _, fields in proxy.sent for name in fields if name in STORAGE_FIELDS] == []
    answer = oracle.client.head_object(Bucket=faulty.bucket, Key=key(oracle))
    assert answer["ContentType"] == "application/vnd.apache.parquet"


def test_a_storage_class_is_kept_with_the_object(store: ObjectStore, oracle: Oracle) -> None:
    assert send(store, oracle, BODY[:10], storage=Storage(storage_class="STANDARD_IA")) == (True, 0)
    head = oracle.client.head_object(Bucket=store.bucket, Key=key(oracle))
    assert head["StorageClass"] == "STANDARD_IA"


@pytest.mark.parametrize("size", [10, len(BODY)])
@pytest.mark.parametrize(
    ("storage", "refusal", "asked"),
    [
        (Storage(storage_class="NO_SUCH"), "InvalidStorageClass", "StorageClass NO_SUCH"),
        (Storage(tags={"a": "b"}), "NotImplemented", "Tagging a=b"),
    ],
    ids=["class", "tags"],
)
def test_refused_storage_settings_are_named_and_nothing_is_written(
    store: ObjectStore, oracle: Oracle, size: int, storage: Storage, refusal: str, asked: str
) -> None:
    with pytest.raises(ServiceError, match=rf"found {refusal}: .*archive\.storage asks for {asked}"):
        send(store, oracle, BODY[:size], storage=storage)
    assert (oracle.keys("data"), oracle.open_uploads()) == ({}, [])
