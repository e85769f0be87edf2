"""The tables as readers without Spark see them, through pyiceberg."""

import struct
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from tidemark.core.errors import FormatError, ServiceError
from tidemark.settings import Settings

# In the quarantine the place of the record that stands for a duplicate by key; null for a rejected one.
KEPT = ("kept_topic_id", "kept_partition", "kept_offset")
_WITHOUT_FILE = (
    "Put it back from a copy of the bucket. Where it is a data file ('tidemark verify' names it), a run of its day with"
    " force gives readers a new version without it; versions that have it stay unreadable"
)
# How pyiceberg's decoder ends on a damaged manifest, beside an EOFError: it takes every length and index as it comes.
_DAMAGED_AVRO = (LookupError, OverflowError, MemoryError, SystemError, struct.error, zlib.error)


@contextmanager
def told_by_pyiceberg(name: str, file: str | None = None) -> Iterator[None]:
    """Explain what pyiceberg passes on as it found it, while a table is read, or a ``file`` of it, which is named.

    Raises ServiceError where S3 refuses or does not answer, FormatError for a file that is gone or damaged.
    """
    try:
        yield
    except (OSError, EOFError, ValueError, *_DAMAGED_AVRO) as error:
        where = f"table {name}" if file is None else f"table {name}, {file}"
        # Arrow tells of all that S3 answered as an OSError in these words, but of an object that is not there.
        if isinstance(error, PermissionError) or "AWS Error" in str(error):
            raise ServiceError("a table can't be read", expected="an answer of S3", found=error, where=where) from error
        found = error if file is None or file in str(error) else f"{error} in {file}"
        raise FormatError("a table's file is gone or damaged", found=found, where=where, hint=_WITHOUT_FILE) from error


def load_table(settings: Settings, name: str) -> Table | None:
    """A table of the catalog as it is now, by its stream's name for it; None where there is none yet.

    Raises ServiceError where the catalog fails, and what ``told_by_pyiceberg`` does where the metadata can't be read.
    """
    # SQLAlchemy's form of the JDBC URL: a file's path is absolute, so it has a slash of its own.
    uri = settings.catalog_uri.removeprefix("jdbc:").replace("sqlite:", "sqlite:///", 1)
    properties = {
        "uri": uri,
        "warehouse": settings.warehouse,
        "s3.region": settings.s3_region,
        "s3.access-key-id": settings.s3_access_key.get_secret_value(),
        "s3.secret-access-key": settings.s3_secret_key.get_secret_value(),
        **({"s3.endpoint": settings.s3_endpoint} if settings.s3_endpoint else {}),
    }
    try:
        with closing(SqlCatalog(settings.catalog, **properties)) as catalog, told_by_pyiceberg(name):
            return catalog.load_table((settings.namespace, name))
    except NoSuchTableError:
        return None
    except SQLAlchemyError as error:
        raise ServiceError(
            "the catalog can't be read", expected="its tables", found=error, where=f"catalog {settings.catalog}"
        ) from error
