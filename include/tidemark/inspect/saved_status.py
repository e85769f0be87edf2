"""The saved status of a stream: one object in S3, so that pages show many streams without reading any archive."""

import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tidemark.core.codec import require_format
from tidemark.core.errors import FormatError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.manifest import canonical_json
from tidemark.inspect.status import StreamStatus, read_status
from tidemark.inspect.status_rows import StreamRow, stream_row
from tidemark.inspect.tide import Tide
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.day_summaries import add_day_summaries

FORMAT = 1
_AT_ONCE = 8
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStatus:
    """A stream at ``found_at`` (UTC). ``row`` is what ``tidemark status --json`` prints of it."""

    found_at: datetime
    row: StreamRow
    tide: Tide | None


def save_status(settings: Settings, names: Sequence[str], *, now: datetime) -> tuple[StreamStatus, ...]:
    """Read the status of each stream and save it, unless a later one is saved. ``now`` is in UTC.

    It also writes what the summaries of seals lack. A failure to write is logged only: the status is known without.
    """
    found = read_status(settings, names, now=now)
    store = ObjectStore(settings)

    def save(item: StreamStatus) -> None:
        layout = Layout(prefix=settings.prefix, stream=item.stream)
        add_day_summaries(store, layout, [item.last_sealed] if item.last_sealed else [])
        saved = SavedStatus(found_at=now, row=stream_row(item), tide=item.tide)
        try:
            store.update(layout.status_key, partial(_unless_later, saved, layout.status_key))
        except TidemarkError as error:
            _LOG.warning("the status of stream %s could not be saved: %s", item.stream, error)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="save-status") as pool:
        list(pool.map(save, found))
    return found


def read_saved_status(store: ObjectStore, layout: Layout) -> SavedStatus | None:
    """The stream's saved status; None if there is none. Raises FormatError for one that does not parse."""
    body = store.get(layout.status_key)
    return None if body is None else parse_status(body, where=layout.status_key)


def status_json(status: SavedStatus) -> bytes:
    """Canonical bytes; ``parse_status`` reads them back to an equal value."""
    return canonical_json({"format": FORMAT, "status": _adapter().dump_python(status, mode="json")})


def parse_status(body: bytes, *, where: str) -> SavedStatus:
    """The status in ``body``. Raises FormatError, with ``where``, for anything else."""
    try:
        raw: Any = json.loads(body)
        require_format("unknown format of a saved status", raw["format"], known=FORMAT, where=where)
        return _adapter().validate_python(raw["status"])
    except (ValueError, KeyError, TypeError) as error:
        found = f"{error.error_count()} wrong fields" if isinstance(error, ValidationError) else repr(error)
        raise FormatError(
            "a saved status does not parse",
            expected=f"format {FORMAT}",
            found=found,
            where=where,
            hint="The stream's next run, or its next check by tidemark_watch, writes it again",
        ) from error


def _unless_later(status: SavedStatus, where: str, body: bytes | None) -> bytes | None:
    try:
        later = body is not None and parse_status(body, where=where).found_at > status.found_at
    except FormatError:
        later = False
    return None if later else status_json(status)


@cache
def _adapter() -> TypeAdapter[SavedStatus]:
    return TypeAdapter(SavedStatus)
