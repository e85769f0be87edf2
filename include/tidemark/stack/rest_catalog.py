"""Iceberg's REST catalog for tests and local stacks: the adapter and servlet of Iceberg's own tests, in Jetty.

Jetty is configured here instead of by Iceberg's RESTCatalogServer, which listens on every address of the machine and
knows no TLS. It asks for no credentials. The catalog's data is in a SQLite file.
"""

import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen
from xml.sax.saxutils import escape

from tidemark.settings import Settings
from tidemark.spark.conf import spark_home, submit_environment
from tidemark.spark.s3_conf import file_io_properties
from tidemark.spark.trust import java_trust
from tidemark.stack.certificates import Certificate, key_store
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


def start_rest_catalog(
    processes: Processes,
    folder: Path,
    *,
    jars: Path,
    log: Path,
    port: int,
    settings: Settings,
    tls: Certificate | None = None,
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
        properties={"log4j2.configurationFile": str(logging), **java_trust(settings.s3_ca_bundle)},
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


def rest_catalog_uri(port: int, tls: Certificate | None = None) -> str:
    """The server's address for ``TIDEMARK_CATALOG_URI``."""
    return f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"


def _xml(folder: Path, port: int, settings: Settings, tls: Certificate | None) -> str:
    properties = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": settings.warehouse,
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        **file_io_properties(settings),
    }
    secure = "" if tls is None else _key_store(folder / "server.p12", tls)
    return _XML.format(tls=secure, port=port, properties=_entries(properties))


def _key_store(path: Path, tls: Certificate) -> str:
    """Jetty's TLS with the certificate as a PKCS #12 file, the form that it reads."""
    password = secrets.token_hex(20)
    write_private(path, key_store(tls, password))
    return _TLS.format(path=escape(str(path)), password=password)


def _entries(properties: Mapping[str, str]) -> str:
    return "".join(
        f"<Entry><Item>{escape(name)}</Item><Item>{escape(text)}</Item></Entry>" for name, text in properties.items()
    )


def _answers(uri: str, tls: Certificate | None) -> bool:
    context = None if tls is None else ssl.create_default_context(cafile=tls.ca)
    try:
        with urlopen(f"{uri}/v1/config", timeout=10, context=context) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
