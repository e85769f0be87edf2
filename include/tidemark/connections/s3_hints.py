"""What a failed call of S3 means, and what to do about it."""

import re

# The action that a policy must allow for an operation of boto3's client, if it is not the operation's own name.
_ACTIONS = {
    "HeadObject": "s3:GetObject",
    "CopyObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "DeleteObjects": "s3:DeleteObject",
    "HeadBucket": "s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListParts": "s3:ListMultipartUploadParts",
}
_OF_BUCKETS = {"s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:CreateBucket"}
_KEYS = "Check TIDEMARK_S3_ACCESS_KEY and TIDEMARK_S3_SECRET_KEY, or the profile or role that is set instead"
_EXPIRED = "The session has expired: log in again, or set keys or a role that do not expire (TIDEMARK_S3_ROLE_ARN)"
_REGION = "Set TIDEMARK_S3_REGION to the bucket's region"
_UNREACHABLE = "Check that the server runs, and that this machine reaches it. Its URL is {endpoint}"
# By S3's code, or the type of botocore's error.
_HINTS = {
    "EndpointConnectionError": _UNREACHABLE,
    "ConnectTimeoutError": _UNREACHABLE,
    "ConnectionClosedError": _UNREACHABLE,
    "NetworkConnection": _UNREACHABLE,
    "ReadTimeoutError": _UNREACHABLE,
    "ProxyConnectionError": "Check that the proxy runs, and TIDEMARK_S3_PROXY",
    "SSLError": "Set TIDEMARK_S3_CA_BUNDLE to a PEM file of the authority that signed the server's certificate",
    "NoCredentialsError": "Set TIDEMARK_S3_ACCESS_KEY and TIDEMARK_S3_SECRET_KEY, or TIDEMARK_S3_PROFILE; or run where"
    " the environment gives a role",
    "InvalidAccessKeyId": _KEYS,
    "InvalidClientTokenId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "InvalidToken": "TIDEMARK_S3_SESSION_TOKEN must come from the same login as the keys",
    "RequestTimeTooSkewed": "The clocks of this machine and of the server differ by over 15 minutes: synchronize them",
    "RequestExpired": "The clocks of this machine and of the server differ by over 15 minutes: synchronize them",
    "NotImplemented": "The server does not support this: see TIDEMARK_S3_ENCRYPTION and the stream's archive.storage",
    "NoSuchBucket": "Create the bucket, or correct TIDEMARK_BUCKET",
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "KMS.NotFoundException": "Correct TIDEMARK_S3_KMS_KEY: the key must exist in the bucket's region",
    "KMS.DisabledException": "Enable the KMS key, or set another one in TIDEMARK_S3_KMS_KEY",
}
_ARROWS = re.compile(r"AWS Error (\w+) during (\w+) operation")
_ARROWS_PLACE = re.compile(r"key '([^']*)' in bucket '([^']*)'")
DENIED = {"AccessDenied", "AccessDeniedException", "AllAccessDisabled", "Forbidden", "403"}


def s3_hint(code: str, *, operation: str, message: str, endpoint: str, bucket: str, key: str) -> str | None:
    """What to do about a failed call; None if the error itself must do.

    ``code`` is S3's error code or the type of botocore's error, ``operation`` the name of boto3's operation if S3
    answered, and ``key`` an object's key or a prefix.
    """
    if code in DENIED:
        return _denied(operation, message, bucket, key)
    if hint := _HINTS.get(code):
        return hint.format(endpoint=endpoint)
    return None


def arrow_hint(text: str) -> str | None:
    """``s3_hint`` for the text of pyarrow's error, which is all that it gives."""
    found = _ARROWS.search(text)
    if found is None:
        return None
    place = _ARROWS_PLACE.search(text)
    return s3_hint(
        found[1].title().replace("_", ""),  # AWS's SDK for C++ writes ACCESS_DENIED
        operation=found[2],
        message=text,
        endpoint="in TIDEMARK_S3_ENDPOINT",
        bucket=place[2] if place else "BUCKET",
        key=place[1] if place else "KEY",
    )


def _denied(operation: str, message: str, bucket: str, key: str) -> str:
    if operation.startswith("AssumeRole"):
        return (
            "Allow sts:AssumeRole to the caller, in its policy and in the trust policy of TIDEMARK_S3_ROLE_ARN, and"
            " check TIDEMARK_S3_EXTERNAL_ID"
        )
    if "kms:" in message or "KMS" in message:
        return "Allow kms:GenerateDataKey and kms:Decrypt on the key, in its policy and in that of the role"
    action = _ACTIONS.get(operation, f"s3:{operation}")
    resource = f"arn:aws:s3:::{bucket}" + ("" if action in _OF_BUCKETS else f"/{key}")
    return f"Allow {action} on {resource}: see the policy of the role in include/tidemark/connections/policies"
