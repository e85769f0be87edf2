"""The tables' catalog as another tool opens it."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.catalog.sql import SqlCatalog

from tidemark.settings import Settings


@contextmanager
def another_catalog(settings: Settings) -> Iterator[SqlCatalog]:
    """Pyiceberg's catalog, from the settings alone; closed after the block."""
    catalog = SqlCatalog(
        settings.catalog,
        uri=settings.catalog_uri.replace("jdbc:sqlite:", "sqlite:///"),
        warehouse=settings.warehouse,
        **{
            "s3.endpoint": str(settings.s3_endpoint),
            "s3.access-key-id": settings.s3_access_key.get_secret_value(),
            "s3.secret-access-key": settings.s3_secret_key.get_secret_value(),
            "s3.region": settings.s3_region,
        },
    )
    try:
        yield catalog
    finally:
        catalog.engine.dispose()
