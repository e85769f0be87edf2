"""AWS Signature Version 4 in an Authorization header: checked for clients, and made for the guarded server."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self
from urllib.parse import quote, unquote

from tidemark.stack.s3_gate.refusal import Refusal

ALGORITHM = "AWS4-HMAC-SHA256"
MAX_SKEW = timedelta(minutes=15)
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} Credential=(?P<access_key>[^/,]+)/(?P<date>\d{{8}})/(?P<region>[^/,]*)/(?P<service>[^/,]+)"
    r"/aws4_request, ?SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedParts:
    """The parts of a request that a signature covers; names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    payload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an Authorization header claims."""

    access_key: str
    date: str
    region: str
    service: str
    signed: tuple[str, ...]
    signature: str

    @classmethod
    def parse(cls, header: str) -> Self:
        """Raises Refusal for a request without a signature that the gate knows."""
        found = _AUTHORIZATION.fullmatch(header)
        if found is None:
            raise Refusal("AccessDenied", "The request has no signature of version 4 in its Authorization header")
        return cls(
            access_key=found["access_key"],
            date=found["date"],
            region=found["region"],
            service=found["service"],
            signed=tuple(found["headers"].split(";")),
            signature=found["signature"],
        )

    def check(self, target: SignedParts, secret: str) -> None:
        """Raises Refusal if the signature is another key's or request's, or the request is 15 minutes old."""
        timestamp = target.headers.get("x-amz-date", "")
        try:
            at = datetime.strptime(timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise Refusal("AccessDenied", "The request has no valid X-Amz-Date") from None
        if abs(datetime.now(UTC) - at) > MAX_SKEW:
            raise Refusal("RequestTimeTooSkewed", "The difference between the request's time and now is too large")
        names = {name for name in target.headers if name.startswith("x-amz-")} | {"host"}
        wanted = self.signature_of(target, secret)
        # A header outside the signature could be changed on the way.
        if not names <= set(self.signed) or not hmac.compare_digest(self.signature, wanted):
            raise Refusal("SignatureDoesNotMatch", "The signature does not match the request and the secret key")

    def signature_of(self, target: SignedParts, secret: str) -> str:
        """The signature of a request by ``secret``, over the headers in ``signed``."""
        headers = [f"{name}:{' '.join(target.headers.get(name, '').split())}\n" for name in self.signed]
        request = "\n".join(
            (
                target.method,
                quote(unquote(target.path), safe="/-_.~"),
                _canonical(target.query),
                "".join(headers),
                ";".join(self.signed),
                target.payload,
            )
        )
        scope = f"{self.date}/{self.region}/{self.service}/aws4_request"
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"{ALGORITHM}\n{target.headers.get('x-amz-date', '')}\n{scope}\n{digest}"
        key = _chain(f"AWS4{secret}".encode(), (self.date, self.region, self.service, "aws4_request"))
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def signed_headers(target: SignedParts, *, access_key: str, secret: str) -> dict[str, str]:
    """The headers that sign a request to the guarded server; ``target``'s must have ``host``."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {**target.headers, "x-amz-date": now, "x-amz-content-sha256": target.payload}
    names = tuple(sorted(name for name in headers if name == "host" or name.startswith("x-amz-")))
    claim = Claim(access_key=access_key, date=now[:8], region="us-east-1", service="s3", signed=names, signature="")
    found = SignedParts(
        method=target.method, path=target.path, query=target.query, headers=headers, payload=target.payload
    )
    signature = claim.signature_of(found, secret)
    credential = f"{access_key}/{claim.date}/{claim.region}/{claim.service}/aws4_request"
    headers["authorization"] = (
        f"{ALGORITHM} Credential={credential}, SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return headers


def _canonical(query: str) -> str:
    """The query in the form and order of a signature."""
    pairs = [part.partition("=") for part in query.split("&") if part]
    encoded = ((quote(unquote(name), safe="-_.~"), quote(unquote(value), safe="-_.~")) for name, _, value in pairs)
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))


def _chain(key: bytes, parts: Iterable[str]) -> bytes:
    for part in parts:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
