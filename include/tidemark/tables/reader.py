"""The tables as readers without Spark get them, through pyiceberg."""

import json
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError
from pydantic import ValidationError as PydanticError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.table import Table
from requests.exceptions import RequestException, Timeout
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from tidemark.connections.s3_hints import arrow_hint
from tidemark.core.errors import ConfigError, FormatError, ServiceError
from tidemark.s3 import current_keys, encryption_options, path_style
from tidemark.settings import Settings
from tidemark.tables.catalogs import WORK, TimeLimit, load_catalog
from tidemark.tables.file_io import CA_BUNDLE, ENCRYPTION, S3_FILES

# Columns of the quarantine: the place of the record kept instead of a duplicate by key; null for a rejected one.
KEPT = ("kept_topic_id", "kept_partition", "kept_offset")
_WITHOUT_FILE = (
    "Restore it from a copy of the bucket. For a data file ('tidemark verify' names it), a run of its day with force"
    " publishes a new version without it; versions that have it stay unreadable"
)
# pyiceberg's errors for a damaged manifest, apart from EOFError: its decoder checks no length and no index.
_DAMAGED_AVRO = (LookupError, OverflowError, MemoryError, SystemError, struct.error, zlib.error)

_IDENTITY = ("s3.region", "s3.access-key-id", "s3.secret-access-key", "s3.session-token")
_CATALOG_ERRORS = (SQLAlchemyError, RESTError, RequestException, BotoCoreError, ClientError)
_TIMEOUTS = (Timeout, ConnectTimeoutError, ReadTimeoutError)
# Of libpq, PostgreSQL and Thrift, which have no type of their own for it.
_TIMEOUT_TEXTS = ("timeout expired", "statement timeout", "read timeout")
_CATALOG_SETTINGS = "Check TIDEMARK_CATALOG_URI and TIDEMARK_CATALOG_PROPERTIES, and that the catalog runs"


@contextmanager
def pyiceberg_errors(name: str, file: str | None = None) -> Iterator[None]:
    """Explain pyiceberg's errors while a table, or a ``file`` of it, is read.

    Raises ServiceError if S3 refuses or does not answer, FormatError for a missing or damaged file.
    """
    try:
        yield
    except (RequestException, BotoCoreError):  # some are OSErrors, but of the catalog
        raise
    except (OSError, EOFError, ValueError, *_DAMAGED_AVRO) as error:
        where = f"table {name}" if file is None else f"table {name}, {file}"
        # Arrow's OSError has these words for every failure of S3 except a missing object.
        if isinstance(error, PermissionError) or "AWS Error" in str(error):
            raise ServiceError(
                "a table can't be read",
                expected="an answer of S3",
                found=error,
                where=where,
                hint=arrow_hint(str(error)),
            ) from error
        found = error if file is None or file in str(error) else f"{error} in {file}"
        raise FormatError(
            "a table's file is missing or damaged", found=found, where=where, hint=_WITHOUT_FILE
        ) from error


def s3_properties(settings: Settings) -> dict[str, str]:
    """Pyiceberg's properties for files, with the keys of this moment: keys of a role last 15 minutes at least.

    Raises ServiceError if there are none, or the role is refused.
    """
    return {
        "s3.region": settings.s3_region,
        **current_keys(settings),
        **({"s3.endpoint": settings.s3_endpoint} if settings.s3_endpoint else {}),
        "s3.force-virtual-addressing": str(not path_style(settings)).lower(),
        **({"s3.proxy-uri": settings.s3_proxy} if settings.s3_proxy else {}),
        PY_IO_IMPL: S3_FILES,
        ENCRYPTION: json.dumps(encryption_options(settings)),
        **({CA_BUNDLE: str(settings.s3_ca_bundle)} if settings.s3_ca_bundle else {}),
    }


@contextmanager
def open_catalog(settings: Settings, limit: TimeLimit = WORK) -> Iterator[Catalog]:
    """The catalog as pyiceberg's, from the settings alone. Raises as ``catalog_errors`` does."""
    files = s3_properties(settings)
    # Glue and signed REST requests use the identity for S3, unless the catalog's properties have another.
    identity = {f"client.{key.removeprefix('s3.')}": files[key] for key in _IDENTITY if key in files}
    properties = {**files, **identity, **settings.iceberg.pyiceberg()}
    with catalog_errors(settings, limit), closing(load_catalog(settings.catalog, properties, limit)) as catalog:
        yield catalog


def load_table(settings: Settings, name: str, limit: TimeLimit = WORK) -> Table | None:
    """A table of the catalog; None if it does not exist yet.

    Raises as ``open_catalog`` does, and as ``pyiceberg_errors`` if the metadata can't be read.
    """
    try:
        with open_catalog(settings, limit) as catalog, pyiceberg_errors(name):
            return catalog.load_table((settings.namespace, name))
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


@contextmanager
def catalog_errors(settings: Settings, limit: TimeLimit = WORK) -> Iterator[None]:
    """Explain the errors of a catalog of any type.

    Raises ConfigError if a package or property for it is missing or wrong, ServiceError if it refuses or does not
    answer.
    """
    address = f" at {settings.catalog_uri}" if settings.catalog_uri else ""
    where = f"{settings.catalog_type} catalog {settings.catalog}{address}"
    try:
        yield
    except (ImportError, NotInstalledError) as error:
        raise ConfigError(
            "a package for the catalog is missing",
            found=error.__cause__ or error,
            where=where,
            hint="Install pyiceberg's extra for this type of catalog",
        ) from error
    except (ArgumentError, NoSuchPropertyException) as error:
        raise ConfigError(
            "the catalog's settings are wrong", found=error, where=where, hint=_CATALOG_SETTINGS
        ) from error
    except (OAuthError, UnauthorizedError, ForbiddenError, AuthorizationExpiredError) as error:
        raise ServiceError(
            "the catalog refuses the credentials",
            found=f"{type(error).__name__}: {error}",
            where=where,
            hint="Check the credentials in TIDEMARK_CATALOG_PROPERTIES, and what they permit",
        ) from error
    except PydanticError as error:  # of the server's configuration
        raise ServiceError(
            "the catalog's answer can't be understood",
            expected="the configuration of an Iceberg REST catalog",
            found=error,
            where=settings.catalog_uri,
            hint=_CATALOG_SETTINGS,
        ) from error
    except _CATALOG_ERRORS as error:
        raise _unreadable(error, where, limit) from error
    except Exception as error:
        # Thrift is there only for Hive. Its errors have no type of their own in pyiceberg.
        if not type(error).__module__.startswith(("thrift.", "hive_metastore.")):
            raise
        raise _unreadable(error, where, limit) from error


def _unreadable(error: Exception, where: str, limit: TimeLimit) -> ServiceError:
    late = isinstance(error, _TIMEOUTS) or any(text in str(error) for text in _TIMEOUT_TEXTS)
    problem = "the catalog does not answer" if late else "the catalog can't be read"
    expected = f"an answer within {limit.answer_s:g} s" if late else "its tables"
    return ServiceError(problem, expected=expected, found=error, where=where, hint=_CATALOG_SETTINGS)
