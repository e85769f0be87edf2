"""One catalog of each type on a real server, all in the tests' one Spark session."""

import json
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from tests.catalogs.gate import CLIENT, CLIENT_SECRET, SCOPE, TOKEN, Gate, gate
from tests.catalogs.glue import glue
from tests.catalogs.postgres import PASSWORD, USER, postgres
from tidemark.settings import Settings
from tidemark.spark.conf import session_conf, session_secrets
from tidemark.stack.files import free_ports
from tidemark.stack.local import LocalStack
from tidemark.stack.rest_catalog import rest_catalog_uri, start_rest_catalog

Made = Callable[[str], Settings]
TYPES = ("postgres", "oauth", "glue")
WAYS = ("oauth", "token", "signed")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(scope="session")
def glue_url() -> Iterator[str]:
    with glue() as url:
        yield url


@pytest.fixture(scope="session")
def rest_gate(stack: LocalStack) -> Iterator[Gate]:
    (port,) = free_ports(1)
    server = start_rest_catalog(
        stack.processes,
        stack.folder / "rest",
        jars=stack.jars,
        log=stack.logs / "rest.log",
        port=port,
        settings=stack.settings,
    )
    with gate(rest_catalog_uri(port)) as made:
        yield made
    server.stop()


@pytest.fixture(scope="session")
def deployment(spark: SparkSession, settings: Settings, request: pytest.FixtureRequest) -> Made:
    """Settings of a deployment on one kind of catalog. The session knows the catalog, with its secrets."""

    def values(kind: str) -> dict[str, object]:
        if kind == "postgres":
            secret = {"jdbc.user": USER, "jdbc.password": PASSWORD}
            return {"catalog_uri": request.getfixturevalue("postgres_url"), "catalog_properties": secret}
        if kind == "glue":
            endpoint = {"glue.endpoint": request.getfixturevalue("glue_url")}
            return {"catalog_type": "glue", "catalog_uri": "", "catalog_properties": endpoint}
        passed: Gate = request.getfixturevalue("rest_gate")
        oauth = {"credential": f"{CLIENT}:{CLIENT_SECRET}", "oauth2-server-uri": f"{passed.url}/token", "scope": SCOPE}
        signed = {"rest.auth.type": "sigv4", "rest.signing-region": "eu-north-1", "rest.signing-name": "s3tables"}
        properties = {"oauth": oauth, "token": {"token": TOKEN}, "signed": signed}[kind]
        return {"catalog_type": "rest", "catalog_uri": passed.url, "catalog_properties": properties}

    def make(kind: str) -> Settings:
        own = {**values(kind), "catalog": f"on_{kind}", "namespace": f"catalogs_{kind}"}
        made = Settings.model_validate({**settings.model_dump(), **own})
        prefix = f"spark.sql.catalog.{made.catalog}"
        for name, text in {**session_conf(made), **session_secrets(made)}.items():
            if name.startswith(prefix):
                spark.conf.set(name, text)
        return made

    return make


def as_variables(made: Settings) -> dict[str, str]:
    """The catalog's settings as another process gets them."""
    properties = json.dumps(made.catalog_properties.get_secret_value())
    return {
        "TIDEMARK_CATALOG": made.catalog,
        "TIDEMARK_CATALOG_TYPE": made.catalog_type,
        "TIDEMARK_CATALOG_URI": str(made.catalog_uri),
        "TIDEMARK_CATALOG_PROPERTIES": properties,
        "TIDEMARK_NAMESPACE": made.namespace,
    }
