"""The page that finds a record by partition and offset, or those of a day by their key."""

import asyncio
import re
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import HTTPException, Query, Request
from fastapi.responses import Response

from tidemark.core.errors import RequestError
from tidemark.core.text import quoted
from tidemark.definitions.stream import Stream
from tidemark.inspect.locate import Located, Place, RecordStatus, locate, record_statuses
from tidemark.inspect.locate_key import KeyForm, KeyRecords, find_key, parse_key, parse_place, place_text
from tidemark.pages.keys import key_headline, key_name, key_sentences, unread_sentences
from tidemark.pages.part import Part, PartError, read_parts
from tidemark.pages.words import number, sentence
from tidemark.s3 import require_s3
from tidemark.settings import Settings
from tidemark_airflow.connections import task_settings
from tidemark_airflow.pages.access import Readable, path_day
from tidemark_airflow.pages.responses import html
from tidemark_airflow.pages.stream_pages import read_definition

_FIND_SECONDS = 20.0
# Of these for the archive's objects. What is left is for the ledger before them.
_SEARCH_SECONDS = 12.0
_TABLES_SECONDS = 8.0
_S3_SECONDS = 5.0  # longer than a try of ``require_s3``
_KEY_MAX = 4000
_NOTHING = "Nothing was searched."
_PLACE_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAnswer:
    """The part of the page about a key: what was found. ``refused`` says why nothing was searched.

    A search by offset sets it, too.
    """

    day: date | None = None
    refused: str = ""
    search: Part[KeyRecords] = field(default_factory=Part)
    statuses: Part[dict[Place, RecordStatus]] = field(default_factory=Part)
    sentences: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    continued: str = ""


async def show_find(
    request: Request,
    stream: Readable,
    *,
    partition: Annotated[str | None, Query(max_length=100)] = None,
    offset: Annotated[str | None, Query(max_length=100)] = None,
    day: Annotated[str, Query(max_length=100)] = "",
    key: Annotated[str | None, Query(max_length=_KEY_MAX)] = None,
    form: KeyForm = "text",
    start: Annotated[str, Query(alias="from", max_length=_PLACE_MAX)] = "",
) -> Response:
    """Where a record is and what each version of its day did with it; or the records of a day that have a key."""
    found: Part[Located] = Part()
    answer: KeyAnswer | None = None
    headline = f"Find a record of {stream}"
    if partition is not None and offset is not None:
        headline, found, answer = await asyncio.to_thread(_by_offset, stream, partition, offset)
    elif key is not None:
        headline, answer = await asyncio.to_thread(_by_key, stream, day, key, form, start)
    asked = {"partition": partition, "offset": offset, "day": day, "key": key, "form": form}
    return html(
        request,
        "find",
        code=422 if answer and answer.refused else 200,
        stream=stream,
        found=found,
        by_key=answer,
        headline=headline,
        asked={name: value for name, value in asked.items() if value is not None},
    )


def _by_offset(stream: str, partition_text: str, offset_text: str) -> tuple[str, Part[Located], KeyAnswer | None]:
    """The headline, and the record or the reason why nothing was searched."""
    try:
        partition, offset = _number("partition", partition_text, 2**31), _number("offset", offset_text, 2**63)
    except RequestError as error:
        return _NOTHING, Part(), KeyAnswer(refused=sentence(str(error)))
    found = _locate(stream, partition, offset)
    return _record_sentence(found, partition, offset), found, None


def _number(name: str, text: str, end: int) -> int:
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) >= end:
        raise RequestError(f"the {name} is not valid", expected=f"a number from 0 to {end - 1}", found=quoted(text))
    return int(text)


def _locate(stream: str, partition: int, offset: int) -> Part[Located]:
    definition, settings = read_definition(stream), task_settings()
    error = definition.error or _s3_error(settings)
    if error or definition.value is None:
        return Part(error=error)
    job = partial(locate, settings, stream, definition.value.topic, partition, offset)
    return read_parts({"The record": job}, seconds=_FIND_SECONDS)["The record"]


def _record_sentence(found: Part[Located], partition: int, offset: int) -> str:
    name = f"Offset {number(offset)} of partition {partition}"
    if found.value is None:
        return f"{name} was not found."
    newest = found.value.seals[-1] if found.value.seals else None
    if newest is None:
        return f"{name} is archived, and its day is not sealed."
    status = newest.status[0] if newest.status else "not in a snapshot"
    return f"{name} is {status} in version {newest.version} of {newest.day}."


def _by_key(stream: str, day_text: str, key_text: str, form: KeyForm, start_text: str) -> tuple[str, KeyAnswer]:
    """The headline and the part of the page about a key."""
    try:
        day, key = path_day(day_text), parse_key(key_text, form)
        start = parse_place(start_text) if start_text else None
    except HTTPException as error:
        return _NOTHING, KeyAnswer(refused=str(error.detail))
    except RequestError as error:
        return _NOTHING, KeyAnswer(refused=sentence(str(error)))
    definition, settings = read_definition(stream), task_settings()
    search: Part[KeyRecords] = Part(error=definition.error or _s3_error(settings))
    statuses: Part[dict[Place, RecordStatus]] = Part()
    if definition.value and search.error is None:
        job = partial(find_key, settings, stream, day, key, start=start, seconds=_SEARCH_SECONDS)
        search = read_parts({"The archive": job}, seconds=_FIND_SECONDS)["The archive"]
        statuses = _statuses(settings, definition.value, search.value)
    found, continued = search.value, start is not None
    return key_headline(found, day, key_name(key_text, form), continued=continued), KeyAnswer(
        day=day,
        search=search,
        statuses=statuses,
        sentences=key_sentences(found, day, continued=continued) if found else (),
        unread=unread_sentences(found) if found else (),
        continued=_continued(found, day=str(day), key=key_text, form=form),
    )


def _s3_error(settings: Settings) -> PartError | None:
    """The error if S3 does not answer. A search would try again for longer than a page waits."""
    error: PartError | None = read_parts({"S3": partial(require_s3, settings)}, seconds=_S3_SECONDS)["S3"].error
    return error


def _statuses(settings: Settings, stream: Stream, found: KeyRecords | None) -> Part[dict[Place, RecordStatus]]:
    places = [item.place for item in found.records if item.in_version] if found else []
    if not places or found is None or found.seal is None:
        return Part(value={})
    job = partial(record_statuses, settings, stream, found.seal, places)
    return read_parts({"The tables": job}, seconds=_TABLES_SECONDS)["The tables"]


def _continued(found: KeyRecords | None, **asked: Any) -> str:
    """The query of the same search from where this one stopped; empty if it was complete."""
    if found is None or found.next is None:
        return ""
    return urlencode({**asked, "from": place_text(found.next)})
