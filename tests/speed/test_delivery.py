"""The delivery audit on records, archives and output topics made by hand, compared with an oracle in plain Python."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.command_json import valid_result
from tests.conftest import MakeStream, MakeTopic, Produce, Record, unique
from tests.speed.delivered import TRANSFORM, VERSION, Delivery, Out, Source, counted, ms_of, saved
from tidemark.cli.app import app
from tidemark.delivery_audit import output_topics
from tidemark.delivery_audit.audit import audit_delivery
from tidemark.delivery_audit.compare import hour_start
from tidemark.delivery_audit.output_topics import safe_since
from tidemark.delivery_audit.span import parse_span
from tidemark.run import Run
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(54)

SEED = 20131103
NINE, TEN = "2013-01-14T09:00", "2013-01-14T10:00"
# The clocks go back at 02:00 of the third: that day has 25 hours.
FIRST, LAST = ms_of("2013-11-02T20:00"), ms_of("2013-11-04T03:00")


def audit(spark: SparkSession, log: Delivery, start: str = NINE, end: str | None = TEN) -> dict[str, Any]:
    """The audit's JSON object, whose counts must be the oracle's."""
    span = parse_span(start, end, log.stream.zone, datetime.now(UTC))
    run = Run(stream=log.stream, settings=log.settings, store=log.store, layout=log.layout, name=unique("delivery"))
    tally = audit_delivery(run, spark, span)
    if log.known:
        assert counted(tally) == log.expected(span.start, span.end)
    return saved(run)


def values(count: int, dice: random.Random) -> list[tuple[int, int, bytes | None]]:
    """Records over three partitions at random times, so that many of them are late."""
    bodies: list[bytes | None] = [None, b"{", b'{"n":"x"}', b"\xff"]
    made = []
    for n in range(count):
        name = {"name": f"naïve {n}"} if n % 3 else {}
        body = dice.choice(bodies) if dice.random() < 0.1 else json.dumps({"n": n, **name}).encode()
        made.append((n % 3, dice.randrange(FIRST, LAST), body))
    return made


def copies(log: Delivery, source: Source, dice: random.Random) -> list[Out]:
    """The output records that a faulty stream may have made of a source record."""
    right, letter = log.right(source), log.letter(source)
    on_live = replace(letter, on_live=True, value=b'{"twice":1,"name":null}')
    wrong = on_live if source.live is None else letter
    return dice.choice(
        [
            *([right] for _ in range(15)),
            *([] for _ in range(2)),
            [right, right],
            [right, right, right],
            [replace(right, value=b"something else")],
            [replace(right, value=None, version=VERSION - 1)],
            [right, replace(right, key=b"another key")],
            [wrong],
            [replace(wrong, version=VERSION - 1)],
            [right, wrong],
            [replace(letter, exception="too_large")],
            [replace(letter, exception="too_large"), replace(letter, exception="too_large")],
            [replace(letter, exception="without_value", key=None, value=None)],
            [replace(letter, exception="without_value")],
            [letter, right],
            [letter, replace(letter, attempt=1), replace(letter, attempt=2), right],
            [letter, letter, right, right],
            [replace(right, topic_id="of-nobody")],
        ]
    )


def strangers(log: Delivery, ends: Sequence[int], dice: random.Random) -> list[Out]:
    """Records without a source record."""
    topic_id = log.topic_id

    def stranger(**changes: Any) -> Out:
        base = Out(
            on_live=dice.random() < 0.5,
            key=b"k",
            value=b"stranger",
            topic_id=topic_id,
            partition=dice.randrange(3),
            offset=0,
            ms=dice.randrange(FIRST, LAST),
        )
        return replace(base, **changes)

    return [
        *(stranger(topic_id=None) for _ in range(3)),
        *(stranger(offset=None) for _ in range(3)),
        *(stranger(partition=partition, offset=ends[partition] + 5) for partition in range(3)),
        *(stranger(partition=0, offset=offset) for offset in (4, 5, 41)),  # holes
        stranger(partition=17),
    ]


def test_an_audit_agrees_with_the_oracle_on_a_day_of_25_hours(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    dice = random.Random(SEED)  # noqa: S311 - cases, no secrets
    log = Delivery.make(make_stream, settings, produce, partitions=3)
    old: list[Record] = [(None, b"from long before", ms_of("2011-01-01T00:00"), 0, [])] * 7
    produce(log.stream.speed.topic, old)
    log.write_sources(values(450, dice))
    ends = [150, 150, 150]
    # Two overlapping copies, one of them with holes that the other has too; a tail that is not archived.
    log.archive("a", 0, 0, 60, without=[4, 5, 41])
    log.archive("b", 0, 30, 150, without=[41])
    log.archive("a", 1, 0, 100)
    log.archive("b", 1, 40, 150)
    log.archive("a", 2, 0, 140)
    sources = [item for place, item in log.sources.items() if place not in {(0, 4), (0, 5), (0, 41)}]
    outs = [out for source in sources for out in copies(log, source, dice)] + strangers(log, ends, dice)
    half = len(outs) // 2
    log.deliver(outs[:half])
    log.replay_until(sum(not out.on_live for out, _ in log.outs))
    log.deliver(outs[half:])
    log.stand_at({0: 150, 1: 120, 2: 150})

    day = audit(spark, log, "2013-11-03", None)
    hour = audit(spark, log, "2013-11-03T01:30", "2013-11-03T01:30-05:00")

    assert day["verdict"] == "findings"
    assert len({item["hour"] for item in day["hours"]}) == 25
    assert {item["hour"][11:] for item in hour["hours"]} == {"01:00:00-04:00", "01:00:00-05:00"}
    live, _ = day["ranges"]["topics"]
    assert [item["start"] for item in live["partitions"]] == [7, 0, 0]
    for name in ("missing", "duplicated", "unexpected", "pending", "replayed", "mismatched", "not_archived", "outside"):
        assert day["counts"][name] > 0, name
    assert set(day["unexpected"]) == {
        "no_coordinates",
        "other_log",
        "no_such_record",
        "wrong_topic",
        "wrong_topic_other_version",
        "changed",
        "changed_other_version",
    }
    _examples_are_true(log, day)


def _examples_are_true(log: Delivery, value: dict[str, Any]) -> None:
    """Every example names a source offset, and a record if there is one."""
    at = {
        (log.stream.speed.topic if out.on_live else log.stream.speed.dead_letter_topic, out.to, offset): out
        for out, offset in log.outs
    }
    shown = [(item["partition"], example) for item in value["hours"] for example in item["examples"]]
    assert {example["outcome"] for _, example in shown} > {"missing", "duplicated", "unexpected", "pending"}
    for partition, example in shown:
        if example["outcome"] in {"missing", "pending"}:
            assert example["topic"] is None
            assert (partition, example["offset"]) in log.archived
        elif example["kind"] != "no_coordinates":
            out = at[example["topic"], example["partition"], example["at"]]
            assert (out.partition, out.offset) == (partition, example["offset"])


def one_hour(make_stream: MakeStream, settings: Settings, produce: Produce) -> Delivery:
    """Twenty records between nine and ten; every fifth is a dead letter."""
    log = Delivery.make(make_stream, settings, produce)
    bodies = [b"{" if n % 5 == 0 else b'{"n":%d0}' % n for n in range(20)]
    log.write_sources([(0, ms_of(NINE) + n * 1000, body) for n, body in enumerate(bodies)])
    return log


@pytest.fixture
def hour(make_stream: MakeStream, settings: Settings, produce: Produce) -> Delivery:
    """``one_hour``, archived, with a speed stream's checkpoint at its end."""
    log = one_hour(make_stream, settings, produce)
    log.archive("a", 0, 0, 20)
    log.stand_at({0: 20})
    return log


def test_a_complete_span_passes_and_one_without_records_is_unknown(spark: SparkSession, hour: Delivery) -> None:
    hour.deliver([hour.right(source) for source in hour.sources.values()])
    whole = audit(spark, hour)
    assert (whole["verdict"], whole["sentences"]) == ("pass", [])
    assert {name: number for name, number in whole["counts"].items() if number} == {"archived": 20, "delivered": 20}
    empty = audit(spark, hour, TEN, "2013-01-14T11:00")
    assert (empty["verdict"], empty["counts"]["archived"]) == ("unknown", 0)
    assert empty["sentences"] == ["the archive has no row of the span"]


def test_another_streams_dead_letters_on_a_shared_topic_are_not_counted(
    spark: SparkSession, hour: Delivery, make_stream: MakeStream, make_topic: MakeTopic
) -> None:
    neighbour = make_stream(
        transform=TRANSFORM,
        version=VERSION,
        value_schema="n BIGINT, name STRING",
        topic=hour.stream.topic,
        speed={"topic": make_topic(), "dead_letter_topic": hour.stream.speed.dead_letter_topic},
    )
    other = replace(hour, stream=neighbour, outs=[])
    rights = [hour.right(source) for source in hour.sources.values()]
    lost = rights[10]
    assert not lost.on_live
    hour.deliver([out for out in rights if out is not lost])
    # Both streams reject four records, the other stream one more.
    other.deliver([*map(other.right, hour.sources.values()), other.letter(hour.sources[0, 3])])

    without = audit(spark, hour)
    hour.deliver([lost])
    whole = audit(spark, hour)

    counts = [{name: number for name, number in value["counts"].items() if number} for value in (without, whole)]
    assert counts == [
        {"archived": 20, "delivered": 19, "missing": 1, "other_stream": 5},
        {"archived": 20, "delivered": 20, "other_stream": 5},
    ]
    assert [value["verdict"] for value in (without, whole)] == ["findings", "pass"]
    assert [(item["outcome"], item["offset"]) for item in without["hours"][0]["examples"]] == [("missing", 10)]


def test_records_that_retention_or_an_open_transaction_may_hide_are_pending(
    spark: SparkSession, hour: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_topics, "OPEN_TRANSACTION_S", 1)
    rights = [hour.right(source) for source in hour.sources.values()]
    lives = [out for out in rights if out.on_live]
    hour.deliver([out for out in rights if out != lives[-1]])
    bootstrap, topic = hour.settings.kafka_bootstrap, hour.stream.speed.topic
    hour.known = False
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("hidden")})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, lives[-1].value, lives[-1].key, 0, headers=list(lives[-1].headers))
    assert producer.flush(60) == 0

    hidden = audit(spark, hour)
    assert (hidden["verdict"], hidden["pending"]) == ("unknown", {"open_transaction": 1})
    producer.abort_transaction(60)
    lost = audit(spark, hour)
    assert (lost["verdict"], lost["counts"]["missing"], lost["counts"]["delivered"]) == ("findings", 1, 19)
    (example,) = lost["hours"][0]["examples"]
    assert (example["outcome"], example["offset"], example["topic"]) == ("missing", lives[-1].offset, None)

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 3)])[TopicPartition(topic, 0, 3)].result()
    taken = audit(spark, hour)
    assert (taken["verdict"], taken["pending"]) == ("unknown", {"retention": 4})
    assert taken["counts"]["delivered"] == 16


def test_unarchived_records_are_unknown_and_without_a_checkpoint_nothing_is_missing(
    spark: SparkSession, make_stream: MakeStream, settings: Settings, produce: Produce
) -> None:
    log = one_hour(make_stream, settings, produce)
    log.known = False
    log.archive("a", 0, 0, 8)
    log.archive("a", 0, 12, 20)
    log.deliver([log.right(source) for source in log.sources.values() if source.offset < 15])
    found = audit(spark, log)
    assert found["verdict"] == "unknown"
    assert {name: number for name, number in found["counts"].items() if number} == {
        "archived": 16,
        "delivered": 11,
        "pending": 5,
        "not_archived": 4,
    }
    assert found["pending"] == {"not_delivered": 5}
    assert [(item["partition"], item["start"], item["end"]) for item in found["ranges"]["unarchived"]] == [(0, 8, 12)]


def test_hours_follow_the_time_zone_even_with_a_half_hour_offset(spark: SparkSession) -> None:
    moments = ["2013-01-14T10:29:59.999999+05:30", "2013-01-14T10:30:00+05:30", "1969-12-31T23:59:00+05:30"]
    micros = [
        (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        for text in moments
    ]
    frame = spark.createDataFrame([(item,) for item in micros], "at bigint")
    hours = [
        row[0] for row in frame.orderBy(F.col("at").desc()).select(hour_start(F.col("at"), "Asia/Kolkata")).collect()
    ]
    times = [datetime.fromtimestamp(item / 1e6, ZoneInfo("Asia/Kolkata")).isoformat() for item in hours]
    assert times == ["2013-01-14T10:00:00+05:30", "2013-01-14T10:00:00+05:30", "1969-12-31T23:00:00+05:30"]


@pytest.fixture
def command(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str, str]]:
    """``tidemark delivery`` in this process and session: its exit code, standard output and standard error."""
    monkeypatch.setattr("tidemark.cli.spark.quiet_session", lambda _settings, _name: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _self: None)
    for name, value in (("COLUMNS", "200"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as ended:
            app(["delivery", *arguments])
        return ended.value.code, *capsys.readouterr()

    return run


def test_the_command_prints_table_examples_and_exits_by_the_verdict(
    command: Callable[..., tuple[object, str, str]], hour: Delivery
) -> None:
    hour.deliver([hour.right(source) for source in hour.sources.values() if source.offset != 19])
    code, out, _ = command(hour.stream.name, "--from", NINE, "--to", TEN)
    assert code == 1
    assert f"{hour.stream.name}: findings" in out
    assert "missing: source partition 0 offset 19, 2013-01-14T09:00:00-05:00, on neither topic" in out
    (key,) = [item.key for item in hour.store.list(hour.layout.run_prefix) if item.key.endswith(".json")]
    assert key in out
    code, out, _ = command(hour.stream.name, "--from", NINE, "--to", TEN, "--json")
    found = valid_result("delivery", out)
    assert (code, found["verdict"]) == (1, "findings")
    assert (found["counts"]["missing"], found["counts"]["delivered"]) == (1, 19)


def test_a_command_that_cannot_audit_exits_as_unknown(command: Callable[..., tuple[object, str, str]]) -> None:
    for kind, arguments in (
        ("ConfigError", ["no_such_stream"]),
        ("RequestError", ["flights", "--from", "2013-01-15", "--to", "2013-01-14"]),
    ):
        code, out, error = command(*arguments)
        assert (code, out) == (2, "")
        assert error.startswith(f"{kind}: ")


def test_topics_are_read_from_the_earliest_timestamp_that_the_source_allows(
    settings: Settings, make_topic: MakeTopic
) -> None:
    at = datetime(2013, 1, 14, 12, tzinfo=UTC)
    bounded = make_topic(message_timestamp_after_max_ms="7200000")
    unbounded = make_topic(message_timestamp_after_max_ms=str(2**63 - 1))
    by_broker = make_topic(message_timestamp_type="LogAppendTime")
    found = [safe_since(settings.kafka, topic, at) for topic in (bounded, unbounded, by_broker)]
    assert found == [datetime(2013, 1, 14, 9, 50, tzinfo=UTC), None, datetime(2013, 1, 14, 11, 50, tzinfo=UTC)]
