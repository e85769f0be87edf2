"""Certificates of the local stack's own authority, as OpenSSL reads them."""

import socket
import ssl
import stat
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest

from tidemark.stack import certificates
from tidemark.stack.certificates import Certificate, client_certificate, server_certificate


def handshake(server: Certificate, client: Certificate, *, host: str, trusts: Path) -> str:
    """Connect with TLS, each side with its certificate. Returns the client's name as the server sees it."""
    accepts = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=server.ca)
    accepts.verify_mode = ssl.CERT_REQUIRED
    accepts.load_cert_chain(server.certificate, server.key)
    connects = ssl.create_default_context(cafile=trusts)
    connects.verify_flags |= ssl.VERIFY_X509_STRICT
    connects.load_cert_chain(client.store)
    names: list[str] = []

    def serve(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        try:
            with accepts.wrap_socket(accepted, server_side=True) as secured:
                subject = secured.getpeercert()["subject"]  # type: ignore[index]
                names.append(subject[0][0][1])
                secured.sendall(b"x")
        except (ssl.SSLError, ConnectionError):
            accepted.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, args=(listener,))
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname()) as plain,
                connects.wrap_socket(plain, server_hostname=host) as secured,
            ):
                assert secured.recv(1) == b"x"
        finally:
            thread.join()
    return names[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_and_a_client_of_one_folder_trust_each_other(tmp_path: Path, host: str) -> None:
    server, client = server_certificate(tmp_path), client_certificate(tmp_path, "archive")
    assert handshake(server, client, host=host, trusts=client.ca) == "archive"


def test_a_client_refuses_another_host_and_another_authority(tmp_path: Path) -> None:
    server, client = server_certificate(tmp_path), client_certificate(tmp_path, "archive")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, client, host="example.org", trusts=client.ca)
    other = server_certificate(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        handshake(server, client, host="localhost", trusts=other.ca)


def test_only_the_owner_can_read_the_files_and_a_restart_keeps_them(tmp_path: Path) -> None:
    def texts() -> dict[str, str]:
        server_certificate(tmp_path)
        client_certificate(tmp_path, "archive")
        return {path.name: path.read_text(encoding="ascii") for path in tmp_path.iterdir()}

    first = texts()
    assert texts() == first
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert "BEGIN PRIVATE KEY" in first["server.key"]  # PKCS#8, which Java reads
    assert first["server.store.pem"] == first["server.key"] + first["server.pem"] + first["ca.pem"]


def test_what_is_about_to_expire_or_is_broken_gets_a_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "LIFE", timedelta(days=29))
        server = server_certificate(tmp_path)
    old = {path: path.read_text(encoding="ascii") for path in (server.ca, server.certificate, server.key)}
    assert server_certificate(tmp_path) == server
    assert [path for path, text in old.items() if path.read_text(encoding="ascii") == text] == []
    server.key.write_text("broken", encoding="ascii")
    client = client_certificate(tmp_path, "archive")
    assert handshake(server_certificate(tmp_path), client, host="localhost", trusts=client.ca) == "archive"
