"""Iceberg's REST catalog for tests and local stacks: the adapter and servlet of Iceberg's own tests, in Jetty.

Jetty is configured here instead of by Iceberg's RESTCatalogServer, which listens on every address of the machine and
knows no TLS. It asks for no credentials. The catalog's data is in a SQLite file.
"""

import os
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen
from xml.sax.saxutils import escape

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from tidemark.settings import Settings
from tidemark.spark.conf import spark_home, submit_environment
from tidemark.stack.files import write_private
from tidemark.stack.java import java_argv
from tidemark.stack.processes import Managed, Processes

READY_S = 60
# Beside Spark's jars, so that they are not fetched twice.
_OF_SPARK = ("iceberg-aws-bundle-*.jar", "sqlite-jdbc-*.jar")
_LOG4J = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""
_XML = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://jetty.org/configure_10_0.dtd">
<Configure class="org.eclipse.jetty.server.Server" id="server">
  <Call name="addConnector"><Arg><New class="org.eclipse.jetty.server.ServerConnector">
    <Arg name="server"><Ref refid="server"/></Arg>{tls}
    <Set name="host">127.0.0.1</Set>
    <Set name="port">{port}</Set>
  </New></Arg></Call>
  <Set name="handler"><New class="org.eclipse.jetty.ee10.servlet.ServletContextHandler">
    <Call name="addServlet">
      <Arg><New class="org.eclipse.jetty.ee10.servlet.ServletHolder">
        <Arg><New class="org.apache.iceberg.rest.RESTCatalogServlet">
          <Arg><New class="org.apache.iceberg.rest.RESTCatalogAdapter">
            <Arg><Call class="org.apache.iceberg.CatalogUtil" name="buildIcebergCatalog">
              <Arg>rest</Arg>
              <Arg><Map>{properties}</Map></Arg>
              <Arg><New class="org.apache.hadoop.conf.Configuration"/></Arg>
            </Call></Arg>
          </New></Arg>
        </New></Arg>
      </New></Arg>
      <Arg>/*</Arg>
    </Call>
  </New></Set>
</Configure>
"""
_TLS = """
    <Arg name="sslContextFactory"><New class="org.eclipse.jetty.util.ssl.SslContextFactory$Server">
      <Set name="keyStorePath">{path}</Set>
      <Set name="keyStorePassword">{password}</Set>
    </New></Arg>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """PEM files: a server's certificate and its key, and the authority that clients trust."""

    certificate: Path
    key: Path
    ca: Path


def start_rest_catalog(
    processes: Processes,
    folder: Path,
    *,
    jars: Path,
    log: Path,
    port: int,
    settings: Settings,
    tls: ServerTls | None = None,
) -> Managed:
    """Start the server on 127.0.0.1, with its data in ``folder`` and tables in the settings' warehouse.

    ``jars`` is the folder of all jars. ``rest_catalog_uri`` is what clients need.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config, logging = folder / "jetty.xml", folder / "log4j2.properties"
    write_private(config, _xml(folder, port, settings, tls))
    logging.write_text(_LOG4J, encoding="utf-8")
    argv = java_argv(
        jars / "catalog",
        "org.eclipse.jetty.xml.XmlConfiguration",
        str(config),
        heap="256m",
        properties={"log4j2.configurationFile": str(logging)},
        more=[*(path for name in _OF_SPARK for path in (jars / "spark").glob(name)), spark_home() / "jars" / "*"],
    )
    return processes.start(
        "rest-catalog",
        argv,
        env=submit_environment(settings),
        ready=lambda: _answers(rest_catalog_uri(port, tls), tls),
        timeout_s=READY_S,
        log=log,
        cwd=folder,
        essential=True,
    )


def rest_catalog_uri(port: int, tls: ServerTls | None = None) -> str:
    """The server's address for ``TIDEMARK_CATALOG_URI``."""
    return f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"


def _xml(folder: Path, port: int, settings: Settings, tls: ServerTls | None) -> str:
    properties = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": settings.warehouse,
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": settings.s3_region,
        **({"s3.endpoint": settings.s3_endpoint, "s3.path-style-access": "true"} if settings.s3_endpoint else {}),
    }
    secure = "" if tls is None else _key_store(folder / "server.p12", tls)
    return _XML.format(tls=secure, port=port, properties=_entries(properties))


def _key_store(path: Path, tls: ServerTls) -> str:
    """Jetty's TLS with the certificate as a PKCS #12 file, the form that it reads."""
    password = secrets.token_hex(20)
    certificate = load_pem_x509_certificate(tls.certificate.read_bytes())
    key = load_pem_private_key(tls.key.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    store = serialize_key_and_certificates(
        b"server", key, certificate, None, BestAvailableEncryption(password.encode())
    )
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(store)
    return _TLS.format(path=escape(str(path)), password=password)


def _entries(properties: Mapping[str, str]) -> str:
    return "".join(
        f"<Entry><Item>{escape(name)}</Item><Item>{escape(text)}</Item></Entry>" for name, text in properties.items()
    )


def _answers(uri: str, tls: ServerTls | None) -> bool:
    context = None if tls is None else ssl.create_default_context(cafile=tls.ca)
    try:
        with urlopen(f"{uri}/v1/config", timeout=10, context=context) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
