"""The import of Kafka Connect's objects: what is imported, what is reported, and days rebuilt from it."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.archive.connect import header_lines, lines
from tests.archive.connect_world import MakeWorld
from tests.batch.logs import MONDAY, Log
from tests.batch.verifying import check, differences, seal
from tidemark.adopt import run
from tidemark.adopt.rows import ValueFields
from tidemark.adopt.run import Imported, import_objects
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import ConfigError, ConflictError, RequestError
from tidemark.core.offsets import OffsetRange
from tidemark.kafka.topics import describe_topic
from tidemark.verify.day import verify_day

pytestmark = pytest.mark.conformance(56)

OFFSETS = ValueFields(offset="_offset")


def problems(result: Imported) -> dict[str, str]:
    """Keys of the objects with problems, and the texts."""
    found = [(re.search(r"\[([^\[\]]*connect/topics[^\[\], ]*)", text), text) for text in result.problems]
    return {match[1] if match else "": text for match, text in found}


def test_an_imported_day_is_proven_after_kafka_lost_its_records(make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    world.produce(30)
    world.produce(14, partition=1)
    world.connect(0, 8, "json")
    world.connect(8, 14, "json.gz")
    world.connect(14, 20, "avro")
    world.connect(0, 6, "snappy.parquet", partition=1)
    world.connect(6, 9, "bin", partition=1)
    world.forget(17)
    world.forget(8, partition=1)
    archive(world.spark, world.stream, world.settings, available_now=True)
    before = world.sink.objects()

    result = world.adopt()

    logs = describe_topic(world.settings.kafka, world.stream.topic)
    # Kafka still holds [17, 20) of partition 0 and offset 8 of partition 1, and the stream archived them.
    assert [(item.log, item.read, item.known, item.rows) for item in result.logs] == [
        (logs[0], 3, 0, 17),
        (logs[1], 2, 0, 8),
    ]
    assert (result.compared, result.problems, [item.gaps for item in result.logs]) == (2, {}, [(), ()])
    assert world.sink.objects() == before
    assert world.numbers() == {**world.expected(*range(30)), **world.expected(*range(14), partition=1)}
    row = world.archived()[0, 3]
    moment = datetime.fromisoformat(world.values[0, 3]["at"])
    assert (row["event_time"], row["timestamp"], row["timestamp_type"]) == (moment, moment, -1)
    assert (row["key"], row["headers"]) == (None, [])
    assert json.loads(row["value"]) == world.values[0, 3]

    log = Log(stream=world.stream, settings=world.settings, produce_records=world.produce_records)
    sealed = seal(log, world.spark, "run-1")
    # Monday has twelve hours from noon on: none of them is in Kafka any more.
    assert (sealed.rows_read, sealed.rows_published) == (12 + 12, 24)
    found = verify_day(world.settings, world.stream.name, MONDAY)
    assert (found.verdict, differences(found)) == ("proven", "")
    assert check(found, "objects").notes == []


def test_keys_headers_and_timestamps_are_imported_where_the_sink_stored_them(make_world: MakeWorld) -> None:
    world = make_world(event_time={"extractor": "record"})
    world.produce(4)
    timestamps = [1_358_200_000_123 + 1000 * number for number in range(4)]
    values = [{**value, "_at": at} for value, at in zip(world.records(*range(4)), timestamps, strict=True)]
    key = world.sink.write(0, 0, values)
    stem = key.removesuffix(".json")
    world.sink.put(f"{stem}.keys.json", lines(["a", "b", "c", "d"]))
    world.sink.put(f"{stem}.headers.json", header_lines([[("h", str(number))] for number in range(4)]))
    with pytest.raises(ConfigError, match=r"no timestamp: expected .* or --timestamp-field, found record"):
        world.adopt()

    result = world.adopt(fields=ValueFields(timestamp="_at"))

    assert (result.problems, result.compared) == ({}, 2)
    for number, row in enumerate(row for _, row in sorted(world.archived().items())):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamps[number])
        assert (row["timestamp"], row["event_time"], row["timestamp_type"]) == (moment, moment, -1)
        assert (row["key"], row["headers"]) == (b"abcd"[number : number + 1], [{"key": "h", "value": b"%d" % number}])


def test_offsets_that_are_archived_are_not_imported_again(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(6)
    world.forget(3)
    archive(world.spark, world.stream, world.settings, available_now=True)
    world.produce(6)
    world.connect(0, 5)
    world.connect(5, 12)
    planned = world.adopt(dry_run=True)
    assert (planned.logs[0].rows, planned.manifests, len(world.archived())) == (9, [], 3)

    result = world.adopt()

    # The stream archived [3, 6). The rest of the two objects is two ranges.
    assert (result.logs[0].rows, len(result.manifests)) == (9, 2)
    assert sorted(world.oracle.archive().ranges) == [(0, 0, 3), (0, 3, 6), (0, 6, 12)]
    assert world.numbers() == world.expected(*range(12))


def test_a_second_run_imports_nothing_and_a_third_what_is_new(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(10)
    world.connect(0, 2)
    world.connect(2, 4)
    first = world.adopt()
    keys = world.oracle.keys("data")
    second = world.adopt()
    # The first object ends where the last one starts. The end of the last one is known only by reading it.
    assert [(item.read, item.known, item.rows) for item in second.logs] == [(1, 1, 0)]
    assert (second.manifests, second.problems, world.oracle.keys("data")) == ([], {}, keys)
    world.connect(4, 10)
    steps: list[tuple[int, int]] = []
    third = world.adopt(progress=lambda done, total: steps.append((done, total)))
    assert [(item.read, item.known, item.rows) for item in third.logs] == [(1, 2, 6)]
    assert steps == [(0, 1), (1, 1)]
    manifests = [json.loads(world.oracle.body(key)) for key in world.oracle.keys("manifests")]
    assert [(item["batch"], item["ranges"][0]["start"], item["ranges"][0]["end"]) for item in manifests] == [
        (0, 0, 4),
        (1, 4, 10),
    ]
    assert (len({item["writer"] for item in manifests}), manifests[1]["previous"] is None) == (1, False)
    world.forget(10)  # Kafka can't confirm the topic any more, which is needed for new records only
    last = world.adopt()
    assert ([(item.read, item.known, item.rows) for item in last.logs], last.compared) == ([(0, 3, 0)], 0)
    assert len(first.manifests) == 1


@pytest.mark.parametrize("point", ["write_range", "commit_batch"])
def test_an_import_that_is_killed_continues_without_a_duplicate(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    world = make_world(partitions=2)
    monkeypatch.setattr(run, "CHUNK_OBJECTS", 2)  # one of each log at a time
    for partition in range(2):
        world.produce(9, partition=partition)
        for start in range(0, 9, 3):
            world.connect(start, start + 3, partition=partition)
    step, calls = getattr(run, point), []

    def killed(*args: Any, **options: Any) -> Any:
        calls.append(1)
        done = step(*args, **options) if len(calls) == 1 or point == "write_range" else None
        if len(calls) == 2:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(run, point, killed)
    with pytest.raises(KeyboardInterrupt):
        world.adopt()
    both = [*world.expected(*range(3)), *world.expected(*range(3), partition=1)]
    assert sorted(world.archived()) == sorted(both)
    assert len(world.oracle.keys("data")) == 4  # two of them without a manifest
    monkeypatch.setattr(run, point, step)

    result = world.adopt()

    assert [(item.read, item.known, item.rows) for item in result.logs] == [(2, 1, 6), (2, 1, 6)]
    assert world.numbers() == {**world.expected(*range(9)), **world.expected(*range(9), partition=1)}
    # The objects of the killed batch are in use: they were found again by their keys.
    assert len(world.oracle.keys("data")) == len(world.oracle.archive().listed) == 6


def test_what_cannot_be_placed_is_reported_and_the_rest_is_imported(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(60)
    world.connect(0, 5)
    world.connect(50, 55)
    short = world.sink.write(0, 5, world.records(*range(5, 9)))
    long = world.sink.write(0, 10, world.records(*range(10, 16)))
    undated = world.sink.write(0, 15, [*world.records(15, 16), {"n": 1, "at": "noon"}, *world.records(18, 19)])
    torn = world.connect(20, 25, "avro")
    world.sink.put(torn, world.sink.objects()[torn][2][:-5])
    empty = world.sink.key(0, 25)
    world.sink.put(empty, b"")
    twins = [world.connect(35, 50), world.connect(35, 50, "avro")]
    without_values = world.sink.key(0, 40, "keys.json")
    csv = world.sink.key(0, 45, "csv")
    for key in (without_values, csv):
        world.sink.put(key, b"{}\n")

    result = world.adopt()

    texts = problems(result)
    assert texts.keys() == {short, long, undated, torn, empty, *twins, without_values, csv}
    unknown = "the offsets of an object's records are unknown: expected the 5 records of"
    assert texts[short].startswith(f"{unknown} [5, 10), found 4 records")
    assert texts[long].startswith(f"{unknown} [10, 15), found 6 records")
    assert texts[undated].startswith("1 of 5 records can't be read, line 3 first: expected an event time, found none")
    assert texts[torn].startswith("an object does not decode: expected a complete avro file, found ")
    assert texts[empty].startswith("an object has no records")
    assert texts[twins[0]].startswith("several objects start at the same offset: expected one object, found 2")
    assert texts[without_values].startswith("an object's key can't be used: expected ")
    assert "found another name or format" in texts[csv]
    assert world.numbers() == world.expected(*range(5), 15, 16, 18, 19, *range(50, 55))
    (log,) = result.logs
    assert (log.span, log.gaps) == (
        OffsetRange(start=0, end=55),
        tuple(OffsetRange(start=start, end=end) for start, end in ((5, 15), (17, 18), (20, 50))),
    )
    # A later run guesses nothing either.
    repeated = world.adopt()
    assert (repeated.logs[0].rows, problems(repeated)) == (0, texts)


def test_time_folders_are_imported_where_objects_follow_each_other(make_world: MakeWorld) -> None:
    world = make_world(partitions=3)
    for partition in range(3):
        world.produce(12, partition=partition)
        world.connect(0, 4, partition=partition, folder="year=2013/month=01/day=14/hour=12")
    # Partition 1 has a late record in its second hour: the count shows that two objects are mixed.
    world.connect(4, 12, folder="year=2013/month=01/day=14/hour=13")
    for start, offsets, hour in ((4, (4, 5, 7), 13), (6, (6,), 14), (8, (8, 9, 10, 11), 15)):
        world.sink.write(1, start, world.records(*offsets, partition=1), folder=f"hour={hour}")
    # Partition 2 lacks an offset that no object has, so later objects may hide records of others.
    for start, end, hour in ((4, 6, 13), (7, 9, 14), (9, 12, 15)):
        world.connect(start, end, partition=2, folder=f"hour={hour}")

    result = world.adopt()

    assert [item.rows for item in result.logs] == [12, 8, 4]
    assert world.numbers() == {
        **world.expected(*range(12)),
        **world.expected(*range(4), *range(8, 12), partition=1),
        **world.expected(*range(4), partition=2),
    }
    texts = problems(result)
    assert {key.rsplit("/", 1)[1] for key in texts} == {
        f"{world.stream.topic}+{partition}+{start:010}.json"
        for partition, start in ((1, 4), (1, 6), (2, 4), (2, 7), (2, 9))
    }
    assert all("name the field: --offset-field" in text for text in texts.values())


def test_mixed_objects_are_imported_by_their_offset_field(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=2)
    for partition in range(2):
        world.produce(12, partition=partition)
        cities: dict[str, list[int]] = {}
        for offset in range(12):
            if offset != 7:  # a record that the sink never got
                cities.setdefault("Lyon" if offset % 3 else "Nice", []).append(offset)
        for city, offsets in cities.items():
            for at in range(0, len(offsets), 5):
                own = offsets[at : at + 5]
                values = world.with_offsets(*own, partition=partition)
                world.sink.write(partition, own[0], values, folder=f"city={city}")
    # A sink that failed wrote a record again, in an object of another start.
    world.sink.write(0, 2, world.with_offsets(2, 4), folder="city=Lyon")
    monkeypatch.setattr(run, "CHUNK_OBJECTS", 4)  # so that objects stay open from one chunk to the next

    result = world.adopt(fields=OFFSETS)

    there = [offset for offset in range(12) if offset != 7]
    assert world.numbers() == {**world.expected(*there), **world.expected(*there, partition=1)}
    assert (result.problems, result.compared > 2) == ({}, True)
    gap = (OffsetRange(start=7, end=8),)
    assert [(item.rows, item.gaps) for item in result.logs] == [(11, gap), (11, gap)]
    repeated = world.adopt(fields=OFFSETS)
    assert ([item.rows for item in repeated.logs], repeated.manifests) == ([0, 0], [])


def test_a_field_that_is_not_the_offset_is_reported(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(6)
    good = world.sink.write(0, 0, [*world.with_offsets(0, 1), *world.records(2)], folder="city=Nice")
    wrong = world.sink.write(0, 3, [{**value, "_offset": 7} for value in world.records(3, 4)], folder="city=Lyon")
    result = world.adopt(fields=OFFSETS)
    texts = problems(result)
    assert texts.keys() == {good, wrong}
    assert texts[good].startswith(
        "1 of 3 records can't be read, line 3 first: expected an event time, and an offset in"
    )
    assert texts[wrong].startswith("field _offset is not the record's offset: expected offsets from 3 on, found 7")
    assert world.numbers() == world.expected(0, 1)


def test_objects_of_other_topics_are_counted_and_shown(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(3)
    others = {
        f"{world.sink.topics_dir}/other/partition=0/other+0+0000000000.json": "of topic other",
        f"{world.sink.topics_dir}/readme.txt": "not named <topic>+<partition>+<start>.<format>",
    }
    for key in others:
        world.sink.put(key, b"{}\n")
    with pytest.raises(
        RequestError, match=r"nothing to import: expected objects named .*\+<start>\.<format>, found 1 "
    ):
        world.adopt()
    world.connect(0, 3)
    result = world.adopt(dry_run=True)
    assert {key: reason for reason, keys in result.ignored.items() for key in keys} == others
    assert (result.logs[0].rows, result.problems) == (3, {})
    with pytest.raises(RequestError, match=r"nothing to import: .*found no object \[s3://.*/no/such/folder/\]"):
        import_objects(world.spark, world.settings, world.stream, "no/such/folder")


def test_objects_of_another_log_are_refused_as_far_as_kafka_shows_it(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(6)
    log = describe_topic(world.settings.kafka, world.stream.topic)[0]
    world.sink.write(0, 0, [*world.records(0, 1, 2), {"n": 99, "at": world.values[0, 3]["at"]}])
    with pytest.raises(
        ConflictError, match=r"(?s)does not hold the topic's records: expected at offset 3 Kafka's .*99"
    ):
        world.adopt()
    world.sink.write(0, 0, world.records(*range(6), 0))
    with pytest.raises(ConflictError, match=r"not hold the topic's records: expected offsets below 6, found 6"):
        world.adopt()
    world.connect(0, 4)
    after_end = world.sink.write(0, 6, world.records(0))
    with pytest.raises(ConflictError, match=r"not hold the topic's records: expected offsets below 6, found 6"):
        world.adopt()
    world.sink.client.delete_object(Bucket=world.settings.bucket, Key=after_end)
    other = world.sink.write(7, 0, world.records(0))
    with pytest.raises(ConflictError, match=r"not hold the topic's records: expected partition 0 to 0, found 7"):
        world.adopt()
    world.sink.client.delete_object(Bucket=world.settings.bucket, Key=other)
    world.forget(5)
    with pytest.raises(
        ConflictError, match=rf"nothing shows that they are of this topic.*--topic-id {re.escape(log.topic_id)}"
    ):
        world.adopt()
    with pytest.raises(ConflictError, match=r"nothing shows that they are of this topic"):
        world.adopt(topic_id="old")
    assert world.oracle.keys("manifests") == {}
    result = world.adopt(topic_id=log.topic_id)
    assert (result.compared, result.logs[0].rows) == (0, 4)


def test_a_stream_of_other_values_is_refused(make_world: MakeWorld) -> None:
    raw = make_world(event_time={"extractor": "record"}, value_format="raw", value_schema=None)
    with pytest.raises(ConfigError, match=r"imported values are JSON: expected value_format json, found raw"):
        raw.adopt()
