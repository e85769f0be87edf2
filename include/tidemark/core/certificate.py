"""Certificates: a seal with its SHA-256 and a signature, which anybody can check without a server.

A certificate follows from its seal and the private key alone: writing it again gives the same bytes.
``include/tidemark_verify.py`` checks certificates, and shares no code with this module.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemark.core.codec import decode, encode, require_format
from tidemark.core.errors import FormatError
from tidemark.core.manifest import canonical_json
from tidemark.core.seal import Seal

FORMAT = 1
# A private key of Ed25519 in PKCS#8 (RFC 8410), as openssl writes it: these bytes, then the key's 32.
_PRIVATE_KEY_START = bytes.fromhex("302e020100300506032b657004220420")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealSignature:
    """An Ed25519 signature (RFC 8032) of a seal's bytes.

    - public_key: the key that verifies it: 32 bytes in hex.
    - signature: 64 bytes in hex.
    """

    public_key: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCertificate:
    """One version of one day.

    - seal: the seal, as its own object has it.
    - sha256: SHA-256 of the seal's bytes, in hex.
    - signature: the signature of the seal's bytes. Null if the deployment has no key: the certificate is unsigned.
    """

    seal: dict[str, Any]
    sha256: str
    signature: SealSignature | None

    def to_json(self) -> bytes:
        return canonical_json({"format": FORMAT, **encode(self)})


def certify(seal: Seal, sign: Callable[[bytes], SealSignature] | None) -> DayCertificate:
    """The certificate of a seal; unsigned without ``sign``."""
    body = seal.to_json()
    return DayCertificate(seal=json.loads(body), sha256=seal.digest(), signature=sign(body) if sign else None)


def parse_certificate(body: bytes, *, where: str) -> DayCertificate:
    """The certificate in ``body``, unchecked. Raises FormatError, with ``where``, for anything else."""
    try:
        raw: Any = json.loads(body)
        form = raw.pop("format")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        expected = f"format {FORMAT}"
        raise FormatError("a certificate does not parse", expected=expected, found=repr(error), where=where) from error
    require_format("unknown certificate format", form, known=FORMAT, where=where)
    return decode(DayCertificate, raw, where=where)


def private_key(text: str) -> bytes:
    """The 32 bytes of an Ed25519 private key in PEM, with its armour lines or without. Raises ValueError otherwise."""
    lines = (line.strip() for line in text.replace("\\n", "\n").splitlines())
    try:
        found = base64.b64decode("".join(line for line in lines if not line.startswith("-----")), validate=True)
    except ValueError:
        found = b""
    if not found.startswith(_PRIVATE_KEY_START) or len(found) != len(_PRIVATE_KEY_START) + 32:
        raise ValueError("not an Ed25519 private key in PEM; make one with: openssl genpkey -algorithm ed25519")
    return found[len(_PRIVATE_KEY_START) :]
