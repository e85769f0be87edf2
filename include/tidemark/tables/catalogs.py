"""pyiceberg's catalogs, with a time limit for each answer. Without one, a hanging server blocks the caller."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import botocore.session
from botocore.config import Config
from pyiceberg.catalog import AVAILABLE_CATALOGS, URI, Catalog, CatalogType
from pyiceberg.catalog.rest import RestCatalog
from requests import Session
from sqlalchemy import event
from sqlalchemy.dialects import plugins
from sqlalchemy.engine import URL, CreateEnginePlugin, Engine, make_url


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """How long to wait for a connection, and for each answer."""

    connect_s: float
    answer_s: float


# The same as S3's clients have: see ``s3_client`` and ``require_s3``.
WORK = TimeLimit(connect_s=10, answer_s=60)
QUESTION = TimeLimit(connect_s=4, answer_s=4)  # of somebody who waits for a page or a command

_LIBPQ = {"psycopg2", "psycopg"}
_PLUGIN, _STATEMENT_MS = "tidemark_statement_limit", "statement_limit_ms"


def load_catalog(name: str, properties: dict[str, Any], limit: TimeLimit) -> Catalog:
    """A catalog of the properties' ``type``. A connection limit in the properties has priority."""
    # Not pyiceberg's load_catalog, which would add its own file and variables: Spark knows nothing of them.
    limited = {**properties}
    kind = CatalogType(limited.pop("type"))
    if limit == QUESTION:  # pyiceberg would try it eleven times
        limited = {"rest.sigv4.max-retries": "0", "glue.max-retries": 1, **limited}
    if kind == CatalogType.REST:
        return _RestCatalog(name, limit, **limited)
    if kind == CatalogType.SQL:
        limited[URI] = _limited_url(limited[URI], limit)
    elif kind == CatalogType.GLUE:
        limited["botocore_session"] = _limited_session(limit)
    catalog = AVAILABLE_CATALOGS[kind](name, limited)
    if kind == CatalogType.HIVE:
        _limit_hive(catalog, limit)
    return catalog


class _RestCatalog(RestCatalog):
    def __init__(self, name: str, limit: TimeLimit, **properties: Any) -> None:
        self._limit = limit
        super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        """Called by pyiceberg for each new session before any request. It has no setting for the limit."""
        super()._config_headers(session)
        limited = partial(session.request, timeout=(self._limit.connect_s, self._limit.answer_s))
        session.request = limited  # type: ignore[method-assign]


def _limited_url(url: str, limit: TimeLimit) -> str:
    """SQLAlchemy's URL. SQLite has a limit of its own."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql" or parsed.get_driver_name() not in _LIBPQ:
        return url
    limits = {
        # If pyiceberg can't connect, it takes that for a missing table, and connects once more to create it.
        "connect_timeout": f"{limit.connect_s / 2:.0f}",
        # For a server whose machine or network is down: without these, an open connection waits for hours.
        "keepalives_idle": f"{limit.connect_s:.0f}",
        "tcp_user_timeout": f"{limit.answer_s * 1000:.0f}",
    }
    own = {key: text for key, text in limits.items() if key not in parsed.query}
    limited = parsed.update_query_dict({**own, _STATEMENT_MS: f"{limit.answer_s * 1000:.0f}"})
    return limited.update_query_dict({"plugin": _PLUGIN}, append=True).render_as_string(hide_password=False)


class StatementLimit(CreateEnginePlugin):
    """The time limit for each statement of a PostgreSQL connection, as for one that waits for another's lock.

    Not ``options`` in the URL: PgBouncer refuses a connection that has them.
    """

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        super().__init__(url, kwargs)
        self._set = f"SET LOCAL statement_timeout = {int(str(url.query[_STATEMENT_MS]))}"

    def update_url(self, url: URL) -> URL:
        return url.difference_update_query([_STATEMENT_MS])

    def engine_created(self, engine: Engine) -> None:
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(self._set))


plugins.register(_PLUGIN, __name__, StatementLimit.__name__)


def _limited_session(limit: TimeLimit) -> botocore.session.Session:
    session = botocore.session.Session()
    session.set_default_client_config(Config(connect_timeout=limit.connect_s, read_timeout=limit.answer_s))
    return session


def _limit_hive(catalog: Any, limit: TimeLimit) -> None:
    """Limit the socket that pyiceberg opens for each question. It has no setting for that."""
    client = catalog._client  # noqa: SLF001  # pyiceberg's
    unlimited = client._init_thrift_transport  # noqa: SLF001  # pyiceberg's

    def limited() -> Any:
        found = unlimited()
        buffered = not hasattr(found, "transport")
        socket = found._TBufferedTransport__trans if buffered else found.transport  # noqa: SLF001  # pyiceberg's
        socket.setTimeout(limit.answer_s * 1000)
        return found

    client._init_thrift_transport, client._transport = limited, limited()  # noqa: SLF001  # pyiceberg's
