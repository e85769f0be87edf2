"""The local stack's REST catalog over TLS."""

import socket
from pathlib import Path

import psutil
import pytest

from tidemark.core.errors import ServiceError
from tidemark.installation import PROJECT
from tidemark.settings import Settings
from tidemark.stack.certificates import server_certificate
from tidemark.stack.files import free_ports
from tidemark.stack.processes import Processes
from tidemark.stack.rest_catalog import rest_catalog_uri, start_rest_catalog
from tidemark.tables.reader import load_table


@pytest.mark.services
@pytest.mark.conformance(61)
def test_clients_that_trust_its_authority_reach_it_on_this_machine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # they win over pyiceberg's setting
        monkeypatch.delenv(name, raising=False)
    tls = server_certificate(tmp_path / "tls")
    (port,) = free_ports(1)
    known = {"kafka_bootstrap": "h:1", "bucket": "lake", "s3_access_key": "k", "s3_secret_key": "planted-s3-key"}
    rest = {"catalog_type": "rest", "catalog_uri": rest_catalog_uri(port, tls)}
    trusting = {"catalog_properties": {"pyiceberg.ssl.cabundle": str(tls.ca)}}
    settings = Settings.model_validate({**known, **rest, "s3_endpoint": "http://127.0.0.1:1"})
    processes, folder, log = Processes(), tmp_path / "catalog", tmp_path / "catalog.log"
    try:
        server = start_rest_catalog(
            processes, folder, jars=PROJECT / ".tidemark" / "jars", log=log, port=port, settings=settings, tls=tls
        )
        assert load_table(settings.model_validate({**settings.model_dump(), **trusting}), "table") is None
        with pytest.raises(ServiceError, match=r"the catalog can't be read.*certificate verify failed"):
            load_table(settings, "table")
        listening = [item.laddr for item in psutil.Process(server.pid).net_connections() if item.status == "LISTEN"]
        assert {
            (socket.inet_pton(socket.AF_INET, item.ip.removeprefix("::ffff:")), item.port) for item in listening
        } == {(socket.inet_aton("127.0.0.1"), port)}
    finally:
        processes.stop()
    assert "planted-s3-key" not in "".join(path.read_text(errors="replace") for path in (log, *folder.iterdir()))
    modes = {path.name: path.stat().st_mode & 0o77 for path in folder.iterdir()}
    assert (modes["server.p12"], modes["jetty.xml"]) == (0, 0)
