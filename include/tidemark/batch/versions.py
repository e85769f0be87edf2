"""The versions of a day: what each one holds, why it was made, and which of them readers see."""

from dataclasses import dataclass
from datetime import date

from tidemark.batch.seal import day_seals
from tidemark.batch.tables import last_publisher, missing_snapshots
from tidemark.core.errors import ConfigError
from tidemark.core.layout import Layout
from tidemark.core.seal import Seal
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.streams import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version: its seal, whether it is the day's rows now, and whether its snapshots are gone.

    An expired version can neither be read nor brought back.
    """

    seal: Seal
    published: bool
    expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Every version of a day, the first one first. ``unsealed`` is the run whose rows the day has without a seal."""

    stream: str
    day: date
    versions: tuple[Version, ...]
    unsealed: str | None


def day_versions(settings: Settings, stream: Stream, day: date) -> Versions:
    """The day's versions as seals and table say; raises ConfigError for a day that was never sealed."""
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    seals = day_seals(store, layout, day)
    if not seals:
        raise ConfigError(
            "the day was never sealed",
            expected=f"an object below {layout.seal_prefix}{day}/",
            found="none",
            where=f"stream {stream.name}",
            hint="A reconcile run seals it",
        )
    publisher = last_publisher(settings, stream.table, day)
    shown = max((seal.version for seal in seals if publisher in {None, seal.run}), default=None)
    gone = missing_snapshots(settings, stream.table, {seal.snapshot_id for seal in seals})
    gone |= missing_snapshots(settings, stream.quarantine_table, {seal.quarantine_snapshot_id for seal in seals})
    return Versions(
        stream=stream.name,
        day=day,
        versions=tuple(
            Version(
                seal=seal,
                published=seal.version == shown,
                expired=not gone.isdisjoint({seal.snapshot_id, seal.quarantine_snapshot_id}),
            )
            for seal in seals
        ),
        unsealed=publisher if shown is None else None,
    )
