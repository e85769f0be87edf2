"""A catalog that can't be read is an explained error, of every type."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from sqlalchemy import create_engine

from tests.catalogs.gate import CLIENT, Gate, gate
from tests.catalogs.postgres import PASSWORD, USER
from tests.hung_server import hung_catalogs, hung_server
from tidemark.core.errors import ConfigError, ServiceError
from tidemark.settings import Settings
from tidemark.stack.files import free_ports
from tidemark.tables.catalogs import WORK, TimeLimit
from tidemark.tables.reader import load_table

SECRET = "planted-secret"  # noqa: S105 - no error may show it


def settings(**own: object) -> Settings:
    keys = {"s3_access_key": "k", "s3_secret_key": "k", "s3_endpoint": "http://127.0.0.1:1"}
    return Settings.model_validate({"kafka_bootstrap": "h:1", "bucket": "lake", **keys, **own})


def read(found: Settings, limit: TimeLimit = WORK) -> str:
    """The text of the ServiceError."""
    with pytest.raises(ServiceError) as caught:
        load_table(found, "table", limit)
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


@pytest.mark.conformance(64)
def test_a_catalog_that_does_not_answer_is_named_with_what_to_check(nobody: str) -> None:
    login = {"jdbc.user": USER, "jdbc.password": SECRET}
    types: dict[str, dict[str, object]] = {
        "jdbc": {"catalog_uri": f"jdbc:postgresql://{nobody}/lake", "catalog_properties": login},
        "rest": {"catalog_uri": f"http://{nobody}", "catalog_properties": {"token": SECRET}},
        "glue": {
            "catalog_properties": {"glue.endpoint": f"http://{nobody}", "glue.max-retries": "0"},
            "s3_secret_key": SECRET,
        },
        "hive": {"catalog_uri": f"thrift://{nobody}"},
        "nessie": {"catalog_uri": f"http://{nobody}/api/v2"},
    }
    for kind, own in types.items():
        found = read(settings(catalog_type=kind, **own))
        assert found.startswith("the catalog can't be read: expected its tables, found "), found
        address = f" at {own['catalog_uri']}" if "catalog_uri" in own else ""
        assert f"[{kind} catalog tidemark{address}]. Check TIDEMARK_CATALOG_URI and TIDEMARK_CATALOG" in found


@pytest.mark.conformance(64)
@pytest.mark.parametrize("kind", ["jdbc", "rest", "glue", "hive", "nessie"])
def test_a_catalog_that_accepts_connections_and_hangs_is_an_error_after_the_limit(kind: str) -> None:
    with hung_server() as server:
        own = hung_catalogs(server.address)[kind]
        found = read(settings(catalog_type=kind, **own), TimeLimit(connect_s=4, answer_s=1))
    assert found.startswith("the catalog does not answer: expected an answer within 1 s, found "), found
    address = f" at {own['catalog_uri']}" if "catalog_uri" in own else ""
    assert f"[{kind} catalog tidemark{address}]. Check TIDEMARK_CATALOG_URI" in found
    assert "and that the catalog runs" in found


@pytest.fixture
def closed_gate(nobody: str) -> Iterator[Gate]:
    with gate(f"http://{nobody}") as made:
        yield made


@pytest.mark.conformance(64)
def test_a_rest_catalog_that_refuses_us_says_what_it_said(closed_gate: Gate) -> None:
    oauth = {"credential": f"{CLIENT}:{SECRET}", "oauth2-server-uri": f"{closed_gate.url}/token"}
    refused = {"OAuthError: invalid_client: no such client": oauth, "UnauthorizedError: ": {"token": SECRET}}
    for message, properties in refused.items():
        found = read(settings(catalog_type="rest", catalog_uri=closed_gate.url, catalog_properties=properties))
        assert found.startswith(f"the catalog refuses the credentials: found {message}")
        assert "Check the credentials in TIDEMARK_CATALOG_PROPERTIES" in found


@contextmanager
def web_page() -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Welcome</html>")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_address_that_is_no_catalog_is_said() -> None:
    with web_page() as url:
        found = read(settings(catalog_type="rest", catalog_uri=url))
    assert found.startswith("the catalog's answer can't be understood: expected the configuration of an Iceberg REST")
    assert url in found


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch, nobody: str) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(ConfigError, match=r"a package for the catalog is missing: found .*psycopg2.*Install pyiceberg"):
        load_table(settings(catalog_uri=f"jdbc:postgresql://{nobody}/lake"), "table")
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.hive", None)
    with pytest.raises(ConfigError, match=r"a package .* is missing: found import of pyiceberg\.catalog\.hive"):
        load_table(settings(catalog_type="hive", catalog_uri=f"thrift://{nobody}"), "table")


@pytest.mark.services
def test_a_wrong_password_is_refused_and_not_shown(postgres_url: str) -> None:
    login = {"jdbc.user": USER, "jdbc.password": SECRET}
    found = read(settings(catalog_uri=postgres_url, catalog_properties=login))
    assert f'password authentication failed for user "{USER}"' in found


@pytest.mark.services
def test_a_statement_that_waits_for_a_lock_is_an_error_after_the_limit(postgres_url: str) -> None:
    login = {"jdbc.user": USER, "jdbc.password": PASSWORD}
    made = settings(catalog_uri=postgres_url, catalog_properties=login)
    assert load_table(made, "table") is None  # pyiceberg creates the catalog's own tables
    other = create_engine(made.iceberg.pyiceberg()["uri"])
    with closing(other.connect()) as connection:
        connection.exec_driver_sql("SET idle_in_transaction_session_timeout = '60s'; LOCK TABLE iceberg_tables")
        found = read(made, TimeLimit(connect_s=10, answer_s=1))
    assert found.startswith("the catalog does not answer: expected an answer within 1 s, found "), found
    other.dispose()
    assert "canceling statement due to statement timeout" in found
