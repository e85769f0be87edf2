"""Find the records of a day by their key: what the page shows of a day whose records are known one by one."""

import html
import re
from dataclasses import replace
from datetime import UTC, date
from functools import partial
from typing import Any

import httpx
import pytest

from tests.batch.logs import MONDAY, TUESDAY, Log
from tests.command_json import valid_result
from tests.web.conftest import PagesServer
from tests.web.keyed import (
    BYTES,
    LATE_OBJECT,
    MANY,
    NEVER,
    OBJECTS,
    RECORDS,
    RIDER,
    WEDNESDAY,
    Keyed,
    of_day,
)
from tidemark.archive.ledger.ledger import read_archived
from tidemark.cli import where
from tidemark.core.errors import RequestError, ServiceError
from tidemark.inspect import locate_key
from tidemark.inspect.locate_key import find_key, parse_key
from tidemark.pages.keys import key_headline
from tidemark.pages.part import Part
from tidemark.pages.render import page as rendered
from tidemark_airflow.pages import find_page

pytestmark = [pytest.mark.services, pytest.mark.conformance(39)]
ROW = re.compile(
    r'find\?partition=(\d+)&amp;offset=(\d+)">[^<]*</a></th>\s*<td>([^<]*)</td>\s*<td>\s*([^<]*?)\s*</td>', re.DOTALL
)
Row = tuple[int, int, str, str]


def search(pages: PagesServer, log: Log, *, code: int = 200, **query: Any) -> str:
    with pages.client("vera") as client:
        answer = client.get(f"/streams/{log.stream.name}/find", params=httpx.QueryParams(**query))
    assert answer.status_code == code, answer.text
    return answer.text


def rows(page: str) -> list[Row]:
    return [(int(part), int(at), time, html.unescape(fate)) for part, at, time, fate in ROW.findall(page)]


def expected(records: list[Keyed], key: bytes, fate: str | None = None) -> list[Row]:
    own = sorted((item for item in records if item.key == key), key=lambda item: (item.partition, item.offset))
    return [
        (item.partition, item.offset, f"{item.time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC", fate or item.fate)
        for item in own
    ]


def test_a_days_records_of_a_key_are_in_offset_order_with_their_status(pages: PagesServer, keyed: Log) -> None:
    page = search(pages, keyed, day=MONDAY, key=RIDER.decode())
    wanted = expected(of_day(MONDAY), RIDER)
    assert [row[:2] for row in wanted] == [(0, 0), (0, 2), (0, 3), (1, 1), (1, 152)]
    assert rows(page) == wanted
    assert f"<h1>5 records of {MONDAY} have key “rider-7”.</h1>" in page
    assert "In version 1" in page
    assert "Continue the search" not in page
    for partition, offset, _, fate in wanted:
        one = search(pages, keyed, partition=partition, offset=offset)
        assert html.escape(fate, quote=False) in one
        assert keyed.layout.data_prefix in one


def test_a_key_that_is_no_text_is_found_by_its_bytes_in_hexadecimal(pages: PagesServer, keyed: Log) -> None:
    for text in ("00ff", "00 FF"):
        page = search(pages, keyed, day=MONDAY, key=text, form="hex")
        assert rows(page) == expected(of_day(MONDAY), BYTES)
        assert "<h1>1 record of 2013-01-14 has key 0x" in page
        assert '<option value="hex" selected>' in page
    assert rows(search(pages, keyed, day=MONDAY, key=RIDER.hex(), form="hex")) == expected(of_day(MONDAY), RIDER)


def test_more_than_a_hundred_records_are_shown_in_parts_without_a_gap(pages: PagesServer, keyed: Log) -> None:
    page = search(pages, keyed, day=MONDAY, key=MANY.decode())
    wanted = expected(of_day(MONDAY), MANY)
    assert len(wanted) == 150
    assert rows(page) == wanted[:100]
    assert "The first 100 records of 2013-01-14 with key “mäny &amp; &lt;more&gt;”; there are more." in page
    link = re.search(r'find\?([^"]*)">Continue the search', page)
    assert link is not None
    query: dict[str, Any] = dict(httpx.QueryParams(html.unescape(link[1])))
    rest = search(pages, keyed, **query)
    assert rows(rest) == wanted[100:]
    assert "<h1>50 more records of 2013-01-14 have key" in rest
    assert "Continue the search" not in rest


def test_without_a_record_the_page_says_what_was_searched(pages: PagesServer, keyed: Log) -> None:
    page = search(pages, keyed, day=MONDAY, key="nobody")
    objects = (*OBJECTS, LATE_OBJECT)
    inside = sum(
        item.partition == partition and start <= item.offset < end
        for _, partition, start, end in objects
        for item in of_day(MONDAY)
    )
    sealed = of_day(MONDAY, RECORDS)
    published = sum(item.fate == "published" for item in sealed)
    assert (rows(page), inside, len(sealed), published) == ([], 162, 157, 155)
    assert "<h1>No record of 2013-01-14 has key “nobody”.</h1>" in page
    assert f"Searched: {inside} rows of {MONDAY} in 4 objects of the archive. Each copy of a row counts." in page
    assert f"The newest version of {MONDAY} is 1, sealed 2" in page
    assert f"{len(sealed)} rows read, {published} published." in page


def test_a_day_that_is_not_sealed_is_searched_in_the_archive(pages: PagesServer, keyed: Log) -> None:
    for day in (TUESDAY, WEDNESDAY):
        page = search(pages, keyed, day=day, key=RIDER.decode())
        assert rows(page) == expected(of_day(day), RIDER, "not sealed yet")
        assert f"{day} is not sealed, so no version has its records yet." in page


@pytest.mark.parametrize(("day", "text"), [("2012-01-01", ""), ("2013-01-17", " yet")])
def test_of_a_day_without_archived_rows_nothing_is_said_about_the_key(
    pages: PagesServer, keyed: Log, day: str, text: str
) -> None:
    page = search(pages, keyed, day=day, key=RIDER.decode())
    assert f"<h1>The archive has no records of {day}{text}.</h1>" in page
    assert f"<p>{day} is not sealed, so no version has its records yet." in page


def test_a_day_without_rows_is_not_archived_unless_a_seal_proves_that_it_has_none(keyed: Log) -> None:
    found = find_key(keyed.settings, keyed.stream.name, MONDAY, RIDER, seconds=60)
    assert found.seal is not None
    empty = replace(found, objects=0, rows=0, records=())
    sealed = replace(
        empty, seal=replace(found.seal, rows_read=0, rows_published=0, rows_quarantined=0, deduplicated=None)
    )
    assert key_headline(empty, MONDAY, "x", continued=False) == f"The archive has no records of {MONDAY}."
    assert key_headline(sealed, MONDAY, "x", continued=False) == f"No record of {MONDAY} has key x."
    assert key_headline(sealed, MONDAY, "x", continued=True) == f"No more records of {MONDAY} have key x."


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"day": MONDAY, "key": "6b3", "form": "hex"}, "The key can&#39;t be understood: expected two hexadecimal"),
        ({"day": MONDAY, "key": "<b>", "form": "hex"}, "found &#39;&lt;b&gt;&#39;"),
        ({"day": MONDAY, "key": ""}, "The key is empty"),
        ({"day": "2013-02-30", "key": "x"}, "There is no day 2013-02-30"),
        ({"key": "x"}, "There is no day"),
        ({"day": MONDAY, "key": "\0", "form": "hex"}, "found &#39;\\x00&#39;"),
        ({"day": "\0", "key": "x"}, "There is no day \0"),
        ({"day": MONDAY, "key": "x", "from": "\0"}, "The place to continue from is not valid"),
    ],
)
def test_a_wrong_key_or_day_is_named_above_the_form(
    pages: PagesServer, keyed: Log, query: dict[str, Any], text: str
) -> None:
    page = search(pages, keyed, code=422, **query)
    assert text in page
    kept = re.search(r'<input id="key" [^>]*value="([^"]*)"', page)
    assert kept is not None
    assert html.unescape(kept[1]) == query["key"]
    assert "<b>" not in page


@pytest.mark.parametrize("text", ["\0", "1\0", "", "one", "-1", "1.5", "²", "9223372036854775808", "9" * 99])
def test_a_wrong_offset_or_partition_is_named_above_the_form(pages: PagesServer, keyed: Log, text: str) -> None:
    for name, other in (("offset", "partition"), ("partition", "offset")):
        page = search(pages, keyed, code=422, **{name: text, other: "0"})
        assert f"<p><strong>The {name} is not valid: expected a number from 0 to " in page
        assert "<h1>Nothing was searched.</h1>" in page


def test_a_key_with_a_null_character_is_searched_for(pages: PagesServer, keyed: Log) -> None:
    assert f"<h1>No record of {MONDAY} has key “\\x00a”.</h1>" in search(pages, keyed, day=MONDAY, key="\0a")


def test_the_page_without_a_question_has_both_forms(pages: PagesServer, keyed: Log) -> None:
    page = search(pages, keyed, day=MONDAY)
    for name in ("partition", "offset", "day", "key", "form"):
        assert f'<label for="{name}">' in page
        assert f'id="{name}" name="{name}"' in page
    assert f'value="{MONDAY}"' in page
    assert 'role="alert"' not in page


def test_with_the_catalog_down_the_records_are_shown_and_their_status_is_not_known(
    keyed: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = keyed.settings.model_copy(update={"catalog_uri": "jdbc:sqlite:/nowhere/catalog.db"})
    monkeypatch.setattr(find_page, "task_settings", lambda: broken)
    monkeypatch.setattr(find_page, "read_definition", lambda _: Part(value=keyed.stream))
    headline, answer = find_page._by_key(keyed.stream.name, str(MONDAY), RIDER.decode(), "text", "")
    assert headline == f"5 records of {MONDAY} have key “rider-7”."
    assert answer.statuses.error is not None
    assert answer.statuses.error.problem == "the catalog can't be read"
    page = rendered("find", root="", stream="s", found=Part(), by_key=answer, headline="", asked={})
    assert [row[3] for row in rows(page)] == [*["not known"] * 4, NEVER]
    assert "the catalog can&#39;t be read" in page


@pytest.mark.parametrize("day", [MONDAY, TUESDAY])
def test_the_command_lists_the_same_records_as_the_page(
    pages: PagesServer, keyed: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], day: date
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(where, "connect_s3", lambda _: keyed.settings)
    where.print_records(None, keyed.stream.name, day, RIDER.hex(), "hex", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    table = [line.split(maxsplit=5) for line in lines if re.match(r" *\d+ +\d+ ", line)]
    wanted = rows(search(pages, keyed, day=day, key=RIDER.decode()))
    listed = [(int(line[0]), int(line[1]), " ".join(line[2:5]), line[5]) for line in table]
    assert [(*row[:3], row[3].strip()) for row in listed] == wanted
    where.print_records(None, keyed.stream.name, day, RIDER.decode(), "text", as_json=True)
    found = valid_result("where", capsys.readouterr().out)
    assert (found["version"], found["next"]) == (1 if day == MONDAY else None, None)
    assert [(item["partition"], item["offset"]) for item in found["records"]] == [row[:2] for row in wanted]
    states = [": ".join(filter(None, item["status"])) for item in found["records"] if item["status"]]
    assert states == [row[3] for row in wanted if row[3] not in {NEVER, "not sealed yet"}]


def test_a_search_that_runs_out_of_time_continues_where_it_stopped(keyed: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    find = partial(find_key, keyed.settings, keyed.stream.name, MONDAY, RIDER, seconds=60)
    real = locate_key._search

    def slow(store: Any, file: Any, **options: Any) -> Any:
        return None if file.log.partition == 1 else real(store, file, **options)

    monkeypatch.setattr(locate_key, "_search", slow)
    first = find()
    assert (first.ended_by, first.next, first.objects) == ("time", (keyed.owner(1), 0), 2)
    assert [item.place[1] for item in first.records] == [0, 2, 3]
    with pytest.raises(ServiceError, match=r"the search took too long: expected an object of 152 rows within 60 s"):
        find(start=first.next)
    monkeypatch.setattr(locate_key, "_search", real)
    rest = find(start=first.next)
    assert (rest.ended_by, rest.next) == (None, None)
    assert [item.place for item in rest.records] == [(keyed.owner(1), 1), (keyed.owner(1), 152)]
    with pytest.raises(ServiceError, match="the search took too long"):
        find_key(keyed.settings, keyed.stream.name, MONDAY, RIDER, seconds=-1)


def test_the_time_to_read_the_ledger_does_not_count(keyed: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def slow(*arguments: Any) -> Any:
        now[0] += 100
        return read_archived(*arguments)

    monkeypatch.setattr(locate_key, "monotonic", lambda: now[0])
    monkeypatch.setattr(locate_key, "read_archived", slow)
    found = find_key(keyed.settings, keyed.stream.name, MONDAY, RIDER, seconds=60)
    assert (len(found.records), found.ended_by) == (5, None)


def test_half_a_character_is_no_key() -> None:
    with pytest.raises(RequestError, match="expected text in Unicode"):
        parse_key("\ud800", "text")
