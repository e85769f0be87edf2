"""What readers see of a day: its last publication in the published table and in the quarantine.

A run publishes the quarantine, then the table. A process that dies between the two commits leaves half a publication:
rows of the day are then in both tables, or in neither.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from tidemark.core.seal import Seal
from tidemark.tables.main_history import LastPublication, MainHistory, MainSnapshot, last_of_days
from tidemark.tables.snapshot_summary import DAYS_PROPERTY, INPUTS_PROPERTY, RUN_PROPERTY


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPublication:
    """A day's last publication in each table; None where no snapshot is left that has published the day.

    At least one of them is there. ``table_whole``: no snapshot of the published table has expired. Then None means that
    the day was never published there.
    """

    published: LastPublication | None
    quarantine: LastPublication | None
    table_whole: bool

    @property
    def is_half(self) -> bool:
        """Whether the tables show the day as different publications left it."""
        table, quarantine = self.published, self.quarantine
        if table is None:
            return self.table_whole
        return quarantine is not None and (table.run, table.inputs) != (quarantine.run, quarantine.inputs)

    @property
    def run(self) -> str:
        """The run that published the day last: the quarantine is always the first of the two."""
        last = self.quarantine if self.is_half else self.published or self.quarantine
        assert last is not None
        return last.run

    def is_of(self, snapshot_id: int | None, quarantine_snapshot_id: int | None) -> bool:
        """Whether readers of both tables see the rows of a version with these snapshots, as far as history is left."""
        if self.is_half:
            return False
        if self.published is not None:  # the quarantine shows the same publication
            return self.published.snapshot_id == snapshot_id
        return self.quarantine is not None and self.quarantine.snapshot_id == quarantine_snapshot_id

    def is_named_by(self, seal: Seal) -> bool:
        """Whether a seal of the day proves what readers see."""
        return self.is_of(seal.snapshot_id, seal.quarantine_snapshot_id)

    def __str__(self) -> str:
        if not self.is_half:
            return f"rows of run {self.run}"
        table = f"the rows of run {self.published.run}" if self.published else "no rows"
        return f"half a publication, the quarantine of run {self.run} and {table}"


def day_publications(table: MainHistory, quarantine: MainHistory) -> dict[date, DayPublication]:
    """What readers see of each day that a remaining snapshot of either table has published, in the days' order.

    Read the table's history first: if it has a publication, the quarantine has it too. A run that publishes between the
    two reads shows as half a publication.
    """
    rows, aside = last_of_days(table), last_of_days(quarantine)
    return {
        day: DayPublication(published=rows.get(day), quarantine=aside.get(day), table_whole=table.whole)
        for day in sorted(rows.keys() | aside.keys())
    }


def earlier_attempt(
    history: Iterable[MainSnapshot], *, run: str, inputs: str, days: Sequence[date], sealed: bool
) -> int | None:
    """The snapshot in which an earlier attempt of a run published the days, made of the same inputs.

    ``history`` is a table's, the newest first. None if readers do not see those rows: the run has published other ones
    since, or another run has published one of the days. The latter does not count if the run has ``sealed`` the days.
    """
    wanted = [day.isoformat() for day in days]
    for item in history:
        published = json.loads(item.summary.get(DAYS_PROPERTY) or "[]")
        if item.summary.get(RUN_PROPERTY) == run:
            same = (item.summary.get(INPUTS_PROPERTY), published) == (inputs, wanted)
            return item.snapshot_id if same else None
        if not sealed and not set(published).isdisjoint(wanted):
            return None
    return None
