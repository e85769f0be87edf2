"""What readers see of a day now, in both tables, compared with its latest version."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from pyiceberg.table import Table

from tidemark.core.errors import FormatError
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.tables.day_publications import DayPublication
from tidemark.tables.main_history import LastPublication
from tidemark.tables.reader import load_table
from tidemark.tables.snapshots import published_at, quarantined_at, shown_day
from tidemark.verify.archive import Derived
from tidemark.verify.claims import Claims
from tidemark.verify.result import ProofPart
from tidemark.verify.rows import Rows, day_files
from tidemark.verify.sides import DaySides, damage_found, read_rows
from tidemark.verify.values import other_values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One table as it is now, and what the seal has in it: its snapshot and rows. ``done`` is the verb for them."""

    table: Table
    seen: LastPublication | None
    sealed: int | None
    rows: Rows | None
    find: Callable[[Table | None, Seal], int | None]
    done: str

    @property
    def name(self) -> str:
        return str(self.table.name()[-1])


def compare_readers(settings: Settings, stream: Stream, claims: Claims, sides: DaySides, check: ProofPart) -> None:
    """Readers see exactly the values that the latest version published and quarantined."""
    seal = sides.seal
    if not claims.latest:
        check.notes.append("a later version is sealed: readers see that one")
        return
    # The published table first, as ``day_publications`` wants it.
    table, quarantine = load_table(settings, stream.table), load_table(settings, stream.quarantine_table)
    shown = shown_day(table, quarantine, seal.day)
    for name, loaded in ((stream.table, table), (stream.quarantine_table, quarantine)):
        if loaded is None or loaded.metadata.current_snapshot_id is None:
            check.differs("the table", expected=name, found="no table", where=settings.namespace)
    if not compare_publication(shown, claims, check, where=f"{stream.table} and {stream.quarantine_table}, {seal.day}"):
        return
    compared = _Readers(settings=settings, seal=seal, archive=sides.archive, check=check)
    if table is not None:
        seen, rows = shown.published if shown else None, sides.published
        side = _Side(table=table, seen=seen, sealed=seal.snapshot_id, rows=rows, find=published_at, done="published")
        compared.compare(side, {published for published, _ in claims.snapshots})
    if quarantine is not None:
        seen, rows = shown.quarantine if shown else None, sides.quarantined
        sealed, find = seal.quarantine_snapshot_id, quarantined_at
        side = _Side(table=quarantine, seen=seen, sealed=sealed, rows=rows, find=find, done="quarantined")
        compared.compare(side, {aside for _, aside in claims.snapshots})


def compare_publication(shown: DayPublication | None, claims: Claims, check: ProofPart, *, where: str) -> bool:
    """Whether readers see rows of a sealed version in one of the tables. Says what else they see.

    Half a publication is a difference: no version has such rows. A whole one without a seal leaves the version as it
    is, but nobody can say that what readers see is proven.
    """
    if shown is None:
        return True
    if shown.is_half:
        aside = shown.quarantine
        check.differs(
            "half a publication: the tables show different publications of the day",
            expected="the same one in both",
            found=f"the quarantine of {_snapshot_of(aside)}, the table of {_snapshot_of(shown.published)}",
            where=where,
        )
        return True
    if any(shown.is_of(*pair) for pair in claims.snapshots):
        return True
    check.unknown.append(
        f"run {shown.run} published the day since and has not sealed it: readers see rows that no seal proves."
        " Verify again once the stream's next run has sealed them"
    )
    return False


def _snapshot_of(seen: LastPublication | None) -> str:
    return "no run" if seen is None else f"run {seen.run} in snapshot {seen.snapshot_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Readers:
    """The comparison of what readers see with what the seal's version has."""

    settings: Settings
    seal: Seal
    archive: Derived
    check: ProofPart

    def compare(self, side: _Side, sealed: Collection[int | None]) -> None:
        """Compare one table. Rows that no version has ``sealed`` are half a publication, reported before."""
        now, seen = side.table.metadata.current_snapshot_id, side.seen
        if now is None or (seen is not None and seen.snapshot_id not in sealed):
            return
        where = f"{side.name}, snapshot {now}, the current one"
        self.check.derived_from += f"{'; ' if self.check.derived_from else ''}{where}"
        if seen is not None:  # an earlier version's if somebody has reset the table
            self.check.equal(
                "the snapshot of the day's rows", expected=side.sealed, found=seen.snapshot_id, where=where
            )
        held = None
        with damage_found(self.settings, side.table, self.check, where):
            held = side.find(side.table, self.seal)  # by the table's current state
        if side.rows is None or held is None:
            return
        try:
            if day_files(side.table, now, self.seal.day) == day_files(side.table, held, self.seal.day):
                return
        except FormatError:
            self.check.notes.append("the files of both snapshots can't be compared: their rows were compared instead")
        self._compare_rows(side, side.rows, (held, now), where)

    def _compare_rows(self, side: _Side, sealed: Rows, snapshots: tuple[int, int], where: str) -> None:
        """Compare the day's rows in the second snapshot with the ``sealed`` ones in the first."""
        check = self.check
        rows = read_rows(self.settings, side.table, snapshots[1], self.seal.day, self.archive, where=where, check=check)
        if rows is None:
            return
        check.equal("rows of the day", expected=sealed.rows, found=rows.rows, where=where)
        for log, bits in sealed.offsets.items():
            check.ranges(
                f"{side.done} in snapshot {side.sealed} but not there now",
                bits.without(rows.offsets[log]),
                expected="a row",
                found="none",
                log=log,
            )
            check.ranges(
                f"not {side.done} in snapshot {side.sealed} but there now",
                rows.offsets[log].without(bits),
                expected="no row",
                found="a row",
                log=log,
            )
        if check.total or sealed.doubled or rows.doubled:  # else both have one row per offset
            return
        check.notes.append("another writer has rewritten the day's files, so all values were compared")
        with damage_found(self.settings, side.table, check, where):
            for log, bits in sealed.offsets.items():
                check.ranges(
                    f"not what snapshot {side.sealed} {side.done}",
                    other_values(side.table, snapshots, self.seal.day, log, bits),
                    expected="its values",
                    found="others",
                    log=log,
                )
