"""Summaries of sealed days, one object per month, so that a list of days reads no seal.

The seals decide: a listing of their keys names every day and version. A version without a summary, for example after a
crash between the two writes, costs readers the reading of its seal.
"""

import logging
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from itertools import groupby, takewhile

from tidemark.core.day_summary import DaySummary, month_json, parse_month, summarise
from tidemark.core.errors import TidemarkError
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore
from tidemark.tables.seals import read_seal

_LOG = logging.getLogger(__name__)
_AT_ONCE = 16
Version = tuple[date, int]


def read_day_summaries(
    store: ObjectStore, layout: Layout, first: date | None = None, last: date | None = None
) -> tuple[DaySummary, ...]:
    """Every version of the days from ``first`` to ``last``, both included, by day and version. None: no bound.

    Requests: one listing per 1,000 versions, one object per month, and one per version that its month lacks.
    """

    def read(month: str) -> dict[Version, DaySummary]:
        key = layout.summary_key(month)
        return _complete(store, layout, sealed[month], store.get(key), key)

    sealed = _sealed(store, layout, first, last)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="summaries") as pool:
        found = zip(sealed.values(), pool.map(read, sealed), strict=True)
        return tuple(known[item] for versions, known in found for item in versions if item in known)


def refresh_day_summaries(store: ObjectStore, layout: Layout, days: Collection[date] = ()) -> None:
    """Write what the months of ``days`` lack, and each month that has seals and no object, as after an upgrade.

    Processes that do this at once keep each other's summaries.
    """

    def refresh(month: str) -> None:
        key = layout.summary_key(month)

        def add(body: bytes | None) -> bytes | None:
            known = _complete(store, layout, sealed[month], body, key)
            found = month_json(known[item] for item in sorted(known))
            return None if found == body else found

        store.update(key, add)

    there = {layout.parse_summary_key(item.key) for item in store.list(layout.summary_prefix)}
    sealed = _sealed(store, layout)
    wanted = {_month(day) for day in days} | (sealed.keys() - there)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="summaries") as pool:
        list(pool.map(refresh, sorted(wanted & sealed.keys())))


def add_day_summaries(store: ObjectStore, layout: Layout, days: Collection[date]) -> None:
    """``refresh_day_summaries`` after the days were sealed. A failure is logged only: readers do without summaries."""
    try:
        refresh_day_summaries(store, layout, days)
    except TidemarkError as error:
        _LOG.warning("the summaries of the sealed days could not be written, and readers read the seals: %s", error)


def _sealed(
    store: ObjectStore, layout: Layout, first: date | None = None, last: date | None = None
) -> dict[str, list[Version]]:
    """The sealed versions by month, in order."""
    after = "" if first is None else f"{layout.seal_prefix}{first}/"
    keys = (layout.parse_seal_key(item.key) for item in store.list(layout.seal_prefix, after=after))
    versions = sorted(takewhile(lambda item: last is None or item[0] <= last, keys))
    return {month: list(own) for month, own in groupby(versions, lambda item: _month(item[0]))}


def _complete(
    store: ObjectStore, layout: Layout, versions: Collection[Version], body: bytes | None, where: str
) -> dict[Version, DaySummary]:
    """The summaries in a month's object, and those of the other ``versions``, from their seals."""
    known = {} if body is None else {(item.day, item.version): item for item in parse_month(body, where=where)}
    for item in versions:
        if item not in known and (seal := read_seal(store, layout, *item)) is not None:
            known[item] = summarise(seal)
    return known


def _month(day: date) -> str:
    return day.isoformat()[:7]
