"""The tables as one side of a day's proof: the rows of a day in a snapshot, or a difference if they can't be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date

from pyiceberg.table import Table

from tidemark.core.errors import FormatError
from tidemark.core.seal import Seal
from tidemark.settings import Settings
from tidemark.tables.reader import load_table
from tidemark.verify.archive import Derived
from tidemark.verify.result import ProofPart
from tidemark.verify.rows import Rows, day_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySides:
    """What is compared: the seal, the archive and the rows of both tables."""

    seal: Seal
    table: Table | None
    archive: Derived
    published: Rows | None
    quarantined: Rows | None


@contextmanager
def damage_found(settings: Settings, table: Table | None, check: ProofPart, where: str) -> Iterator[None]:
    """A missing or damaged file of a table is a difference, unless snapshots expired after the table was loaded."""
    try:
        yield
    except FormatError as error:
        now = load_table(settings, table.name()[-1]) if table is not None else None
        there = {item.snapshot_id for item in now.snapshots()} if now is not None else set()
        if table is None or any(item.snapshot_id not in there for item in table.snapshots()):
            check.unknown.append(f"{where}: snapshots expired while it was read: verify again")
        else:
            check.differs("a table does not read", expected="its files", found=error.found, where=where)


def read_rows(
    settings: Settings, table: Table, snapshot_id: int, day: date, archive: Derived, *, where: str, check: ProofPart
) -> Rows | None:
    """The day's rows in a snapshot; None, with a difference, if they can't be read."""
    rows = None
    with damage_found(settings, table, check, where):
        rows = day_rows(table, snapshot_id, day, archive.windows())
    return rows  # noqa: RET504 - None if the context found damage
