"""The report of runs that ended well, badly, and nowhere: its figures, its words, and that its page is inert."""

import hashlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.batch.world import World, january, moment, value
from tests.core.worlds import span
from tidemark.core.errors import QualityError
from tidemark.core.layout import Layout
from tidemark.core.offsets import TopicPartition
from tidemark.core.outcome import Outcome
from tidemark.core.plan import DayPlan, Gap, Hole, LogPlan, Overlap, Plan, Target, Used
from tidemark.definitions.stream import Stream
from tidemark.reconcile.audit.step import audit_run
from tidemark.reconcile.report.offset_axis import WIDTH, draw, writer_colours
from tidemark.reconcile.report.outcomes import Outcomes
from tidemark.reconcile.report.page import render
from tidemark.reconcile.report.report import make_report, report_run
from tidemark.reconcile.results import (
    FINALIZE_PLAN,
    PLAN,
    PUBLISH,
    REBUILD,
    REPORT,
    STEPS,
    ArchiveState,
    DayCounts,
    DeduplicatedBy,
    FinalizeResult,
    RebuildResult,
    RetentionNote,
)
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

HOSTILE = "<script>alert(1)</script>"


class Page(HTMLParser):
    """Collects a page's tags, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, list[str]] = {}
        self.text = ""
        self.feed(html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, content in attrs:
            self.attributes.setdefault(name, []).append(content or "")

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def page_of(run: Run, key: str) -> Page:
    body = run.store.get(key)
    assert body is not None
    return Page(body.decode())


def test_a_complete_run_is_reported_in_figures(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    world = World.make(spark, settings, tmp_path)
    world.produce([(moment(14), value(number)) for number in range(1500)])
    world.produce([(moment(14), b"broken"), (moment(15), value(1))])
    world.archive(0, 1000)
    world.archive(400, 1502, writer="refill-first")
    run = world.reconcile("first", [january(14)], audit=audit_run)
    seal_run(run)
    key = report_run(run)
    assert key == run.layout.run_key("first", "report.html")
    report = run.require(REPORT)
    assert report["quality"]["data_docs"] == [{"day": "2013-01-14", "name": "data-docs-2013-01-14.html"}]
    assert "data-docs-2013-01-14.html" in page_of(run, key).attributes["href"]
    docs = page_of(run, run.layout.run_key("first", "data-docs-2013-01-14.html"))
    assert "every record occurs once" in docs.text
    assert docs.attributes["href"] == ["report.html"]
    seal = run.store.get(run.layout.seal_key(january(14), 1))
    assert seal is not None
    assert report["verdict"]["status"] == "complete"
    assert report["days"] == [
        {
            "day": "2013-01-14",
            "version": 1,
            "reason": "requested",
            "archived": 2101,
            "read": 1501,
            "published": 1500,
            "quarantined": 1,
            "duplicates_removed": 0,
            "duplicates_trimmed": 600,
            "conserved": True,
            "difference": None,
            "held": None,
            "seal": run.layout.seal_key(january(14), 1),
            "seal_sha256": hashlib.sha256(seal).hexdigest(),
            "certificate": run.layout.certificate_key(january(14), 1),
            "delivery": None,
            "profile": report["days"][0]["profile"],
            "recovered": None,
            "before": None,
            "weekdays": [],
            "band": [],
        }
    ]
    assert [item["hour"] for item in report["days"][0]["profile"]["hours"]] == [12]
    assert report["use"][0]["answer"] == "yes"
    assert report["logs"][0]["offsets"] == {
        "target": 1502,
        "used": 1502,
        "refilled": 502,
        "refilled_in_holes": 0,
        "lost": 0,
        "unfilled": 0,
        "pending": 0,
        "overlapping": 600,
        "holes": 0,
    }
    written = run.store.get(key)
    assert run.store.get(report_run(run)) == written  # again, later
    index = page_of(run, run.layout.report_index_key)
    assert "first/report.html" in index.attributes["href"]
    assert "2013-01-14 yes 1 1,500 1 passed first" in index.text
    page = page_of(run, key)
    assert "2013-01-14 is complete" in page.text
    assert "1,501 read = 1,500 published + 1 quarantined" in page.text
    assert "2,101 archived rows − 600 duplicates trimmed by offset = 1,501 read" in page.text
    assert str(run.require(PUBLISH).snapshot_id) in page.text


@pytest.mark.conformance(28)
def test_a_failed_audit_is_reported_with_hostile_values_escaped(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    names = {"expectation": "expect_column_values_to_be_in_set", "kwargs": {"column": "name", "value_set": [HOSTILE]}}
    world = World.make(spark, settings, tmp_path, checks=[names])
    world.produce([(moment(14), value(1, "<img src=x onerror=alert(2)>"))])
    world.archive(0, 1, writer='"><b>writer')
    run = world.plan("first", [january(14)])
    world.rebuild(run)
    with pytest.raises(QualityError):
        audit_run(run, spark)
    page = page_of(run, report_run(run))
    verdict = run.require(REPORT)["verdict"]
    assert (verdict["status"], verdict["title"]) == ("failed", "2013-01-14 failed at step audit")
    assert "Nothing was published: readers still see the days as they were before this run." in page.text
    assert HOSTILE in page.text  # as text
    assert "<IMG SRC=X ONERROR=ALERT(2)>" in page.text
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    assert not {"src", "onerror", "onload"} & set(page.attributes)
    # Places in the page itself, the day's Data Docs, and the index beside the runs.
    assert {item for item in page.attributes["href"] if item[0] != "#"} == {
        "../index.html",
        "data-docs-2013-01-14.html",
    }
    assert '"><b>writer' in page.attributes["title"]
    assert page.text.count("not reached") == 5  # approve, publish, seal, and delivery, which has a sentence, too


def test_a_run_that_never_planned_still_has_a_page(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    world = World.make(spark, settings, tmp_path)
    run = world.run("nothing")
    page = page_of(run, report_run(run))
    assert "The run stopped before step plan" in page.text
    assert {item["status"] for item in run.require(REPORT)["steps"]} == {"not reached"}


LOG = TopicPartition(topic="t", topic_id="id", partition=0)


@pytest.fixture
def run(settings: Settings, store: ObjectStore) -> Run:
    """A run whose steps' results are given, not stored."""
    stream = Stream.model_validate(
        {"name": "t", "topic": "t", "value_schema": "id INT", "speed": {"topic": "a", "dead_letter_topic": "b"}}
    )
    return Run(stream=stream, settings=settings, store=store, layout=Layout(prefix="", stream="t"), name="r")


def used(start: int, end: int, writer: str = "w") -> Used:
    return Used(range=span(start, end), committed=span(start, end), writer=writer, batch=0)


def outcome(result: Any = None, *, started_at: str = "", error: str | None = None) -> Outcome[Any]:
    return Outcome(started_at=started_at, seconds=1.0, status="failed" if error else "ok", error=error, result=result)


def finished(log: LogPlan, **others: Outcome[Any]) -> Outcomes:
    """The outcomes of a run that succeeded, over one log; some others where given."""
    day = DayPlan(day=january(14), version=2, reason="late", archived_rows=9)
    plan = Plan(stream="t", run="r", days=(day,), unchanged=(), logs=(log,), slices=())
    finalized = FinalizeResult(
        planned_at="",
        force=False,
        plan=plan,
        archive=ArchiveState(manifests=1, broken_links=()),
        holes=None,
        retention=RetentionNote(summary="nothing waits", alarm=False, lines=()),
    )
    rows = DayCounts(day=january(14), read=7, published=7, quarantined=0, duplicates_removed=0, duplicates_trimmed=2)
    rebuilt = RebuildResult(plan="p", inputs="i", deduplicated_by=DeduplicatedBy(key=(), keep="first"), days=(rows,))
    own = {FINALIZE_PLAN.name: outcome(finalized), REBUILD.name: outcome(rebuilt)}
    return Outcomes(by_step={**{step.name: outcome() for step in STEPS}, **own, **others})


def log_plan(**findings: Any) -> LogPlan:
    none: dict[str, Any] = {"used": (), "gaps": (), "overlaps": (), "holes": (), "pending": None}
    target = Target(log=LOG, start=100, end=200, log_start=0, high_watermark=300)
    return LogPlan(target=target, **{**none, **findings})


def test_an_accepted_loss_and_an_unexplained_hole_are_not_called_complete(run: Run) -> None:
    lost = log_plan(used=(used(100, 150),), gaps=(Gap(range=span(150, 200), kind="lost"),))
    verdict = make_report(run, finished(lost))["verdict"]
    assert verdict["title"] == "2013-01-14 is sealed with a known loss"
    assert verdict["sentences"][0] == "Kafka deleted 50 offsets before they were archived."
    assert verdict["sentences"][1].startswith("Lost: t-0 [150, 200), 50 offsets, of unknown time")
    hole = Hole(range=span(120, 130), missing=3, cause="unexplained")
    verdict = make_report(run, finished(log_plan(used=(used(100, 200),), holes=(hole,))))["verdict"]
    assert verdict["title"] == "2013-01-14 is published, with 3 unexplained offsets"
    explained = Hole(range=span(120, 130), missing=3, cause="transactional")
    verdict = make_report(run, finished(log_plan(used=(used(100, 200),), holes=(explained,))))["verdict"]
    assert verdict["status"] == "complete"


@pytest.mark.conformance(28)
def test_a_hostile_writer_and_error_are_shown_and_not_run(run: Run) -> None:
    log = log_plan(used=(used(100, 200, writer=f'">{HOSTILE}'),))
    page = Page(render(make_report(run, finished(log, rebuild=outcome(error=HOSTILE)))))
    assert HOSTILE in page.text
    assert "script" not in page.tags
    assert f'">{HOSTILE}' in "".join(page.attributes["title"])


def test_the_bar_places_every_range_between_start_and_high_watermark(run: Run) -> None:
    log = log_plan(
        used=(used(100, 110), used(110, 120), used(120, 140, "refill-r")),
        gaps=(Gap(range=span(140, 150), kind="lost"), Gap(range=span(150, 200), kind="refill")),
        overlaps=(Overlap(range=span(100, 120), copies=2),),
        holes=(Hole(range=span(299, 300), missing=1, cause="unexplained"),),
        pending=span(200, 300),
    )
    report = make_report(run, finished(log))
    drawing = draw(report["logs"][0], writer_colours(report["logs"]))
    assert [(item.kind, item.x, item.width) for item in drawing.segments] == [
        ("w0", 0.0, 100.0),
        ("refill", 100.0, 100.0),
        ("lost", 200.0, 50.0),
        ("unfilled", 250.0, 250.0),
        ("pending", 500.0, 500.0),
    ]
    assert drawing.segments[0].title == "[100, 120) 2 ranges of w"
    assert [(item.x, item.width) for item in drawing.overlaps] == [(0.0, 100.0)]
    assert drawing.holes[0].x + drawing.holes[0].width <= WIDTH
    page = Page(render(report))
    axis = page.tags[page.tags.index("svg", page.tags.index("ul", page.tags.index("dl"))) :]
    assert axis.count("rect") == 8


def test_results_of_an_earlier_attempt_are_not_taken_for_this_one(run: Run) -> None:
    outcomes = Outcomes(
        by_step={
            PLAN.name: outcome(started_at="2026-01-02T00:00:00"),
            FINALIZE_PLAN.name: outcome(started_at="2026-01-02T00:01:00"),
            REBUILD.name: outcome(started_at="2026-01-01T00:00:00"),
        }
    )
    report = make_report(run, outcomes)
    states = [item["status"] for item in report["steps"]]
    assert states == ["not needed", "ok", "not needed", "ok", "earlier attempt", *["not reached"] * 5]
    assert report["verdict"]["title"] == "The run stopped before step rebuild"


def test_a_thousand_ranges_are_listed_in_part_and_said_so(run: Run) -> None:
    ranges = tuple(used(100 + number, 101 + number, f"w{number % 2}") for number in range(100))
    many = log_plan(used=ranges)
    report = make_report(run, finished(many))
    report["logs"][0]["used"] *= 3
    assert "100 more are in report.json" in Page(render(report)).text
