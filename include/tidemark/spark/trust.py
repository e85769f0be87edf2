"""Trusted certificates for executors: the PEM file for Python, and Java's store made from it: Java can't read PEM."""

import re
import warnings
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from botocore.httpsession import get_cert_path

from tidemark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography.x509 import Certificate

# Certificates are public. Java only wants a password.
_PASSWORD = "tidemark"  # noqa: S105
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_NAME = "tidemark-trusted.p12"
SENT_BUNDLE = "tidemark-authorities.pem"
# Kept until the process ends: the driver sends the file to executors that start later.
_FOLDERS: list[TemporaryDirectory[str]] = []


@lru_cache(maxsize=4)
def java_trust_store(bundle: Path) -> Path:
    """A PKCS12 file with the bundle's certificates and those that boto3 trusts, for other servers than S3.

    It holds for every TLS connection of the JVM. Raises ConfigError if the bundle is missing or has no certificate.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    where = f"{bundle}, named by TIDEMARK_S3_CA_BUNDLE"
    try:
        pem = bundle.read_bytes()
        own = x509.load_pem_x509_certificates(pem)
    except (OSError, ValueError) as error:
        raise ConfigError("no certificates", expected="a PEM file", found=error, where=where) from error
    store = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(one, f"{number}".encode()) for number, one in enumerate([*own, *_public()])],
        BestAvailableEncryption(_PASSWORD.encode()),
    )
    _FOLDERS.append(TemporaryDirectory(prefix="tidemark-trust-"))
    folder = Path(_FOLDERS[-1].name)
    (folder / SENT_BUNDLE).write_bytes(pem)
    (folder / _NAME).write_bytes(store)
    return folder / _NAME


def sent_files(bundle: Path | None) -> tuple[Path, ...]:
    """The files to send to executors: the store for Java, and the bundle for Python, under a name of its own."""
    if bundle is None:
        return ()
    store = java_trust_store(bundle)
    return store, store.with_name(SENT_BUNDLE)


def _public() -> "Iterator[Certificate]":
    """The authorities that boto3 trusts by default, but the few whose certificates break RFC 5280."""
    from cryptography.x509 import load_pem_x509_certificate

    for pem in _CERTIFICATE.findall(Path(str(get_cert_path(verify=True))).read_bytes()):
        with warnings.catch_warnings(), suppress(ValueError, UserWarning):
            warnings.simplefilter("error")
            yield load_pem_x509_certificate(pem)


def java_trust(bundle: Path | None, *, executor: bool = False) -> dict[str, str]:
    """Java's system properties that name the store; none without a bundle. Executors have it where they run."""
    if bundle is None:
        return {}
    path = java_trust_store(bundle)
    return {
        "javax.net.ssl.trustStore": path.name if executor else str(path),
        "javax.net.ssl.trustStoreType": "PKCS12",
        "javax.net.ssl.trustStorePassword": _PASSWORD,
    }
