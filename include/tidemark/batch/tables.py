"""The tables as readers without Spark see them, through pyiceberg."""

import json
from collections.abc import Collection
from datetime import date
from typing import Literal

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tidemark.core.offsets import TopicPartition
from tidemark.settings import Settings
from tidemark.streams import Stream

DAYS_PROPERTY, RUN_PROPERTY = "tidemark.days", "tidemark.run"

Standing = tuple[Literal["published", "quarantined"], str | None]


def standing(
    settings: Settings,
    stream: Stream,
    log: TopicPartition,
    offset: int,
    *,
    snapshot_id: int | None,
    quarantine_snapshot_id: int | None,
) -> Standing | None:
    """What became of a record in the snapshots of one seal: published, or quarantined with its reason.

    None where neither snapshot has it: it expired, or the record's row is in no table.
    """
    record = f"_topic_id = '{log.topic_id}' AND _kafka_partition = {log.partition} AND _offset = {offset}"
    if _rows(load_table(settings, stream.table), snapshot_id, record, "_offset"):
        return "published", None
    reasons = _rows(load_table(settings, stream.quarantine_table), quarantine_snapshot_id, record, "reason")
    return ("quarantined", str(reasons[0])) if reasons else None


def missing_snapshots(settings: Settings, name: str, snapshots: Collection[int | None]) -> set[int | None]:
    """Those of the snapshots that the table no longer has, or never had: nobody can read them."""
    table = load_table(settings, name)
    return {item for item in snapshots if table is None or item is None or table.snapshot_by_id(item) is None}


def main_snapshots(settings: Settings, stream: Stream) -> dict[str, int | None]:
    """The current snapshots as ``snapshot`` and ``quarantine_snapshot``; None for a table that is not there yet."""
    tables = {"snapshot": stream.table, "quarantine_snapshot": stream.quarantine_table}
    found = {key: load_table(settings, name) for key, name in tables.items()}
    return {key: table.metadata.current_snapshot_id if table else None for key, table in found.items()}


def last_publisher(settings: Settings, name: str, day: date) -> str | None:
    """The run that published the day last in a table; None where none did, as far as its history goes back."""
    table = load_table(settings, name)
    snapshot = table.current_snapshot() if table else None
    while table is not None and snapshot is not None:
        told = snapshot.summary.additional_properties if snapshot.summary else {}
        if day.isoformat() in json.loads(told.get(DAYS_PROPERTY, "[]")):
            return told[RUN_PROPERTY]
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    return None


def _rows(table: Table | None, snapshot_id: int | None, record: str, column: str) -> list[object]:
    """One column of the record's rows in a snapshot; none where there is no such table or snapshot."""
    if table is None or snapshot_id is None or table.snapshot_by_id(snapshot_id) is None:
        return []
    scan = table.scan(row_filter=record, selected_fields=(column,), snapshot_id=snapshot_id)
    found: list[object] = scan.to_arrow()[column].to_pylist()
    return found


def load_table(settings: Settings, name: str) -> Table | None:
    """A table of the catalog as it is now, by its stream's name for it; None where there is none yet."""
    # SQLAlchemy's form of the JDBC URL: a file's path is absolute, so it has a slash of its own.
    uri = settings.catalog_uri.removeprefix("jdbc:").replace("sqlite:", "sqlite:///", 1)
    catalog = SqlCatalog(
        settings.catalog,
        **{
            "uri": uri,
            "warehouse": settings.warehouse,
            "s3.region": settings.s3_region,
            "s3.access-key-id": settings.s3_access_key.get_secret_value(),
            "s3.secret-access-key": settings.s3_secret_key.get_secret_value(),
            **({"s3.endpoint": settings.s3_endpoint} if settings.s3_endpoint else {}),
        },
    )
    try:
        return catalog.load_table((settings.namespace, name))
    except NoSuchTableError:
        return None
    finally:
        catalog.close()
