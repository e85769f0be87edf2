"""The versions of a day, and which of them readers see."""

from dataclasses import dataclass
from datetime import date

from tidemark.core.errors import RequestError
from tidemark.core.layout import Layout
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.catalogs import QUESTION
from tidemark.tables.day_publications import DayPublication
from tidemark.tables.reader import load_table
from tidemark.tables.seals import day_seals
from tidemark.tables.snapshots import published_at, quarantined_at, shown_day


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version: its seal, whether readers see it, and the snapshots to read it from.

    Once the seal's snapshots have expired, these are others with the same rows, or None.
    """

    seal: Seal
    published: bool
    snapshot_id: int | None
    quarantine_snapshot_id: int | None

    @property
    def expired(self) -> bool:
        """An expired version can be neither read nor restored."""
        return self.snapshot_id is None or self.quarantine_snapshot_id is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The sealed versions of a day, in order. ``unsealed`` is what readers see, if no seal proves it."""

    stream: str
    day: date
    versions: tuple[Version, ...]
    unsealed: DayPublication | None


def day_versions(settings: Settings, stream: Stream, day: date) -> Versions:
    """The day's versions by seals and tables. Raises RequestError for a day that was never sealed nor published."""
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    seals = day_seals(store, layout, day)
    table, quarantine = (load_table(settings, name, QUESTION) for name in (stream.table, stream.quarantine_table))
    seen = shown_day(table, quarantine, day)
    if not seals and seen is None:
        raise RequestError(
            "the day was never sealed",
            expected=f"an object below {layout.seal_prefix}{day}/",
            found="none",
            where=f"stream {stream.name}",
            hint="A reconcile run seals it",
        )
    shown = max((seal.version for seal in seals if seen is None or seen.is_named_by(seal)), default=None)
    return Versions(
        stream=stream.name,
        day=day,
        versions=tuple(
            Version(
                seal=seal,
                published=seal.version == shown,
                snapshot_id=published_at(table, seal),
                quarantine_snapshot_id=quarantined_at(quarantine, seal),
            )
            for seal in seals
        ),
        unsealed=seen if shown is None else None,
    )
