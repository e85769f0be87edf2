"""Search a day by key where the archive is not as usual: of two topics, with objects that can't be read."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx
import pytest

from tests.batch.logs import MONDAY, ZONE, Log, Produce
from tests.batch.objects import archive_rows
from tests.command_json import valid_result
from tidemark.cli import where
from tidemark.cli.app import app
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.definitions.stream import Stream
from tidemark.pages.part import Part
from tidemark.pages.render import page
from tidemark.settings import Settings
from tidemark_airflow.pages import find_page

pytestmark = pytest.mark.services
KEY = "rider-7"
NOON = datetime(MONDAY.year, MONDAY.month, MONDAY.day, 12, tzinfo=ZONE).astimezone(UTC)


@pytest.fixture
def log(settings: Settings, make_stream: Callable[..., Stream], produce: Produce) -> Log:
    """A stream without an archive."""
    return Log(stream=make_stream(time_zone=str(ZONE)), settings=settings, produce_records=produce)


def archive(log: Log, owner: TopicPartition, writer: str, offsets: Iterable[int]) -> str:
    """Archive records of the key, at noon of Monday; the object's key."""
    rows: list[dict[str, Any]] = [
        {
            "topic": owner.topic,
            "partition": owner.partition,
            "offset": offset,
            "timestamp": NOON,
            "timestamp_type": 0,
            "key": KEY.encode(),
            "value": b"v",
            "headers": [],
            "event_time": NOON,
        }
        for offset in offsets
    ]
    span = OffsetRange(start=rows[0]["offset"], end=rows[-1]["offset"] + 1)
    key, manifest = archive_rows(log.store, log.layout, ZONE, writer=writer, batch=0, log=owner, span=span, rows=rows)
    assert log.store.put_if_absent(log.layout.manifest_key(writer, 0), manifest.to_json())
    return key


@pytest.fixture
def search(log: Log, monkeypatch: pytest.MonkeyPatch) -> Callable[..., find_page.KeyAnswer]:
    """The page's answer about the key, from a place on."""
    monkeypatch.setattr(find_page, "task_settings", lambda: log.settings)
    monkeypatch.setattr(find_page, "read_definition", lambda _: Part(value=log.stream))
    by_key = partial(find_page._by_key, log.stream.name, str(MONDAY), KEY, "text")
    return lambda start="": by_key(start)[1]


@pytest.fixture
def command(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Exit code and output of ``tidemark where STREAM --day DAY --key KEY`` with further options."""

    def run(*options: str) -> tuple[int, str]:
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(where, "connect_s3", lambda _: log.settings)
        try:
            app(["where", log.stream.name, "--day", str(MONDAY), "--key", KEY, *options])
        except SystemExit as ended:
            return int(ended.code or 0), capsys.readouterr().out
        raise AssertionError("a command ends with an exit code")

    return run


def places(answer: find_page.KeyAnswer) -> list[tuple[str, int]]:
    assert answer.search.value is not None
    return [(item.place[0].topic, item.place[1]) for item in answer.search.value.records]


def test_a_search_continues_in_the_topic_where_it_stopped(
    log: Log, search: Callable[..., Any], command: Callable[..., tuple[int, str]]
) -> None:
    now = log.owner()
    earlier = TopicPartition(topic=f"a.{now.topic}", topic_id=now.topic_id, partition=0)
    archive(log, earlier, "query-a", range(120))
    archive(log, now, "query-b", range(5))
    first = search()
    place = f"{earlier.topic}:{earlier.topic_id}:0:100"
    assert httpx.QueryParams(first.continued)["from"] == place
    rest = search(place)
    assert places(first) == [(earlier.topic, offset) for offset in range(100)]
    assert places(rest) == [
        *((earlier.topic, offset) for offset in range(100, 120)),
        *((now.topic, offset) for offset in range(5)),
    ]
    assert rest.continued == ""
    assert f"To list more records, add: --from {place}" in command()[1]
    assert valid_result("where", command("--json")[1])["next"] == place
    code, text = command("--from", place)
    assert (code, text.splitlines()[0]) == (0, f"25 more records of {MONDAY} have key “{KEY}”.")
    found = valid_result("where", command("--from", place, "--json")[1])
    assert [item["offset"] for item in found["records"]] == [*range(100, 120), *range(5)]
    assert found["next"] is None


@pytest.mark.parametrize("text", ["id:0:100", "topic:id:0:", "topic:id:0:100\n", "topic:id:0:-1"])
def test_a_place_that_no_search_has_named_is_refused(
    search: Callable[..., Any], command: Callable[..., tuple[int, str]], text: str
) -> None:
    assert command("--from", text)[0] == 2
    answer = search(text)
    assert answer.refused.startswith("The place to continue from is not valid: expected TOPIC:TOPIC_ID:")
    assert answer.search == Part()


def test_damaged_and_missing_objects_end_no_search_and_are_named(
    log: Log, search: Callable[..., Any], command: Callable[..., tuple[int, str]]
) -> None:
    owner = log.owner()
    keys = [archive(log, owner, f"query-{at}", range(at * 10, at * 10 + 2)) for at in range(6)]
    body = log.store.get(keys[1])
    assert body is not None
    log.store.put(keys[1], body[:-1])
    log.store.put(keys[2], b"PAR1 garbage")
    log.store.put(keys[3], b"")
    log.store.delete(keys[4])
    answer, (code, text) = search(), command("--json")
    assert places(answer) == [(owner.topic, offset) for offset in (0, 1, 50, 51)]
    found = valid_result("where", text)
    assert [item["offset"] for item in found["records"]] == [0, 1, 50, 51]
    assert [item["object"] for item in found["unread"]] == keys[1:5]
    assert [item["error"].split(":")[0] for item in found["unread"]] == [
        *["a data object does not read as Parquet"] * 3,
        "a committed object is missing",
    ]
    assert (code, found["rows"], found["objects"], found["next"]) == (2, 4, 2, None)
    shown = page("find", root="", stream="s", found=Part(), by_key=answer, headline="", asked={})
    for output in (shown, command()[1]):
        assert "The answer may lack records: 4 objects could not be read." in output
        for key in keys[1:5]:
            assert f"[{key}]" in output


def test_without_a_readable_object_nothing_is_said_of_its_records(
    log: Log, search: Callable[..., Any], command: Callable[..., tuple[int, str]]
) -> None:
    for at in range(12):
        log.store.put(archive(log, log.owner(), f"query-{at:02}", [at]), b"garbage")
    code, text = command()
    assert (code, places(search())) == (2, [])
    assert f"No record of {MONDAY} has key “{KEY}” in the objects that could be read." in text
    assert f"Searched: 0 rows of {MONDAY} in 0 objects of the archive." in text
    assert "2 further objects could not be read either." in text
