"""Java's store of trusted certificates, made from a PEM file: Java can't read PEM there."""

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from botocore.httpsession import get_cert_path

from tidemark.core.errors import ConfigError

# Certificates are public. Java only wants a password.
_PASSWORD = "tidemark"  # noqa: S105
_NAME = "tidemark-trusted.p12"
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
        own = x509.load_pem_x509_certificates(bundle.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError("no certificates", expected="a PEM file", found=error, where=where) from error
    usual = x509.load_pem_x509_certificates(Path(str(get_cert_path(verify=True))).read_bytes())
    store = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(one, f"{number}".encode()) for number, one in enumerate([*own, *usual])],
        BestAvailableEncryption(_PASSWORD.encode()),
    )
    _FOLDERS.append(TemporaryDirectory(prefix="tidemark-trust-"))
    path = Path(_FOLDERS[-1].name) / _NAME
    path.write_bytes(store)
    return path


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
