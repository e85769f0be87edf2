"""One mapping of a catalog's properties, for Spark and for pyiceberg (no server)."""

from typing import Any

import pytest
from sqlalchemy import make_url

from tidemark.connections.catalog import CatalogConnection, CatalogType, checked_uri
from tidemark.connections.jdbc import sqlalchemy_url
from tidemark.connections.shown import has_login, is_open_address, open_address, shown

WAREHOUSE = "s3://lake/warehouse"
URIS: dict[CatalogType, str] = {
    "jdbc": "jdbc:postgresql://db:5432/iceberg",
    "rest": "https://catalog.example.com/ws",
    "glue": "",
    "hive": "thrift://metastore:9083",
    "nessie": "https://nessie:19120/api/v2",
}
# What Spark always gets, beside type, address and warehouse.
OURS = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "cache-enabled": "false"}


def sides(kind: CatalogType, properties: dict[str, str], uri: str = "") -> tuple[dict[str, str], dict[str, Any]]:
    """Both sides' properties, without Spark's constant ones."""
    made = CatalogConnection(kind, uri or URIS[kind], WAREHOUSE, properties).checked()
    java = made.spark()
    assert {name: java.pop(name) for name in OURS} == OURS
    assert java.pop("type") == kind
    assert java.pop("uri", "") == properties.get("spark.uri", made.uri)
    return java, made.pyiceberg()


def test_each_type_needs_no_property() -> None:
    placed = {"warehouse": WAREHOUSE}
    postgres = "postgresql+psycopg2://db:5432/?dbname=iceberg"
    assert {kind: sides(kind, {}) for kind in URIS} == {
        "jdbc": ({**placed, "jdbc.schema-version": "V1"}, {**placed, "type": "sql", "uri": postgres}),
        "rest": ({}, {"type": "rest", "uri": URIS["rest"]}),
        "glue": (placed, {**placed, "type": "glue"}),
        "hive": (placed, {**placed, "type": "hive", "uri": URIS["hive"]}),
        "nessie": (placed, {"type": "rest", "uri": "https://nessie:19120/iceberg/main"}),
    }


SHARED = {
    "warehouse": "prod",
    "credential": "id:secret",
    "oauth2-server-uri": "https://idp/token",
    "scope": "a b",
    "audience": "api",
    "resource": "r",
    "token": "t",
    "header.X-Tenant": "7",
    "rest.sigv4-enabled": "true",
    "rest.signing-region": "eu-north-1",
    "rest.signing-name": "s3tables",
    "prefix": "p",
    "client.region": "eu-north-1",
    "s3.remote-signing-enabled": "true",
}


def test_names_that_both_libraries_know_are_passed_as_they_are() -> None:
    assert sides("rest", SHARED) == (SHARED, {**SHARED, "type": "rest", "uri": URIS["rest"]})
    glue = {"glue.id": "123456789012", "glue.endpoint": "http://h:1", "glue.skip-archive": "false"}
    java, python = sides("glue", glue)
    assert java == {"warehouse": WAREHOUSE, **glue}
    assert python == {"warehouse": WAREHOUSE, **glue, "type": "glue"}
    assert sides("glue", {"glue.max-retries": "3"})[1]["glue.max-retries"] == 3  # boto3 wants a number


@pytest.mark.parametrize(
    ("kind", "given", "python"),
    [
        ("rest", {"rest.auth.type": "sigv4"}, {"rest.sigv4-enabled": "true"}),
        ("rest", {"rest.auth.type": "OAuth2"}, {}),
        ("rest", {"rest.auth.type": "none"}, {"auth": {"type": "noop"}}),
        (
            "rest",
            {"rest.auth.type": "basic", "rest.auth.basic.username": "u", "rest.auth.basic.password": "p"},
            {"auth": {"type": "basic", "basic": {"username": "u", "password": "p"}}},
        ),
        (
            "rest",
            {"rest.access-key-id": "A", "rest.secret-access-key": "S", "rest.session-token": "T"},
            {"client.access-key-id": "A", "client.secret-access-key": "S", "client.session-token": "T"},
        ),
        ("nessie", {"authentication.type": "NONE"}, {}),
        ("nessie", {"authentication.type": "BEARER", "authentication.token": "t"}, {"token": "t"}),
        (
            "nessie",
            {
                "authentication.type": "OAUTH2",
                "authentication.oauth2.token-endpoint": "https://idp/token",
                "authentication.oauth2.client-id": "i",
                "authentication.oauth2.client-secret": "s",
                "authentication.oauth2.client-scopes": "catalog",
            },
            {"credential": "i:s", "oauth2-server-uri": "https://idp/token", "scope": "catalog"},
        ),
        ("nessie", {"ref": "release/1"}, {"uri": "https://nessie:19120/iceberg/release%2F1"}),
    ],
)
def test_iceberg_s_names_are_translated_for_pyiceberg(
    kind: CatalogType, given: dict[str, str], python: dict[str, Any]
) -> None:
    bare_java, bare_python = sides(kind, {})
    assert sides(kind, given) == ({**bare_java, **given}, {**bare_python, **python})


def test_a_name_with_a_side_is_for_that_side_only_and_overrides() -> None:
    given = {
        "scope": "both",
        "spark.scope": "java",
        "pyiceberg.scope": "python",
        "spark.rest.auth.type": "google",
        "pyiceberg.auth.type": "google",
        "pyiceberg.auth.google.credentials_path": "/key.json",
        "pyiceberg.ssl.cabundle": "/ca.pem",
        "uri": "https://from-a-connection",
        "spark.uri": "https://inner",
        "pyiceberg.uri": "https://other",
    }
    assert sides("rest", given) == (
        {"scope": "java", "rest.auth.type": "google"},
        {
            "scope": "python",
            "auth": {"type": "google", "google": {"credentials_path": "/key.json"}},
            "ssl": {"cabundle": "/ca.pem"},
            "uri": "https://other",
            "type": "rest",
        },
    )


def test_pyiceberg_may_have_an_address_of_its_own_where_none_can_be_derived() -> None:
    own = {"pyiceberg.uri": "https://n/iceberg/main"}
    assert sides("nessie", own, "https://n/through/a/proxy")[1] == {"type": "rest", "uri": "https://n/iceberg/main"}
    own = {"jdbc.loginTimeout": "5", "pyiceberg.uri": "postgresql+psycopg2://db/x"}
    assert sides("jdbc", own)[1] == {"type": "sql", "uri": own["pyiceberg.uri"], "warehouse": WAREHOUSE}


@pytest.mark.parametrize(
    ("kind", "uri", "properties", "message"),
    [
        ("rest", "", {"type": "hive"}, "type: set TIDEMARK_CATALOG_TYPE"),
        ("rest", "", {"pyiceberg.type": "hive"}, "pyiceberg.type: set TIDEMARK_CATALOG_TYPE"),
        ("rest", "", {"io-impl": "x"}, "io-impl: leave it out"),
        ("rest", "", {"spark.cache-enabled": "true"}, "cache-enabled: leave it out: every reader must see"),
        ("rest", "", {"rest.auth.type": "google"}, "pyiceberg has no 'google'; set spark.rest.auth.type and pyiceberg"),
        ("glue", "", {"glue.region": "r"}, "glue.region: Spark does not know it; use client.region"),
        ("glue", "", {"glue.access-key-id": "r"}, "use the S3 identity, or pyiceberg.glue.access-key-id"),
        ("nessie", "https://n", {}, "end in /api/v2; or set pyiceberg.uri"),
        ("nessie", "", {"authentication.type": "AWS"}, "pyiceberg has no AWS; set spark.authentication.type"),
        ("nessie", "", {"authentication.type": "oauth2"}, "authentication.oauth2.token-endpoint: pyiceberg needs it"),
        ("jdbc", "", {"jdbc.loginTimeout": "5"}, "loginTimeout: pyiceberg's PostgreSQL driver has no such setting"),
    ],
)
def test_what_one_side_could_not_use_is_refused_with_the_way_out(
    kind: CatalogType, uri: str, properties: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sides(kind, properties, uri)


@pytest.mark.parametrize(
    ("url", "properties", "host", "query"),
    [
        ("//h:1/db", {}, "h", {"dbname": "db"}),
        ("//h/db?sslmode=require", {}, "h", {"dbname": "db", "sslmode": "require"}),
        ("//h/db?ssl=true&sslrootcert=/ca", {}, "h", {"dbname": "db", "sslmode": "verify-full", "sslrootcert": "/ca"}),
        ("//h/db?ssl=true&sslmode=require", {}, "h", {"dbname": "db", "sslmode": "require"}),
        ("//h/a%20b", {}, "h", {"dbname": "a b"}),
        ("//h/", {}, "h", {}),
        ("//h1:1,h2/db", {}, None, {"dbname": "db", "host": ("h1:1", "h2")}),
        ("//h/db", {"connectTimeout": "5", "tcpKeepAlive": "true", "ApplicationName": "t"}, "h", {
            "dbname": "db", "connect_timeout": "5", "keepalives": "1", "application_name": "t"}),
        ("//h/db?currentSchema=ice", {}, "h", {"dbname": "db", "options": "-c search_path=ice"}),
    ],
)  # fmt: skip
def test_a_jdbc_url_of_postgresql_is_sqlalchemy_s_for_the_same_server(
    url: str, properties: dict[str, str], host: str | None, query: dict[str, Any]
) -> None:
    found = make_url(sqlalchemy_url(f"jdbc:postgresql:{url}", properties))
    assert (found.drivername, found.host, dict(found.query)) == ("postgresql+psycopg2", host, query)


def test_user_and_password_of_a_jdbc_catalog_reach_both_sides() -> None:
    login = {"jdbc.user": "a@b", "jdbc.password": "p@s:/w%r d"}
    java, python = sides("jdbc", login)
    assert {name: java[name] for name in login} == login
    found = make_url(python["uri"])
    assert (found.username, found.password, found.host, found.port) == ("a@b", "p@s:/w%r d", "db", 5432)
    assert not [name for name in python if name.startswith("jdbc.")]


@pytest.mark.parametrize("path", ["/data/catalog.db", "catalog.db", "/a b/c.db"])
def test_a_jdbc_url_of_sqlite_is_sqlalchemy_s_for_the_same_file(path: str) -> None:
    assert make_url(sqlalchemy_url(f"jdbc:sqlite:{path}", {})).database == path


@pytest.mark.parametrize(
    ("kind", "uri", "message"),
    [
        (
            "jdbc",
            "",
            "a catalog of type jdbc needs it, such as jdbc:sqlite:PATH or jdbc:postgresql://HOST:PORT/DATABASE",
        ),
        ("jdbc", "postgresql://h/db", "expected jdbc:sqlite:PATH or jdbc:postgresql://.*found 'postgresql://h/db'"),
        ("jdbc", "jdbc:mysql://h/db", "found 'jdbc:mysql://h/db'"),
        ("jdbc", "jdbc:postgresql:db", "found 'jdbc:postgresql:db'"),
        ("jdbc", "jdbc:postgresql://h/db?user=u&password=p", "it may have a password.*in a property of its own"),
        ("jdbc", "jdbc:postgresql://u:p@h/db", "it may have a password"),
        ("jdbc", "jdbc:postgresql://u:p/q@h/db", "it may have a password"),
        ("jdbc", "jdbc:oracle:thin:u/p@h:1521:x", "it may have a password"),
        ("jdbc", "jdbc:sqlserver://h;user=u;password=p@", "it may have a password"),
        ("rest", "https://h/v1?access_token=p@", "it may have a password"),
        ("rest", "https://h/v1?sig=p%40", "it may have a password"),
        ("rest", "", "missing; a catalog of type rest needs it, such as https://HOST, here or as uri in TIDEMARK_CAT"),
        ("rest", "catalog.example.com", "expected https://HOST for a rest catalog"),
        ("rest", "https://u:p@catalog", "it may have a password"),
        ("rest", "https://u:p/q?r@catalog", "it may have a password"),
        ("glue", "https://glue", 'a glue catalog has none.*set "glue.endpoint"'),
        ("hive", "", "a catalog of type hive needs it, such as thrift://HOST:PORT"),
        ("hive", "http://h", "expected thrift://"),
        ("nessie", "", "such as https://HOST/api/v2"),
    ],
)
def test_an_address_that_does_not_fit_the_type_is_refused(kind: CatalogType, uri: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        checked_uri(kind, uri)
    assert [part for part in ("p@", "p/q", "p%40") if part in str(caught.value)] == []


@pytest.mark.conformance(29)
def test_an_address_is_open_only_without_login_and_with_listed_parameters() -> None:
    open_ones = """h1:1,h2:2 SASL_SSL://b:9093 https://h/a jdbc:sqlite:/a@b/c#1;x.db
        jdbc:postgresql://h/db?user=u&sslmode=require jdbc:postgresql://h/db?ssl
        jdbc:postgresql://h/db?prepareThreshold=0 https://h/token?realm=x"""
    closed = """https://u:p/q@h https://u@h u:p@h:9092 //:p@h https://h?x=1 https://h/#token=p https://h;jwt=p
        https://h?p jdbc:postgresql://h/db?user=u&pwd=p jdbc:postgresql://h/db?sslmode=require&p
        jdbc:sqlite:/c.db?cipher_key=p jdbc:postgresql://h/db?USER=u&Password=p"""
    assert [text for text in open_ones.split() if not is_open_address(text)] == []
    assert [text for text in closed.split() if is_open_address(text)] == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("https://h/t?tenant=a&sig=planted", "the parameter 'sig' is not on the list"),
        ("https://h/t?planted", "a parameter is not on the list"),
        ("https://h/t#plan%ted=x", "a parameter is not on the list"),
        ("https://u:planted@h?x=1", "an '@'"),
    ],
)
def test_an_error_about_an_address_names_the_refused_part_and_shows_no_value(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=r"^it may have a password: ") as caught:
        open_address(text)
    assert part in str(caught.value)
    assert "plan" not in str(caught.value)


@pytest.mark.parametrize("text", ["http://u:a/b@h", "-Durl=jdbc:x://u:p@h -Dy", "x?accessToken=p", "x;password=p"])
def test_a_login_in_another_text_is_noticed(text: str) -> None:
    assert has_login(text)


@pytest.mark.parametrize("text", ["s3://lake/tables@v1", "me@h", "https://h:1/a#b", "a: b@c", "https://h/?tokens"])
def test_what_only_resembles_a_login_is_accepted(text: str) -> None:
    assert not has_login(text)


def test_addresses_that_fit_are_kept() -> None:
    assert {kind: checked_uri(kind, uri) for kind, uri in URIS.items()} == URIS
    assert checked_uri("jdbc", "jdbc:sqlite:c.db") == "jdbc:sqlite:c.db"


HIDDEN = """credential token jdbc.password rest.auth.basic.password rest.secret-access-key rest.access-key-id
    rest.session-token header.Authorization header.X-Tenant authentication.token authentication.oauth2.client-secret
    client.secret-access-key s3.access-key-id s3.session-token jdbc.sslpassword s3.sse.key private-key client-key
    jdbc.pwd jwt sas cookie adls.sas-token ssl.client.key pyiceberg.uri spark.jdbc.pwd sasl.password
    sasl.oauthbearer.client.secret ssl.key.password ssl.keystore.password ssl.key.pem java.sasl.jaas.config
    librdkafka.anything.new a.name.nobody.has.thought.of warehouse2 xwarehouse uri.x"""
SHOWN = """warehouse scope oauth2-server-uri client.region jdbc.user glue.id rest.signing-name prefix
    client.credentials-provider token-refresh-enabled token-exchange-enabled authentication.oauth2.token-endpoint uri
    spark.uri spark.scope pyiceberg.auth.type jdbc.currentSchema security.protocol java.security.protocol
    sasl.oauthbearer.token.endpoint.url table-default.write.format.default s3.threads metadata.broker.list"""


@pytest.mark.conformance(29)
def test_a_property_is_shown_only_if_its_name_is_on_the_list() -> None:
    assert [name for name in HIDDEN.split() if shown(name)] == []
    assert [name for name in SHOWN.split() if not shown(name)] == []


def test_the_text_of_a_connection_shows_no_property() -> None:
    made = CatalogConnection("rest", "https://h", WAREHOUSE, {"token": "planted", "scope": "planted"})
    assert "planted" not in f"{made} {made!r}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("token", "planted\n"),
        ("spark.credential", "id:plan\r\nted"),
        ("header.X-Key", " planted"),
        ("spark.uri", "https://user:planted@h"),
        ("spark.uri", "https://user:plan/planted@h"),
        ("warehouse", "user:planted@h"),
        ("s3.endpoint", "https://h/?sig=planted"),
        ("oauth2-server-uri", "https://h/token?client_secret=planted"),
    ],
)
def test_a_secret_that_clients_would_show_is_refused_by_its_name(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: it (has|may have) a ") as caught:
        CatalogConnection("rest", "https://h", WAREHOUSE, {name: text}).checked()
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize("name", ["token", "spark.token", "authentication.token", "rest.session-token", "header.X-Key"])
def test_a_token_with_a_character_beyond_latin_1_is_refused_with_its_place(name: str) -> None:
    CatalogConnection("rest", "https://h", WAREHOUSE, {name: "plan\u00fcted"}).checked()
    with pytest.raises(ValueError, match=f"^{name}: character 5 of 8 is not in Latin-1") as caught:
        CatalogConnection("rest", "https://h", WAREHOUSE, {name: "plan\u2026ted"}).checked()
    assert "ted" not in str(caught.value)


def test_a_password_may_have_any_character() -> None:
    login = {"jdbc.user": "u", "jdbc.password": "pl\u2026"}
    made = CatalogConnection("jdbc", URIS["jdbc"], WAREHOUSE, login).checked()
    assert make_url(made.pyiceberg()["uri"]).password == login["jdbc.password"]


PEM_TEXT = "-----BEGIN PRIVATE KEY-----\nplanted\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize("text", [PEM_TEXT, f"Bag Attributes\n{PEM_TEXT}", '{\n"private_key": "planted"\n}'])
def test_a_key_in_a_files_text_may_have_line_breaks(text: str) -> None:
    made = CatalogConnection("rest", "https://h", WAREHOUSE, {"private-key": text}).checked()
    assert made.spark()["private-key"] == text


@pytest.mark.parametrize("name", ["my/pass", "vault:key", "a b", "", "a\nb"])
def test_a_name_that_spark_would_not_hide_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a property's name may contain only letters, digits"):
        CatalogConnection("rest", "https://h", WAREHOUSE, {name: "planted"}).checked()


def test_pyiceberg_alone_may_have_a_password_in_its_url() -> None:
    given = {"pyiceberg.uri": "postgresql+psycopg2://user:planted@h/db"}
    made = CatalogConnection("jdbc", "jdbc:postgresql://h/db", WAREHOUSE, given).checked()
    assert (made.pyiceberg()["uri"], "planted" in str(made.spark())) == (given["pyiceberg.uri"], False)
