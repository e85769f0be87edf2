"""A time field in another form than the definition has: the days, checks, reports and tables of such records."""

import json

import pytest
from pyspark.sql import SparkSession

from tests.batch.logs import MONDAY, TUESDAY, at
from tests.batch.steps import reconcile
from tests.conftest import MakeStream, Produce
from tidemark.archive.stream.driver import archive
from tidemark.reconcile.results import AUDIT
from tidemark.run import Run
from tidemark.settings import Settings

pytestmark = pytest.mark.conformance(76)
TIME = {"extractor": "record_field", "field": "$.at", "format": "epoch_s"}
REASON = "event_time: $.at has no time such as 1769862600"


def value(number: int, moment: object) -> bytes:
    return json.dumps({"n": number, "at": moment}).encode()


@pytest.mark.parametrize("on_unreadable", ["timestamp", "reject"])
def test_a_day_with_too_many_times_that_can_not_be_read_says_so_and_rejects_them_if_asked(
    spark: SparkSession, settings: Settings, make_stream: MakeStream, produce: Produce, on_unreadable: str
) -> None:
    stream = make_stream(
        value_schema="n INT, at BIGINT",
        event_time=TIME | {"on_unreadable": on_unreadable, "unreadable_alarm_share": 0.25},
        time_zone="America/New_York",
    )
    monday = at(MONDAY, 9) // 1000
    # Four of Monday and its three with milliseconds were sent on Tuesday, with one of Tuesday that has no field.
    times = [*[monday] * 4, *[monday * 1000] * 3, None, *[at(TUESDAY, 8) // 1000] * 6]
    produce(stream.topic, [(b"k", value(n, moment), at(TUESDAY, 9), 0, []) for n, moment in enumerate(times)])
    archive(spark, stream, settings, available_now=True)
    run = Run.open(stream.name, "run-1", settings)
    reconcile(run, spark, [MONDAY, TUESDAY])
    report = json.loads(run.store.get(run.layout.run_key(run.name, "report.json")) or b"")["result"]

    own = {item.day: item for item in run.require(AUDIT).checks if item.expected.expectation == "tidemark_times_read"}
    counts = {day: (item.success, item.observed) for day, item in own.items()}
    assert counts == {
        MONDAY: (True, {"element_count": 4, "unexpected_count": 0}),
        TUESDAY: (False, {"element_count": 10, "unexpected_count": 4}),
    }
    uses = {item["day"]: (item["answer"], item["because"]) for item in report["use"]}
    assert uses[MONDAY.isoformat()][0] == "yes"
    assert uses[TUESDAY.isoformat()] == ("limited", "1 check of severity warning did not pass.")
    (check,) = (
        item for item in report["quality"]["checks"] if item["day"] == TUESDAY.isoformat() and not item["passes"]
    )
    assert check["about"] == "at most 25 % of the records have no time in $.at"
    assert any("at most 25 % of the records have no time in $.at" in item for item in report["todo"])

    table = f"{settings.catalog}.{settings.namespace}.{stream.table}"
    days = {row.n: row["_day"] for row in spark.table(table).select("n", "_day").collect()}
    aside = spark.table(f"{table}_quarantine").select("_offset", "_day", "reason").collect()
    expected = {n: MONDAY if n < 4 else TUESDAY for n in range(14)}
    if on_unreadable == "timestamp":
        assert (days, aside) == (expected, [])
    else:
        assert days == {n: day for n, day in expected.items() if n not in range(4, 8)}
        assert sorted(tuple(row) for row in aside) == [(n, TUESDAY, REASON) for n in range(4, 8)]
