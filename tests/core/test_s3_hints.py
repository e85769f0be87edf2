"""What to do about a failed call of S3 stands at the end of its error."""

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from tidemark.core.errors import ConfigError, ServiceError
from tidemark.s3 import ObjectStore, require_s3
from tidemark.settings import Settings
from tidemark.tables.reader import pyiceberg_errors


def given(**more: object) -> Settings:
    keys = {"s3_access_key": "k", "s3_secret_key": "k", "catalog_uri": "jdbc:sqlite:c"}
    return Settings.model_validate({"kafka_bootstrap": "h:1", "bucket": "lake", **keys, **more})


def refusal(operation: str, code: str, message: str = "no") -> ClientError:
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    return ClientError(answer, operation)  # type: ignore[arg-type]  # the parts that are read


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            refusal("PutObject", "AccessDenied"),
            r"Allow s3:PutObject on arn:aws:s3:::lake/data/x: see the policy of the",
        ),
        (refusal("CompleteMultipartUpload", "AccessDenied"), r"Allow s3:PutObject on arn:aws:s3:::lake/data/x: "),
        (refusal("HeadObject", "403"), r"Allow s3:GetObject on arn:aws:s3:::lake/data/x: "),
        (refusal("ListObjectsV2", "AccessDenied"), r"Allow s3:ListBucket on arn:aws:s3:::lake: "),
        (
            refusal("ListMultipartUploads", "AccessDenied"),
            r"Allow s3:ListBucketMultipartUploads on arn:aws:s3:::lake: ",
        ),
        (refusal("DeleteObject", "AccessDenied"), r"Allow s3:DeleteObject on arn:aws:s3:::lake/data/x: "),
        (
            refusal("PutObject", "AccessDenied", "not authorized to perform: kms:GenerateDataKey on resource: k"),
            r"Allow kms:GenerateDataKey and kms:Decrypt on the key",
        ),
        (refusal("AssumeRole", "AccessDenied"), r"Allow sts:AssumeRole .* check TIDEMARK_S3_EXTERNAL_ID"),
        (refusal("GetObject", "SignatureDoesNotMatch"), r"Check TIDEMARK_S3_ACCESS_KEY"),
        (refusal("GetObject", "InvalidAccessKeyId"), r"Check TIDEMARK_S3_ACCESS_KEY"),
        (refusal("GetObject", "ExpiredToken"), r"The session has expired"),
        (refusal("GetObject", "RequestTimeTooSkewed"), r"The clocks .* synchronize them"),
        (refusal("GetObject", "NoSuchBucket"), r"Create the bucket, or correct TIDEMARK_BUCKET"),
        (refusal("PutObject", "KMS.NotFoundException"), r"Correct TIDEMARK_S3_KMS_KEY"),
        (
            EndpointConnectionError(endpoint_url="x"),
            r"Check that the server runs, .* Its URL is http://127\.0\.0\.1:1$",
        ),
    ],
)
def test_an_error_of_s3_ends_with_what_to_do(error: Exception, hint: str) -> None:
    found = ObjectStore(given(s3_endpoint="http://127.0.0.1:1")).refused("put", "data/x", error)
    assert f"{found.hint}" in str(found)
    with pytest.raises(ServiceError, match=rf"s3://lake/data/x\]\. {hint}"):
        raise found


@pytest.mark.parametrize(
    ("code", "operation", "hint"),
    [
        ("ACCESS_DENIED", "HeadObject", "Allow s3:GetObject on arn:aws:s3:::lake/t/m.json: see the policy"),
        ("INVALID_ACCESS_KEY_ID", "GetObject", "Check TIDEMARK_S3_ACCESS_KEY"),
        ("NETWORK_CONNECTION", "HeadObject", "Check that the server runs"),
    ],
)
def test_an_error_of_pyarrow_has_the_hint_of_the_same_error_of_s3(code: str, operation: str, hint: str) -> None:
    text = (
        f"When reading information for key 't/m.json' in bucket 'lake': AWS Error {code} during {operation} operation"
    )
    with pytest.raises(ServiceError) as caught, pyiceberg_errors("published.t"):
        raise OSError(text)
    assert str(caught.value.hint).startswith(hint)


def test_a_command_reports_that_s3_does_not_answer() -> None:
    with pytest.raises(ServiceError, match="S3 does not answer: found EndpointConnectionError"):
        require_s3(given(s3_endpoint="http://127.0.0.1:1"))


def test_a_profile_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no such AWS profile: found .*\(of-nobody\).* \[TIDEMARK_S3_PROFILE"):
        require_s3(given(s3_access_key="", s3_secret_key="", s3_profile="of-nobody"))
