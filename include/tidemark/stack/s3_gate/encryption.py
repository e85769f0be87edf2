"""Server-side encryption: asked for in a request's headers, kept as the object's metadata, answered with the object.

Nothing is encrypted: clients and policies see what a server that encrypts would show them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.stack.s3_gate.refusal import Refusal

ALGORITHM = "x-amz-server-side-encryption"
KMS_KEY = f"{ALGORITHM}-aws-kms-key-id"
BUCKET_KEY = f"{ALGORITHM}-bucket-key-enabled"
METADATA = "x-amz-meta-tidemark-encryption"
_CUSTOMER = f"{ALGORITHM}-customer-algorithm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """How an object is encrypted; without an algorithm, not at all."""

    algorithm: str = ""
    kms_key: str = ""
    bucket_key: bool = False

    @property
    def kms_key_arn(self) -> str:
        """The resource that policies name; empty without a key of one's own."""
        if not self.kms_key or self.kms_key.startswith("arn:"):
            return self.kms_key
        return f"arn:aws:kms:us-east-1:000000000000:key/{self.kms_key}"

    @classmethod
    def asked(cls, headers: Mapping[str, str], *, takes: bool) -> "Encryption":
        """What a request asks for; ``takes``: it is one that may. Raises Refusal as S3 does."""
        given = {name for name in headers if name.startswith(ALGORITHM)}
        algorithm = headers.get(ALGORITHM, "")
        if given and not takes:
            raise Refusal("InvalidArgument", f"{min(given)} header is not supported for this operation")
        if _CUSTOMER in given or algorithm not in {"", "AES256", "aws:kms"}:
            raise Refusal("NotImplemented", "The gate knows AES256 and aws:kms")
        if given & {KMS_KEY, BUCKET_KEY} and algorithm != "aws:kms":
            raise Refusal("InvalidArgument", f"{ALGORITHM} must be aws:kms for a request with a key")
        return cls(algorithm=algorithm, kms_key=headers.get(KMS_KEY, ""), bucket_key=headers.get(BUCKET_KEY) == "true")

    @classmethod
    def kept(cls, text: str | None) -> "Encryption":
        """What an object's metadata says."""
        if not text:
            return cls()
        algorithm, kms_key, bucket_key = json.loads(text)
        return cls(algorithm=algorithm, kms_key=kms_key, bucket_key=bucket_key)

    def metadata(self) -> str:
        """The value of the metadata that keeps it."""
        return json.dumps([self.algorithm, self.kms_key, self.bucket_key])

    def headers(self) -> dict[str, str]:
        """The headers that say it, in requests and in answers."""
        found = {ALGORITHM: self.algorithm, KMS_KEY: self.kms_key, BUCKET_KEY: "true" if self.bucket_key else ""}
        return {name: value for name, value in found.items() if value}
