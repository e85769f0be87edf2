"""Certificates of sealed days in S3: written after the seals, read by the pages."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date

from tidemark.core.certificate import DayCertificate, SealSignature, certify, parse_certificate, private_key
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.seals import read_seal

_AT_ONCE = 16


def add_certificates(settings: Settings, store: ObjectStore, layout: Layout) -> None:
    """Write the certificate of every sealed version that has none: those just sealed, and those that a crash or a
    person has removed. An existing one stays."""
    sealed = {layout.parse_seal_key(item.key) for item in store.list(layout.seal_prefix)}
    keys = (item.key for item in store.list(layout.certificate_prefix))
    certified = {layout.parse_certificate_key(key) for key in keys if key.endswith(".json")}
    sign = _signer(settings)

    def write(version: tuple[date, int]) -> None:
        seal = read_seal(store, layout, *version)
        if seal is not None:
            store.put_if_absent(layout.certificate_key(*version), certify(seal, sign).to_json())

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="certificates") as pool:
        list(pool.map(write, sorted(sealed - certified)))


def day_certificates(store: ObjectStore, layout: Layout, day: date) -> dict[int, DayCertificate]:
    """The certificates of a day by version, unchecked."""
    listed = (item.key for item in store.list(f"{layout.certificate_prefix}{day.isoformat()}/"))
    bodies = {key: store.get(key) for key in listed if key.endswith(".json")}
    return {
        layout.parse_certificate_key(key)[1]: parse_certificate(body, where=key)
        for key, body in bodies.items()
        if body is not None
    }


def _signer(settings: Settings) -> Callable[[bytes], SealSignature] | None:
    text = settings.certificate_key.get_secret_value()
    if not text:
        return None
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(private_key(text))
    public_key = key.public_key().public_bytes_raw().hex()
    return lambda body: SealSignature(public_key=public_key, signature=key.sign(body).hex())
