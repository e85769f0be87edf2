"""A day of real flights that is broken in five ways: what the report says, what readers see, and the fix."""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from math import ceil, floor, sqrt
from pathlib import Path
from statistics import median
from typing import Any
from zlib import crc32

import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.batch.flights import KEY, Departure, departures
from tests.batch.logs import Log
from tests.batch.test_certificates import PUBLIC, downloaded, signing
from tests.batch.test_report import page_of
from tests.conftest import MakeStream, Produce, Record
from tidemark.archive.stream.driver import archive
from tidemark.core.errors import QualityError
from tidemark.installation import PROJECT
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.publish import publish_run
from tidemark.reconcile.rebuild.step import rebuild_run
from tidemark.reconcile.report.page import SIZE_MAX
from tidemark.reconcile.report.report import report_run
from tidemark.reconcile.results import REPORT
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.settings import Settings

DAY = date(2013, 2, 6)
WEEKDAYS = tuple(DAY - timedelta(weeks=number) for number in (4, 3, 2, 1))
BEFORE = (*WEEKDAYS, DAY - timedelta(days=1))
NOON, DROPPED, DOUBLED = 12, 15, 18
NOT_NULL = {"expectation": "expect_column_values_to_not_be_null", "kwargs": {"column": "dest"}}
UNIQUE = {"expectation": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": list(KEY)}}
HOURS = {"expectation": "expect_hourly_row_counts_to_match_history", "kwargs": {}}
MISFIT = "a field of the value does not fit the stream's value_schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenDay:
    """A day's flights: good until noon, and broken after it."""

    morning: list[Departure]
    dropped: list[Departure]
    doubled: list[Departure]
    distances: list[Departure]
    numbers: list[Departure]
    nulls: list[Departure]
    twice: list[Departure]
    good: list[Departure]

    @classmethod
    def of(cls, flights: Sequence[Departure]) -> "BrokenDay":
        others = [item for item in flights if item.hour >= NOON and item.hour not in {DROPPED, DOUBLED}]
        return cls(
            morning=[item for item in flights if item.hour < NOON],
            dropped=[item for item in flights if item.hour == DROPPED],
            doubled=[item for item in flights if item.hour == DOUBLED],
            distances=others[0::60],
            numbers=others[30::60],
            nulls=others[1::15],
            twice=others[2::25],
            good=[item for at, item in enumerate(others) if at % 30 and at % 15 != 1 and at % 25 != 2],
        )

    @property
    def decoded(self) -> list[Departure]:
        """The afternoon's records with the right types, as the producer sends them."""
        nulls = [item.changed(dest=None) for item in self.nulls]
        return [*self.good, *nulls, *self.twice * 2, *self.doubled * 2]

    @property
    def resent(self) -> list[Departure]:
        """What the producer sends again, as it should have been."""
        return [*self.dropped, *self.nulls, *self.numbers, *self.distances]

    @property
    def misfits(self) -> list[Departure]:
        """The afternoon's records with wrong types."""
        distances = [item.changed(distance_miles="far") for item in self.distances]
        return distances + [item.changed(flight=f"no. {item.event['flight']}") for item in self.numbers]


@pytest.fixture
def log(settings: Settings, make_stream: MakeStream, produce: Produce) -> Log:
    """The project's stream of flights, with the profile and three checks that block."""
    streams = PROJECT / "include" / "streams"
    given = yaml.safe_load((streams / "flights.yaml").read_text(encoding="utf-8"))
    stream = make_stream(
        partitions=3,
        transform=(streams / "flights.py").read_text(encoding="utf-8"),
        value_schema=given["value_schema"],
        time_zone=given["time_zone"],
        batch={"wait_seconds": 0, "profile": "default", "checks": [NOT_NULL, UNIQUE, HOURS]},
    )
    return Log(stream=stream, settings=settings, produce_records=produce)


def send(log: Log, spark: SparkSession, flights: Sequence[Departure]) -> None:
    """Send the flights to Kafka in order, and archive them."""
    ordered = sorted(flights, key=lambda item: item.moment)
    records: list[Record] = [(item.key, item.value, item.timestamp_ms, crc32(item.key) % 3, []) for item in ordered]
    log.produce_records(log.stream.topic, records)
    archive(spark, log.stream, log.settings, available_now=True)


def rebuilt(log: Log, spark: SparkSession, name: str, days: Sequence[date]) -> Run:
    """A signing run of the stream as it is defined now, up to its rebuild."""
    run = signing(Run.open(log.stream.name, name, log.settings))
    plan_run(run, days, False)
    finalize_plan_run(run)
    rebuild_run(run, spark)
    return run


def seal(run: Run, spark: SparkSession) -> None:
    """The steps after the rebuild."""
    audit_run(run, spark)
    publish_run(run, spark)
    seal_run(run)


def rows(log: Log, spark: SparkSession) -> Counter[tuple[Any, ...]]:
    """The day as readers see it, in the form of ``Departure.row``."""
    table = spark.table(f"{log.settings.catalog}.{log.settings.namespace}.{log.stream.table}")
    found = table.where(F.col("_day") == DAY).select(*KEY, "dest").collect()
    return Counter((*row[:3], row[3].astimezone(UTC).isoformat(), row[4]) for row in found)


def expected_rows(flights: Sequence[Departure], hour: int) -> tuple[int, int, int]:
    """What the same weekdays let expect of an hour: their median, half of it less, and half of it more."""
    middle = median(sum((item.day, item.hour) == (day, hour) for item in flights) for day in WEEKDAYS)
    allowed = max(middle / 2, 3 * sqrt(middle))
    return round(middle), ceil(middle - allowed), floor(middle + allowed)


def outcome(report: dict[str, Any], check: dict[str, Any]) -> dict[str, Any]:
    """A check's result in the report."""
    (found,) = (item for item in report["quality"]["checks"] if item["expectation"] == check["expectation"])
    assert isinstance(found, dict)
    return found


def test_five_faults_of_real_flights_are_named_block_and_pass_after_the_fix(
    log: Log, spark: SparkSession, tmp_path: Path
) -> None:
    flights = departures([*BEFORE, DAY])
    whole = [item for item in flights if item.day == DAY]
    day = BrokenDay.of(whole)
    old = Counter(item.row for item in day.morning)

    # The stream's first run: the weeks before, and what has come of the day by noon.
    send(log, spark, [*(item for item in flights if item.day in BEFORE), *day.morning])
    seal(rebuilt(log, spark, "first", [*BEFORE, DAY]), spark)
    assert rows(log, spark) == old

    send(log, spark, [*day.decoded, *day.misfits])
    run = rebuilt(log, spark, "broken", [DAY])
    with pytest.raises(QualityError):
        audit_run(run, spark)
    with pytest.raises(QualityError, match="only an audited branch is published"):
        publish_run(run, spark)
    page = page_of(run, report_run(run)).text
    assert rows(log, spark) == old
    require_old_version(run, page)
    require_types_named(day, run.require(REPORT), page)
    require_values_named(day, run.require(REPORT), page)
    require_hours_named(day, flights, run.require(REPORT), page)
    require_data_docs(day, run)

    # The fix: the producer sends the hour and the broken records again, and the last record of a flight counts.
    path = log.settings.streams_dir / f"{log.stream.name}.yaml"
    definition = yaml.safe_load(path.read_text(encoding="utf-8"))
    definition["batch"]["deduplicate"] = {"key": list(KEY), "keep": "last"}
    path.write_text(yaml.safe_dump(definition), encoding="utf-8")
    send(log, spark, day.resent)
    fixed = rebuilt(log, spark, "fixed", [DAY])
    seal(fixed, spark)
    page = page_of(fixed, report_run(fixed)).text
    assert rows(log, spark) == Counter(item.row for item in whole)
    report = fixed.require(REPORT)
    assert (report["verdict"]["status"], report["use"][0]["answer"], report["missing"]) == ("complete", "yes", [])
    assert [item["expectation"] for item in report["quality"]["checks"] if item["success"] is not True] == []
    assert "Every hour lies inside." in page
    assert "2013-02-06 yes 2" in page_of(fixed, fixed.layout.report_index_key).text
    for each in (run, fixed):
        assert len(each.store.get(each.layout.run_key(each.name, "report.html")) or b"") <= SIZE_MAX
    require_certificates(log, day, len(whole), tmp_path)


def require_old_version(run: Run, page: str) -> None:
    """The answers name the version that readers see."""
    report = run.require(REPORT)
    assert report["verdict"]["status"] == "failed"
    assert (report["use"][0]["answer"], report["use"][0]["version"]) == ("limited", 1)
    assert "3 critical checks did not pass." in page
    assert "Yes, with limits 2013-02-06 readers see version 1 The run has not published version 2." in page
    index = page_of(run, run.layout.report_index_key).text
    assert "2013-02-06 yes, with limits The run has not published version 2. Readers see version 1. 1" in index


def require_types_named(day: BrokenDay, report: dict[str, Any], page: str) -> None:
    """The records with wrong types are rejected, with the field."""
    (counts,) = report["days"]
    published, rejected = len(day.morning) + len(day.decoded), len(day.misfits)
    assert (counts["read"], counts["published"], counts["quarantined"]) == (published + rejected, published, rejected)
    assert f"{published} not published yet + {rejected} quarantined" in page
    reasons = {
        f"{MISFIT}: flight is not INT such as 12": len(day.numbers),
        f"{MISFIT}: distance_miles is not DOUBLE such as 12.5": len(day.distances),
    }
    assert {item["reason"]: item["rows"] for item in counts["profile"]["reasons"]} == reasons
    for reason, number in reasons.items():
        assert f"{reason} {number} partition " in page


def require_values_named(day: BrokenDay, report: dict[str, Any], page: str) -> None:
    """The nulls and the duplicates by key fail newly, with their columns and numbers."""
    published = len(day.morning) + len(day.decoded)
    for check, number, columns in (
        (NOT_NULL, len(day.nulls), "dest"),
        (UNIQUE, 2 * len(day.twice + day.doubled), "carrier, flight, origin, scheduled_at"),
    ):
        found = outcome(report, check)
        assert (found["newly"], found["observed"]["unexpected_count"]) == (True, number)
        assert f"{check['expectation']} ({columns}): failed, observed {number} of {published} unexpected." in page


def require_hours_named(day: BrokenDay, flights: Sequence[Departure], report: dict[str, Any], page: str) -> None:
    """The dropped and the doubled hour fail with their rows, and no other one does."""
    hours = Counter(item.hour for item in [*day.morning, *day.decoded])
    assert {item["hour"]: item["published"] for item in report["days"][0]["profile"]["hours"]} == hours
    assert (hours[DROPPED], hours[DOUBLED]) == (0, 2 * len(day.doubled))
    outside = []
    for hour in (DROPPED, DOUBLED):
        usual, low, high = expected_rows(flights, hour)
        outside.append({"hour": hour, "rows": hours[hour], "usual": usual, "low": low, "high": high})
    found = outcome(report, HOURS)
    assert found["examples"] == outside
    named = ", ".join("{hour}:00 ({rows} rows, not {low} to {high})".format(**item) for item in outside)
    assert found["observed"] == f"2 of 24 hours differ from 4 Wednesdays: {named}"
    assert f"{HOURS['expectation']}: failed, observed {found['observed']}." in page
    assert f"Red: outside of that, {DROPPED}:00, {DOUBLED}:00." in page
    (missing,) = report["missing"]
    assert (missing["where"], missing["number"]) == (f"{DAY}, {DROPPED}:00", outside[0]["usual"])


def require_data_docs(day: BrokenDay, run: Run) -> None:
    """The page of Great Expectations that the report links names the failed checks too."""
    (linked,) = run.require(REPORT)["quality"]["data_docs"]
    text = page_of(run, run.layout.run_key(run.name, linked["name"])).text
    for number in (len(day.nulls), 2 * len(day.twice + day.doubled)):
        assert f"{number} unexpected values found." in text
    assert outcome(run.require(REPORT), HOURS)["observed"] in text


def require_certificates(log: Log, day: BrokenDay, whole: int, folder: Path) -> None:
    """An auditor has the certificates, the objects, the public key, and a Python without any package."""
    files = downloaded(log, folder / "downloads")
    alone = shutil.copy(PROJECT / "include" / "tidemark_verify.py", folder)
    command = [sys.executable, "-I", "-S", alone, "--key", PUBLIC, "--objects", str(folder / "downloads"), *files]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env={})
    assert (checked.returncode, checked.stderr) == (0, "")
    rejected = len(day.misfits)
    read = len(day.morning) + len(day.decoded) + rejected + len(day.resent)
    sides = f"{whole:,} published + {rejected:,} quarantined + {read - whole - rejected:,} removed as duplicates"
    lines = checked.stdout.splitlines()
    assert f"{log.stream.name} {DAY} version 2: holds" in lines
    assert f"  Rows       {read:,} read = {sides}" in lines
    assert lines.count(f"  Signature  signed by the given key ({PUBLIC})") == len(files) == len(BEFORE) + 2
    assert lines[-1] == "Verdict: holds"
