"""The delivery audit against records, archives and output topics written by hand, and an oracle in plain Python."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeStream, Produce, Record, unique
from tests.speed.delivered import VERSION, Delivery, Out, Source, counted, ms_of
from tidemark.batch.run import Run
from tidemark.delivery.audit import audit_delivery
from tidemark.delivery.span import parse_span
from tidemark.settings import Settings

SEED = 20131103
# The clocks go back at 02:00 of the third: that day has 25 hours.
FIRST, LAST = ms_of("2013-11-02T20:00"), ms_of("2013-11-04T03:00")


def audit(spark: SparkSession, log: Delivery, start: str, end: str | None = None) -> dict[str, Any]:
    """The audit's JSON object, after its counts were compared with the oracle's."""
    span = parse_span(start, end, log.stream.zone, datetime.now(UTC))
    run = Run(stream=log.stream, settings=log.settings, store=log.store, layout=log.layout, name=unique("delivery"))
    tally = audit_delivery(run, spark, span)
    assert counted(tally) == log.expected(span.start, span.end)
    return run.require("delivery")


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
    """What a stream in trouble may have made of a source record."""
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
            [letter, right],
            [letter, replace(letter, attempt=1), replace(letter, attempt=2), right],
            [letter, letter, right, right],
            [replace(right, topic_id="of-nobody")],
        ]
    )


def strangers(log: Delivery, ends: Sequence[int], dice: random.Random) -> list[Out]:
    """Records that no source record explains."""
    topic_id = log.topic_id

    def stranger(**said: Any) -> Out:
        base = Out(
            on_live=dice.random() < 0.5,
            key=b"k",
            value=b"stranger",
            topic_id=topic_id,
            partition=dice.randrange(3),
            offset=0,
            ms=dice.randrange(FIRST, LAST),
        )
        return replace(base, **said)

    return [
        *(stranger(topic_id=None) for _ in range(3)),
        *(stranger(offset=None) for _ in range(3)),
        *(stranger(partition=partition, offset=ends[partition] + 5) for partition in range(3)),
        *(stranger(partition=0, offset=offset) for offset in (4, 5, 41)),  # holes
        stranger(partition=17),
    ]


def test_an_audit_counts_what_the_oracle_counts_for_a_day_of_25_hours_and_for_its_hour_that_comes_twice(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce
) -> None:
    dice = random.Random(SEED)  # noqa: S311 - cases, no secrets
    log = Delivery.make(make_stream, settings, produce, partitions=3)
    old: list[Record] = [(None, b"from long before", ms_of("2011-01-01T00:00"), 0, [])] * 7
    produce(log.stream.speed.topic, old)
    log.write_sources(values(450, dice))
    ends = [150, 150, 150]
    # Two copies that overlap, one of them with holes that the other has as well; a tail that nobody archived.
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

    day = audit(spark, log, "2013-11-03")
    hour = audit(spark, log, "2013-11-03T01:30", "2013-11-03T01:30-05:00")

    assert day["verdict"] == "findings"
    assert len({item["hour"] for item in day["hours"]}) == 25
    assert {item["hour"][11:] for item in hour["hours"]} == {"01:00:00-04:00", "01:00:00-05:00"}
    live, _ = day["ranges"]["topics"]
    assert [item["start"] for item in live["partitions"]] == [7, 0, 0]
    for name in ("missing", "duplicated", "unexpected", "pending", "replayed", "unlike", "not_archived", "outside"):
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
    """Every example names a source offset, and a record where one is."""
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


@pytest.fixture
def delivered(make_stream: MakeStream, settings: Settings, produce: Produce) -> Delivery:
    """Twenty records of one hour, archived and delivered; every fifth is a dead letter."""
    log = Delivery.make(make_stream, settings, produce)
    start = ms_of("2013-01-14T09:00")
    bodies = [b"{" if n % 5 == 0 else b'{"n":%d0}' % n for n in range(20)]
    log.write_sources([(0, start + n * 1000, body) for n, body in enumerate(bodies)])
    log.archive("a", 0, 0, 20)
    log.deliver([log.right(source) for source in log.sources.values()])
    log.stand_at({0: 20})
    return log
