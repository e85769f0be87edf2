"""Commits to a table of its own, reads it, and removes it: whether the catalog can be written."""

from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.types import StringType

from tidemark.settings import Settings
from tidemark.tables.catalogs import QUESTION
from tidemark.tables.reader import open_catalog, pyiceberg_errors

_ROWS = pa.table({"id": [1]})


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """What a table of the doctor's own showed. ``conflict_refused``: a commit on an outdated table failed."""

    table: str
    rows: int
    conflict_refused: bool


def known_tables(settings: Settings) -> int:
    """How many tables the namespace has; 0 without the namespace. Raises as ``open_catalog`` does."""
    with open_catalog(settings, QUESTION) as catalog:
        found = catalog.namespace_exists(settings.namespace)
        return len(catalog.list_tables(settings.namespace)) if found else 0


def commit_round_trip(settings: Settings) -> RoundTrip:
    """Create a table, commit to it, commit to it as it was before, read it, and remove it.

    Raises as ``open_catalog`` and ``pyiceberg_errors`` do.
    """
    name = f"doctor_{uuid4().hex[:12]}"
    with open_catalog(settings) as catalog, pyiceberg_errors(name):
        created = _ensure_namespace(catalog, settings.namespace)
        identifier = (settings.namespace, name)
        table = catalog.create_table(identifier, _ROWS.schema, location=settings.table_folder(name))
        try:
            outdated = catalog.load_table(identifier)
            table.append(_ROWS)
            _add_column(table, "first")
            refused = _is_refused(outdated)
            rows = catalog.load_table(identifier).scan().to_arrow().num_rows
        finally:
            catalog.purge_table(identifier)
            if created:
                with suppress(Exception):  # somebody else has created a table there meanwhile
                    catalog.drop_namespace(settings.namespace)
    return RoundTrip(table=".".join(identifier), rows=rows, conflict_refused=refused)


def _ensure_namespace(catalog: Catalog, namespace: str) -> bool:
    """Whether it had to be created."""
    if catalog.namespace_exists(namespace):
        return False
    try:
        catalog.create_namespace(namespace)
    except NamespaceAlreadyExistsError:
        return False
    return True


def _add_column(table: Table, name: str) -> None:
    """A commit that writes no data file, which a refusal would leave."""
    with table.update_schema() as change:
        change.add_column(name, StringType())


def _is_refused(outdated: Table) -> bool:
    try:
        _add_column(outdated, "second")
    except CommitFailedException:
        return True
    return False
