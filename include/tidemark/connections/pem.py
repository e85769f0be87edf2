"""Certificates and keys as PEM text, in the one form that OpenSSL and Java both read."""

from pathlib import Path
from typing import Any

from tidemark.core.errors import ConfigError

_BEGIN = "-----BEGIN "


def read_bytes(path: str, where: str) -> bytes:
    """The file's content; raises ConfigError if it can't be read."""
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(
            "a file of a Kafka connection can't be read", found=f"{path}: {error.strerror}", where=where
        ) from error


def pem_text(content: bytes | str, where: str) -> str:
    """The content as text; raises ConfigError unless it has a PEM block. Never shows it: it may be a key."""
    text = content.decode("latin-1") if isinstance(content, bytes) else content
    if _BEGIN in text:
        return text.replace("\\n", "\n")  # as text on one line, in an environment variable, has its line ends
    raise ConfigError(
        "not PEM", expected=f"a block that begins with {_BEGIN.strip()}", found=f"{len(text)} characters", where=where
    )


def certificates(pem: str, where: str) -> list[Any]:
    """The certificates in the text, at least one, in its order. Raises ConfigError."""
    from cryptography import x509

    try:
        return list(x509.load_pem_x509_certificates(pem.encode()))
    except ValueError as error:
        raise ConfigError("no certificate in PEM text", expected="X.509", found=error, where=where) from error


def private_key(pem: str, password: str | None, where: str) -> Any:
    """The first private key in the text, whatever its form. Raises ConfigError, which names the way out."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem.encode(), password.encode() if password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            "a private key can't be read",
            expected="PKCS#8 or PKCS#1 in PEM" + ("" if password else ", or ssl.key.password for an encrypted one"),
            found=str(error).splitlines()[0],
            where=where,
            hint="Convert it with: openssl pkcs8 -topk8 -nocrypt -in KEY -out KEY.pk8",
        ) from error


def pkcs8(key: Any) -> str:
    """The key as Java reads it: PKCS#8, not encrypted. The password of an encrypted one would travel beside it."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()


def check_pair(key: Any, certificate: Any, where: str) -> None:
    """Raise ConfigError unless the key belongs to the certificate."""
    if key.public_key() != certificate.public_key():
        raise ConfigError(
            "a private key does not belong to its certificate",
            expected=f"the key of {certificate.subject.rfc4514_string()}",
            found="another key",
            where=where,
        )


def unpacked(content: bytes, password: str | None, where: str) -> tuple[str, str]:
    """The certificate chain and the key in a PKCS#12 store, as PEM. Raises ConfigError."""
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

    try:
        key, certificate, chain = load_key_and_certificates(content, password.encode() if password else None)
    except ValueError as error:
        raise ConfigError(
            "a key store can't be read",
            expected="PKCS#12, and its password in ssl.keystore.password",
            found=error,
            where=where,
            hint="For a JKS file: keytool -importkeystore -srckeystore JKS -destkeystore P12 -deststoretype PKCS12",
        ) from error
    if key is None or certificate is None:
        raise ConfigError("a key store lacks a part", expected="a key and its certificate", where=where)
    return "".join(item.public_bytes(Encoding.PEM).decode() for item in (certificate, *chain)), pkcs8(key)
