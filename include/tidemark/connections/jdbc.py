"""A JDBC URL and its driver's properties as SQLAlchemy's URL, for a client in Python."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

# PostgreSQL's JDBC driver and libpq name the same things differently; these are the ones that they share.
_LIBPQ = {
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    "options": "options",
    "sslcert": "sslcert",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "gssEncMode": "gssencmode",
    "channelBinding": "channel_binding",
    "tcpKeepAlive": "keepalives",
}
_BOOLEANS = {"true": "1", "false": "0"}


def sqlalchemy_url(url: str, properties: Mapping[str, str]) -> str:
    """The URL for SQLite or PostgreSQL, with the password if there is one. Raises ValueError for what has no match.

    ``properties`` are those of the JDBC driver, such as ``user``; they override the URL's.
    """
    if url.startswith("jdbc:sqlite:"):
        return f"sqlite:///{url.removeprefix('jdbc:sqlite:')}"
    if not url.startswith("jdbc:postgresql://"):
        raise ValueError("expected jdbc:sqlite:PATH or jdbc:postgresql://HOST:PORT/DATABASE")
    parts = urlsplit(url.removeprefix("jdbc:"))
    given = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **properties}
    user, password = given.pop("user", None), given.pop("password", None)
    login = "" if user is None else quote(user, safe="")
    if password is not None:
        login += f":{quote(password, safe='')}"
    query = _query(given)
    if database := unquote(parts.path.removeprefix("/")):
        query.append(("dbname", database))
    hosts = parts.netloc
    if "," in hosts:  # the first one that answers
        query += [("host", host) for host in hosts.split(",")]
        hosts = ""
    return f"postgresql+psycopg2://{login}{'@' if login else ''}{hosts}/?{urlencode(query, quote_via=quote)}"


def _query(given: dict[str, str]) -> list[tuple[str, str]]:
    """The rest of the driver's properties in libpq's names."""
    found: list[tuple[str, str]] = []
    if given.pop("ssl", "false").lower() in ("true", "") and "sslmode" not in given:
        found.append(("sslmode", "verify-full"))
    if schema := given.pop("currentSchema", None):
        given["options"] = f"{given.get('options', '')} -c search_path={schema}".strip()
    for name, text in given.items():
        if name not in _LIBPQ:
            raise ValueError(
                f"{name}: pyiceberg's PostgreSQL driver has no such setting; set spark.jdbc.{name} in"
                " TIDEMARK_CATALOG_PROPERTIES for Spark alone, and pyiceberg.uri for pyiceberg's whole URL"
            )
        found.append((_LIBPQ[name], _BOOLEANS.get(text, text)))
    return found
