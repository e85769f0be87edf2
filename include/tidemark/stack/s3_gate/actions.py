"""What a request needs: the IAM actions with their resources, and the condition keys of the request."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote
from xml.etree.ElementTree import ParseError, fromstring

from tidemark.stack.s3_gate.encryption import Encryption
from tidemark.stack.s3_gate.refusal import Refusal

# Questions about a bucket or an object that name the thing they ask for in their query.
_BUCKET_QUESTIONS = {
    "location": "s3:GetBucketLocation",
    "uploads": "s3:ListBucketMultipartUploads",
    "versioning": "s3:GetBucketVersioning",
    "encryption": "s3:GetEncryptionConfiguration",
}
_MAIN = {"list-type", "prefix", "delimiter", "marker", "max-keys", "encoding-type", "start-after", "continuation-token"}
_OF_LISTING = _MAIN | {"fetch-owner", "key-marker", "upload-id-marker", "max-uploads"}
_OF_OBJECT = {"uploadId", "partNumber", "uploads", "max-parts", "part-number-marker", "x-id"}
_CONDITION_HEADERS = ("x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A request's method, bucket, key and query; an empty key is the bucket itself."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]

    @classmethod
    def parse(cls, method: str, path: str, query: str) -> "Address":
        """Raises Refusal for a key that is no plain one."""
        bucket, _, key = unquote(path).lstrip("/").partition("/")
        if {".", ".."} & set(key.split("/")):  # for a server with folders the key is another one
            raise Refusal("InvalidArgument", "The gate takes no key with . or .. between slashes")
        return cls(method=method, bucket=bucket, key=key, query=dict(parse_qsl(query, keep_blank_values=True)))

    @property
    def bucket_arn(self) -> str:
        return f"arn:aws:s3:::{self.bucket or '*'}"

    @property
    def arn(self) -> str:
        return f"{self.bucket_arn}/{self.key}"

    @property
    def upload(self) -> str:
        """The id of the multipart upload that the request belongs to; empty if to none."""
        return self.query.get("uploadId", "")


def needed(address: Address, headers: Mapping[str, str], encryption: Encryption) -> list[tuple[str, str]]:
    """Each action and resource that the request needs, the one it is named after first.

    ``encryption`` is what the object has or will have. Raises Refusal for a request that the gate does not know.
    """
    if not address.key:
        return [_bucket_action(address)]
    if set(address.query) - _OF_OBJECT or headers.keys() & {"x-amz-copy-source", "x-amz-acl"}:
        raise Refusal("NotImplemented", "The gate does not know this call on an object")
    action = _object_action(address)
    found = [(action, address.arn)]
    if action == "s3:PutObject" and encryption.kms_key_arn:
        found.append(("kms:GenerateDataKey", encryption.kms_key_arn))
        if address.method == "POST" or address.upload:
            found.append(("kms:Decrypt", encryption.kms_key_arn))
    if "x-amz-tagging" in headers:
        found.append(("s3:PutObjectTagging", address.arn))
    if "if-match" in headers and address.method != "GET":
        found.append(("s3:GetObject", address.arn))
    return found


def context(address: Address, headers: Mapping[str, str], encryption: Encryption) -> dict[str, str]:
    """The request's condition keys, as policies name them."""
    listing = {f"s3:{name}": address.query[name] for name in ("prefix", "delimiter") if name in address.query}
    kept = encryption.headers() if address.method in {"PUT", "POST"} else {}
    conditions = {f"s3:{name}": headers[name] for name in ("if-match", "if-none-match") if name in headers}
    encrypted = {f"s3:{name}": kept[name] for name in _CONDITION_HEADERS if name in kept}
    return {**listing, **conditions, **encrypted, "aws:SecureTransport": "true"}


def deleted_keys(body: bytes) -> list[str]:
    """The keys that a DeleteObjects call names; raises Refusal for a body that is none."""
    try:
        tree = fromstring(body)  # noqa: S314  # of a client of this machine, and with a key of the stack
    except ParseError:
        raise Refusal("MalformedXML", "The body is not well-formed") from None
    keys = [found.text or "" for found in tree.iter() if found.tag.rpartition("}")[2] == "Key"]
    if not keys:
        raise Refusal("MalformedXML", "The body names no key")
    return keys


def _bucket_action(address: Address) -> tuple[str, str]:
    method, query = address.method, set(address.query) - {"x-id"}
    if not address.bucket:
        if method == "GET":
            return "s3:ListAllMyBuckets", "*"
    elif method == "HEAD" or (method == "GET" and query <= _OF_LISTING):
        return "s3:ListBucket", address.bucket_arn
    elif method == "GET":
        for name, action in _BUCKET_QUESTIONS.items():
            if name in query and query - {name} <= _OF_LISTING:
                return action, address.bucket_arn
    elif method in {"PUT", "DELETE"} and not query:
        return ("s3:CreateBucket" if method == "PUT" else "s3:DeleteBucket"), address.bucket_arn
    raise Refusal("NotImplemented", "The gate does not know this call on a bucket")


def _object_action(address: Address) -> str:
    match address.method, bool(address.upload):
        case "GET", True:
            return "s3:ListMultipartUploadParts"
        case (("GET" | "HEAD"), False):
            return "s3:GetObject"
        case ("PUT", _) | ("POST", True):
            return "s3:PutObject"
        case "POST", False if "uploads" in address.query:
            return "s3:PutObject"
        case "DELETE", True:
            return "s3:AbortMultipartUpload"
        case "DELETE", False:
            return "s3:DeleteObject"
    raise Refusal("NotImplemented", "The gate does not know this call on an object")
