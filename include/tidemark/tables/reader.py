"""The tables as readers without Spark get them, through pyiceberg."""

import struct
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from tidemark.core.errors import FormatError, ServiceError
from tidemark.s3 import current_keys, path_style
from tidemark.settings import Settings
from tidemark.tables.file_io import CA_BUNDLE, S3_FILES

# Columns of the quarantine: the place of the record kept instead of a duplicate by key; null for a rejected one.
KEPT = ("kept_topic_id", "kept_partition", "kept_offset")
_WITHOUT_FILE = (
    "Restore it from a copy of the bucket. For a data file ('tidemark verify' names it), a run of its day with force"
    " publishes a new version without it; versions that have it stay unreadable"
)
# pyiceberg's errors for a damaged manifest, apart from EOFError: its decoder checks no length and no index.
_DAMAGED_AVRO = (LookupError, OverflowError, MemoryError, SystemError, struct.error, zlib.error)


@contextmanager
def pyiceberg_errors(name: str, file: str | None = None) -> Iterator[None]:
    """Explain pyiceberg's errors while a table, or a ``file`` of it, is read.

    Raises ServiceError if S3 refuses or does not answer, FormatError for a missing or damaged file.
    """
    try:
        yield
    except (OSError, EOFError, ValueError, *_DAMAGED_AVRO) as error:
        where = f"table {name}" if file is None else f"table {name}, {file}"
        # Arrow's OSError has these words for every failure of S3 except a missing object.
        if isinstance(error, PermissionError) or "AWS Error" in str(error):
            raise ServiceError("a table can't be read", expected="an answer of S3", found=error, where=where) from error
        found = error if file is None or file in str(error) else f"{error} in {file}"
        raise FormatError(
            "a table's file is missing or damaged", found=found, where=where, hint=_WITHOUT_FILE
        ) from error


def s3_properties(settings: Settings) -> dict[str, str]:
    """Pyiceberg's properties for reading files, with the keys of this moment: keys of a role last 15 minutes at least.

    Raises ServiceError if there are none, or the role is refused.
    """
    return {
        "s3.region": settings.s3_region,
        **current_keys(settings),
        **({"s3.endpoint": settings.s3_endpoint} if settings.s3_endpoint else {}),
        "s3.force-virtual-addressing": str(not path_style(settings)).lower(),
        **({"s3.proxy-uri": settings.s3_proxy} if settings.s3_proxy else {}),
        **({PY_IO_IMPL: S3_FILES, CA_BUNDLE: str(settings.s3_ca_bundle)} if settings.s3_ca_bundle else {}),
    }


@contextmanager
def open_catalog(settings: Settings) -> Iterator[Catalog]:
    """The catalog as pyiceberg's. Raises ServiceError if it fails."""
    # SQLAlchemy's form of the JDBC URL. A file's path is absolute, so another slash follows.
    uri = settings.catalog_uri.removeprefix("jdbc:").replace("sqlite:", "sqlite:///", 1)
    properties = {"uri": uri, "warehouse": settings.warehouse, **s3_properties(settings)}
    try:
        with closing(SqlCatalog(settings.catalog, **properties)) as catalog:
            yield catalog
    except SQLAlchemyError as error:
        raise ServiceError(
            "the catalog can't be read", expected="its tables", found=error, where=f"catalog {settings.catalog}"
        ) from error


def load_table(settings: Settings, name: str) -> Table | None:
    """A table of the catalog; None if it does not exist yet.

    Raises ServiceError if the catalog fails, and what ``pyiceberg_errors`` raises if the metadata can't be read.
    """
    try:
        with open_catalog(settings) as catalog, pyiceberg_errors(name):
            return catalog.load_table((settings.namespace, name))
    except NoSuchTableError:
        return None
