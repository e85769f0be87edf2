"""Seals in S3, compared with a table's snapshots."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta
from functools import partial

from tidemark.core.day_summary import DaySummary
from tidemark.core.errors import ConflictError
from tidemark.core.layout import Layout
from tidemark.core.manifest import digest
from tidemark.core.seal import PreviousDay, Seal, parse_seal
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.tables.day_publications import DayPublication

_READERS = 16
_FIRST_KEYS = 10  # more than one, as a listing may have unfinished objects


def read_seal(store: ObjectStore, layout: Layout, day: date, version: int) -> Seal | None:
    """One version of a day's seal, if it exists. Raises ConflictError for a seal that does not match its key."""
    key = layout.seal_key(day, version)
    body = store.get(key)
    if body is None:
        return None
    seal = parse_seal(body, where=key)
    if (seal.stream, seal.day, seal.version) != (layout.stream, day, version):
        raise ConflictError(
            "a seal does not match its key",
            expected=f"{layout.stream} {day} version {version}",
            found=f"{seal.stream} {seal.day} version {seal.version}",
            where=key,
        )
    return seal


def latest_seals(store: ObjectStore, layout: Layout) -> tuple[Seal, ...]:
    """The highest version of every sealed day; after a rollback also the version that was rebuilt last."""
    versions: dict[date, int] = {}
    for item in store.list(layout.seal_prefix):
        day, version = layout.parse_seal_key(item.key)
        versions[day] = max(version, versions.get(day, 0))
    days = sorted(versions)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="seals") as pool:
        found = pool.map(lambda day: tuple(_down_to_rebuilt(store, layout, day, versions[day])), days)
        return tuple(itertools.chain.from_iterable(found))


def _down_to_rebuilt(store: ObjectStore, layout: Layout, day: date, version: int) -> Iterator[Seal]:
    seal = read_seal(store, layout, day, version)
    while seal is not None:
        if seal.version == version or seal.rolled_back_to is None:
            yield seal
        seal = None if seal.rolled_back_to is None else read_seal(store, layout, day, seal.version - 1)


def last_sealed(
    store: ObjectStore, layout: Layout, *, recent: date, before: date = date.max
) -> tuple[date, int] | None:
    """The latest sealed day ``before`` another and its highest version, by a listing; None if no such day is sealed.

    Days before ``recent`` are listed only if none is sealed from there on.
    """
    for after in (f"{layout.seal_prefix}{recent}/", ""):
        sealed = (layout.parse_seal_key(item.key) for item in store.list(layout.seal_prefix, after=after))
        if found := max(itertools.takewhile(lambda item: item[0] < before, sealed), default=None):
            return found
    return None


def first_sealed_day(store: ObjectStore, layout: Layout) -> date | None:
    """The earliest sealed day, by a listing of a few keys; None if no day is sealed."""
    listed = store.list(layout.seal_prefix, limit=_FIRST_KEYS)
    return next((layout.parse_seal_key(item.key)[0] for item in listed), None)


def day_seals(store: ObjectStore, layout: Layout, day: date) -> tuple[Seal, ...]:
    """Every version of one day's seal, in order."""
    keys = (layout.parse_seal_key(item.key) for item in store.list(f"{layout.seal_prefix}{day.isoformat()}/"))
    found = (read_seal(store, layout, day, version) for day, version in keys)
    return tuple(seal for seal in found if seal is not None)


def seals_by_day(store: ObjectStore, layout: Layout, days: Iterable[date]) -> dict[date, tuple[Seal, ...]]:
    """``day_seals`` of many days."""
    wanted = tuple(days)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="seals") as pool:
        return dict(zip(wanted, pool.map(partial(day_seals, store, layout), wanted), strict=True))


def unsealed_publications(
    store: ObjectStore, layout: Layout, shown: Mapping[date, DayPublication], *, known: Iterable[Seal | DaySummary] = ()
) -> dict[date, DayPublication]:
    """Of the days that both tables show, those of which no seal names what readers see. Half a publication is one.

    Seals that are ``known`` save reading others: a day's latest one mostly names what readers see.
    """
    named = {(seal.day, seal.snapshot_id) for seal in known}
    open_days = {
        day: item
        for day, item in shown.items()
        if item.is_half or item.published is None or (day, item.published.snapshot_id) not in named
    }
    seals = seals_by_day(store, layout, (day for day, item in open_days.items() if not item.is_half))
    return {
        day: item
        for day, item in sorted(open_days.items())
        if not any(item.is_named_by(seal) for seal in seals.get(day, ()))
    }


def previous_digest(run: Run, day: date, version: int) -> str | None:
    """``previous`` of this version's seal."""
    if version == 1:
        return None
    key = run.layout.seal_key(day, version - 1)
    body = run.store.get(key)
    if body is None:
        raise ConflictError(
            "the version before is not sealed",
            expected=key,
            found="no object",
            where=f"run {run.name}",
            hint="Restore that seal from a copy of the bucket; 'tidemark status STREAM DAY' lists the existing ones",
        )
    return digest(body)


def _previous_day(run: Run, day: date) -> PreviousDay | None:
    """The highest version of the last day before this one that is sealed."""
    last = last_sealed(run.store, run.layout, recent=day - timedelta(days=1), before=day)
    if last is None:
        return None
    body = run.store.get(run.layout.seal_key(*last))
    return None if body is None else PreviousDay(day=last[0], version=last[1], digest=digest(body))


def write_seal(run: Run, seal: Seal) -> Seal:
    """Write a seal, once, with the link to the day before. Returns an equal one that exists.

    Raises ConflictError for a different one.
    """
    key = run.layout.seal_key(seal.day, seal.version)
    seal = replace(seal, previous_day=_previous_day(run, seal.day))
    if run.store.put_if_absent(key, seal.to_json()):
        return seal
    there = read_seal(run.store, run.layout, seal.day, seal.version)
    if there is None or _timeless(there) != _timeless(seal):
        raise ConflictError(
            "the day is already sealed, by another run or with other rows",
            expected=_summary(seal),
            found="an object that was just deleted" if there is None else _summary(there),
            where=key,
            hint="Start a new run of the day: it makes the next version if there is anything new",
        )
    return there


def _timeless(seal: Seal) -> Seal:
    """The seal without what depends on when the run planned and sealed the day: that does not matter."""
    return replace(seal, sealed_at_us=0, planned_at_us=0, last_batches=(), previous_day=None)


def _summary(seal: Seal) -> str:
    return f"run {seal.run} with {seal.rows_published} rows in snapshot {seal.snapshot_id}"
