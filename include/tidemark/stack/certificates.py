"""A private certificate authority, and what it signs: certificates of the stack's servers and of their clients.

``<folder>/ca.pem`` is what clients trust. Later calls with the same folder return the same files. A certificate gets a
successor before it expires, and when the authority gets one. Every file is readable for its owner only. Nothing outside
the folder trusts the authority, so its key, ``ca.key``, protects only this stack.
"""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidemark.stack.files import write_private

LIFE = timedelta(days=3650)
RENEWED_BEFORE_END = timedelta(days=30)
_CLOCK_SKEW = timedelta(days=1)
_USAGES = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
_CA_USAGES = ("key_cert_sign", "crl_sign")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Paths of PEM files: ``certificate``, its PKCS#8 ``key``, and the certificate of the authority (``ca``).

    ``store`` has key, certificate and authority in one file, which is the form of Kafka's PEM key store.
    """

    certificate: Path
    key: Path
    store: Path
    ca: Path


@dataclass(frozen=True, slots=True)
class _Signed:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def server_certificate(folder: Path) -> Certificate:
    """A certificate for servers at ``localhost`` and 127.0.0.1."""
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))])
    return _certificate(folder, "server", "localhost", ExtendedKeyUsageOID.SERVER_AUTH, names)


def host_certificate(folder: Path, host: str) -> Certificate:
    """A certificate for the server at this host name, and for itself at ``localhost``."""
    names = x509.SubjectAlternativeName([x509.DNSName(host), x509.DNSName("localhost")])
    return _certificate(folder, host, host, ExtendedKeyUsageOID.SERVER_AUTH, names)


def key_store(certificate: Certificate, password: str) -> bytes:
    """Key and certificate as PKCS #12, for Java servers that read no PEM files."""
    key = load_pem_private_key(certificate.key.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    own = x509.load_pem_x509_certificate(certificate.certificate.read_bytes())
    return pkcs12.serialize_key_and_certificates(b"server", key, own, None, BestAvailableEncryption(password.encode()))


def client_certificate(folder: Path, user: str) -> Certificate:
    """A certificate that authenticates ``user`` to a server: it is the subject's common name."""
    return _certificate(folder, f"client-{user}", user, ExtendedKeyUsageOID.CLIENT_AUTH, None)


def _certificate(
    folder: Path, file: str, name: str, usage: x509.ObjectIdentifier, names: x509.SubjectAlternativeName | None
) -> Certificate:
    ca = _kept(folder, "ca") or _write(folder, "ca", _signed("Tidemark's local stack", None, []))
    found = _kept(folder, file)
    if found is None or not _is_issued_by(found, ca):
        extensions: list[x509.ExtensionType] = [x509.ExtendedKeyUsage([usage]), *([names] if names else [])]
        found = _write(folder, file, _signed(name, ca, extensions))
    store = folder / f"{file}.store.pem"
    write_private(store, found.key_pem + found.certificate_pem + ca.certificate_pem)
    return Certificate(
        certificate=folder / f"{file}.pem", key=folder / f"{file}.key", store=store, ca=folder / "ca.pem"
    )


def _kept(folder: Path, file: str) -> _Signed | None:
    """What an earlier call wrote; None if there is nothing, or it ends soon."""
    try:
        certificate = x509.load_pem_x509_certificate((folder / f"{file}.pem").read_bytes())
        key = load_pem_private_key((folder / f"{file}.key").read_bytes(), None)
    except (FileNotFoundError, ValueError):
        return None
    fits = isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == certificate.public_key()
    if not fits or certificate.not_valid_after_utc - datetime.now(UTC) < RENEWED_BEFORE_END:
        return None
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return _Signed(certificate, key)


def _write(folder: Path, file: str, signed: _Signed) -> _Signed:
    write_private(folder / f"{file}.key", signed.key_pem)
    write_private(folder / f"{file}.pem", signed.certificate_pem)
    return signed


def _signed(name: str, issuer: _Signed | None, extensions: list[x509.ExtensionType]) -> _Signed:
    """A new certificate with a new key, signed by ``issuer``; without one, that of an authority, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer = key if issuer is None else issuer.key
    now = datetime.now(UTC)
    usages = _CA_USAGES if issuer is None else ("digital_signature",)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + LIFE)
        .add_extension(
            x509.BasicConstraints(ca=issuer is None, path_length=0 if issuer is None else None), critical=True
        )
        .add_extension(_key_usage(usages), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return _Signed(builder.sign(signer, hashes.SHA256()), key)


def _key_usage(usages: tuple[str, ...]) -> x509.KeyUsage:
    bits = {name: name in usages for name in (*_USAGES, *_CA_USAGES)}
    return x509.KeyUsage(**bits, encipher_only=False, decipher_only=False)


def _is_issued_by(signed: _Signed, ca: _Signed) -> bool:
    try:
        signed.certificate.verify_directly_issued_by(ca.certificate)
    except (ValueError, InvalidSignature):
        return False
    return True
