"""The page of a report: the order of its answers, its figures, its size, and that it needs nothing but itself."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from math import ceil, floor
from statistics import median
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.core.worlds import log, span
from tests.report.samples import (
    DAY,
    audit,
    broken,
    checks,
    complete,
    finalized,
    history,
    hour_rows,
    log_plan,
    make_plan,
    make_run,
    outcome,
    profile,
    reasons,
    rebuilt,
)
from tidemark.cli.schemas import report_text
from tidemark.core.plan import LogPlan, Used
from tidemark.installation import PROJECT
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.day_profile import RecoveredReason, RecoveredRows, RejectionReason
from tidemark.reconcile.report import figures
from tidemark.reconcile.report.history import DaysBefore
from tidemark.reconcile.report.outcomes import Outcomes
from tidemark.reconcile.report.page import SIZE_MAX, render
from tidemark.reconcile.report.report import make_report

ANSWERS = ["use", "changes", "missing", "rejected", "late", "checks", "todo", "proof"]


class Page(HTMLParser):
    """A page's tags with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data + " "

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def report(outcomes: Outcomes, known: DaysBefore | None = None, **batch: Any) -> dict[str, Any]:
    return make_report(make_run(**batch), outcomes, history=known)


def page(outcomes: Outcomes, known: DaysBefore | None = None) -> Page:
    return Page(render(report(outcomes, known)))


@pytest.mark.parametrize("outcomes", [complete(), broken(), Outcomes(by_step={})], ids=["complete", "broken", "empty"])
def test_a_page_answers_in_the_same_order_and_needs_nothing_but_itself(outcomes: Outcomes) -> None:
    found = page(outcomes, history())
    assert [item["id"] for item in found.all("h2")] == ANSWERS
    assert [item["href"] for item in found.all("a")] == ["../index.html", *(f"#{name}" for name in ANSWERS)]
    assert not {"script", "img", "link", "iframe", "object", "form"} & {tag for tag, _ in found.tags}
    assert not {"src", "srcset", "data", "style-src"} & {name for _, attributes in found.tags for name in attributes}
    assert len(found.all("h1")) == 1
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_each_chart_has_a_title_a_description_and_its_figures_as_a_table() -> None:
    html = render(report(broken(), history()))
    drawings = re.findall(r"<figure>.*?</figure>", html, re.DOTALL)
    titles = [Page(item).text.split(" ")[0] for item in drawings]
    assert titles == ["Where", "Rows", "Rows", "How", "How", "Results"]
    for item in map(Page, drawings):
        (drawing,) = item.all("svg")
        assert drawing["role"] == "img"
        title, about = str(drawing["aria-labelledby"]).split()
        assert (item.all("title")[0]["id"], item.all("desc")[0]["id"]) == (title, about)
        assert len(item.all("details")) == len(item.all("table")) == len(item.all("caption")) == 1


def test_the_axis_of_each_log_has_a_title_a_description_and_its_figures_as_a_table() -> None:
    html = render(report(broken(), history()))
    axes = re.findall(
        r'<div class="plot" role="region" aria-label="Axis.*?</div>\s*<div class="scroll".*?</div>', html, re.DOTALL
    )
    assert len(axes) + len(re.findall("<figure>", html)) == len(Page(html).all("svg"))
    for number, item in enumerate(map(Page, axes), 1):
        (drawing,) = item.all("svg")
        assert drawing["role"] == "img"
        assert drawing["aria-labelledby"] == f"axis-{number}-title axis-{number}-about"
        (about,) = item.all("desc")
        assert (item.all("title")[0]["id"], about["id"]) == (f"axis-{number}-title", f"axis-{number}-about")
        assert len(item.all("table")) == len(item.all("caption")) == 1
    assert (
        "flights, partition 0 The offsets from 0 to the high watermark 3,400, coloured by their state:"
        in Page(axes[0]).text
    )


def test_without_the_packages_that_draw_the_figures_are_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "can_draw", lambda: False)
    html = render(report(broken(), history()))
    found = Page(html)
    assert "pip install 'tidemark[charts]'" in found.text
    drawings = list(map(Page, re.findall(r"<figure>.*?</figure>", html, re.DOTALL)))
    assert [(len(item.all("svg")), len(item.all("details")), len(item.all("table"))) for item in drawings] == [
        (0, 0, 1)
    ] * 6


def test_a_missing_and_a_doubled_hour_are_named_with_their_rows() -> None:
    found = report(broken(), history())
    text = Page(render(found)).text
    # The eight weekdays before had 0.92 to 1.06 of the usual rows, and half of their median is allowed.
    usual = {hour: median(hour_rows(hour, factor=0.92 + 0.02 * at) for at in range(8)) for hour in (9, 17)}
    low, high = (
        {hour: round_it(part * rows) for hour, rows in usual.items()} for part, round_it in ((0.5, ceil), (1.5, floor))
    )
    assert "Red: outside of that, 09:00, 17:00." in text
    assert f"17:00 {2 * hour_rows(17)} 0 {low[17]} {high[17]} outside" in text
    assert f"09:00 0 0 {low[9]} {high[9]} outside" in text
    assert "Every hour lies inside." in page(complete(), history()).text


def hours_failed(outcomes: Outcomes) -> Outcomes:
    """The outcomes with failed critical checks: of rows per hour, and of a key."""
    hours = Expected(
        expectation="expect_hourly_row_counts_to_match_history", kwargs={}, severity="critical", built_in=False
    )
    columns = {"column_list": ["carrier", "flight"], "ignore_row_if": "never"}
    key = replace(hours, expectation="expect_compound_columns_to_be_unique", kwargs=columns)
    fewer = {"hour": 9, "rows": 4, "usual": 50, "low": 25, "high": 75}
    found = (
        CheckOutcome(
            expected=hours,
            day=DAY,
            success=False,
            observed="2 of 24 hours differ",
            examples=(fewer, {**fewer, "hour": 17, "rows": 90}),
        ),
        CheckOutcome(
            expected=key,
            day=DAY,
            success=False,
            observed={"element_count": 9, "unexpected_count": 2},
            examples=(
                {"carrier": "UA", "flight": 1},
                {"carrier": "UA", "flight": 1},
                None,
                {"carrier": "UA", "flight": 2},
            ),
        ),
    )
    result = replace(audit(DAY), checks=found, passed=False)
    failed = outcome(result, at=6, error="critical checks did not pass")
    return Outcomes(by_step={**outcomes.by_step, "audit": failed})


def test_a_failed_audit_names_each_check_with_its_columns_and_the_missing_hour() -> None:
    found = report(hours_failed(broken()), history())
    assert found["verdict"]["sentences"] == [
        "2 critical checks did not pass.",
        "expect_hourly_row_counts_to_match_history: failed, observed 2 of 24 hours differ.",
        "expect_compound_columns_to_be_unique (carrier, flight): failed, observed 2 of 9 unexpected.",
        "Nothing was published: readers still see the days as they were before this run.",
    ]
    assert [(item["what"], item["where"], item["number"]) for item in found["missing"] if "hour" in item["what"]] == [
        ("rows of an hour: 4, usually 50", "2013-01-16, 09:00", 46)
    ]
    wrong = "expect_hourly_row_counts_to_match_history, expect_compound_columns_to_be_unique (carrier, flight)"
    assert f"Correct the records, the transformation or the check: {wrong}." in found["todo"]
    names = [(item["name"], item["arguments"]) for item in found["quality"]["history"]]
    assert ("carrier, flight: compound columns to be unique", "ignore_row_if never") in names
    text = Page(render(found)).text
    assert "2 of 9 unexpected such as carrier = UA, flight = 1 ; carrier = UA, flight = 2 " in text
    assert "column_list: carrier, flight" in text
    assert text.count("flight = 1") == 1
    assert "usual = 50" not in text  # which the observation says in words


def test_rows_of_a_failed_run_are_not_called_published() -> None:
    assert re.search(r"= [0-9,]+ not published yet \+", page(broken()).text)
    assert re.search(r"= [0-9,]+ published \+", page(complete()).text)


def test_a_check_that_passed_the_day_before_fails_newly() -> None:
    found = report(broken(), history())
    assert [(item["expectation"], item["newly"]) for item in found["quality"]["checks"] if not item["success"]] == [
        ("expect_column_values_to_be_between", True)
    ]
    assert "1 of 3 checks did not pass, 1 of them newly." in Page(render(found)).text
    yesterday = DAY - timedelta(days=1)
    failed_before = replace(history(), audits={yesterday: audit(yesterday, failing=True)})
    assert "1 of 3 checks did not pass, 0 of them newly." in page(broken(), failed_before).text
    assert "1 of 3 checks did not pass, 0 of them newly." in page(broken()).text


def test_what_is_missing_names_who_has_to_act() -> None:
    found = report(broken())["missing"]
    assert [(item["what"], item["number"], item["who"]) for item in found] == [
        ("offsets lost: Kafka deleted them before they were archived", 150, "owner of the stream"),
        ("unexplained offsets: no record and no known cause", 7, "data engineer"),
        ("offsets that are not archived, and still in Kafka", 100, "data engineer"),
        ("late records that are not published (upper bound)", 12, "owner of the stream"),
        ("logs with unarchived records that Kafka will delete soon", 1, "data engineer"),
    ]
    assert found[0]["since"] == "between records of 2013-01-16 05:00 and 2013-01-16 06:00"
    assert report(complete())["missing"] == []


@pytest.mark.parametrize(
    ("outcomes", "answer", "version", "words"),
    [
        (complete(), "yes", 2, "Every offset is accounted for, exactly once. All 3 checks passed."),
        (complete(audit=outcome(audit(DAY, failing=True), at=6)), "limited", 2, "1 check of severity warning"),
        (complete(seal=None), "no", 2, "not sealed"),
        (broken(), "limited", 1, "Readers see version 1."),
        (complete(make_plan(version=1), publish=None, seal=None), "no", None, "There is no earlier version."),
    ],
    ids=["sealed", "warning", "unsealed", "failed", "first"],
)
def test_the_answer_on_a_day_says_what_readers_see(
    outcomes: Outcomes, answer: str, version: int | None, words: str
) -> None:
    (use,) = report(outcomes)["use"]
    assert (use["answer"], use["version"]) == (answer, version)
    assert words in use["because"]


def test_rejections_are_shown_with_their_first_records() -> None:
    text = page(complete()).text
    assert 'the value is not one JSON object 31 partition 0, offset 120: {"carrier": "UA", "flight": 15' in text
    assert "distance_miles is negative 4 partition 1, offset 77" in text


def test_lateness_is_said_in_a_sentence() -> None:
    # 97.2 % within six hours and 99.0 % within a day, of the rows that the sample rounds.
    text = page(complete()).text
    assert re.search(r"99 % of the records came within (1 day|2 days) of their event time\.", text)
    assert "The latest came 12 days after it." in text


def test_the_page_has_a_bound_for_its_size() -> None:
    def many(partition: int) -> LogPlan:
        parts = tuple(
            Used(range=span(at, at + 1), committed=span(at, at + 1), writer=f"writer-{at % 2}", batch=at)
            for at in range(400)
        )
        return replace(log_plan(partition, used=parts), target=replace(log_plan(partition).target, log=log(partition)))

    plan = make_plan(*(many(partition) for partition in range(300)))
    html = render(report(complete(plan), history()))
    assert len(html.encode()) <= SIZE_MAX
    assert re.search(r"2\d\d more are in report.json", html)


def test_hostile_texts_are_shown_in_charts_and_not_run() -> None:
    hostile = "</svg><script>alert(1)</script>"
    found = audit(DAY)
    named = replace(checks(DAY)[1].expected, kwargs={"column": hostile})
    own = replace(found, checks=(replace(checks(DAY)[1], expected=named),))
    shown = page(complete(audit=outcome(own, at=6)), history())
    assert hostile in shown.text
    assert not shown.all("script")


def test_the_schema_of_the_report_is_published_and_holds() -> None:
    path = PROJECT / "docs" / "reference" / "json" / "report.schema.json"
    assert path.read_text(encoding="utf-8") == report_text()
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    for outcomes in (complete(), broken(), Outcomes(by_step={})):
        written = {
            "step": "report",
            "started_at": "2013-01-17T06:00:00+00:00",
            "seconds": 1.5,
            "status": "ok",
            "error": None,
            "kind": None,
            "result": json.loads(json.dumps(report(outcomes, history()))),
        }
        Draft202012Validator(schema).validate(written)


def test_a_backfill_compares_each_day_with_the_one_before_in_the_same_run() -> None:
    days = [DAY - timedelta(days=1), DAY]
    plan = make_plan()
    plan = replace(plan, days=tuple(replace(plan.days[0], day=day) for day in days))
    both = [rebuilt(day, profile(day, factor=factor)) for day, factor in zip(days, (1.0, 0.5), strict=True)]
    result = replace(both[1], days=both[0].days + both[1].days, profiles=both[0].profiles + both[1].profiles)
    first, second = report(complete(plan, rebuild=outcome(result, at=4)))["days"]
    assert first["before"] is None
    assert second["before"]["read"] == first["read"] == sum(map(hour_rows, range(24)))


def test_the_page_says_how_many_rejected_records_a_rebuild_has_recovered_and_why_they_were_rejected() -> None:
    def text(*found: RecoveredRows) -> str:
        return page(complete(rebuild=outcome(replace(rebuilt(), recovered=found), at=4))).text

    shared = RecoveredRows(day=DAY, version=1, rejected=1240, rows=0)
    reasons_then = (RecoveredReason(reason="no carrier", rows=1200), RecoveredReason(reason="no <time>", rows=9))
    recovered = text(replace(shared, rows=1210, reasons=reasons_then, reasons_found=3))
    assert "1,210 of the 1,240 records that version 1 rejected are published now." in recovered
    assert (
        "by their reason then: the 2 most frequent of 3 Reason then Records no carrier 1,200 no <time> 9" in recovered
    )
    assert "None of the 1,240 records that version 1 rejected is published now." in text(shared)
    assert "that version 1 rejected" not in text()


def test_an_unknown_retention_has_no_chart() -> None:
    plan = make_plan()
    unknown = finalized(plan, summary="unknown: Kafka does not answer", alarm_hours=None, runways=())
    text = page(complete(plan, finalize_plan=outcome(unknown, at=3))).text
    assert "unknown: Kafka does not answer" in text
    assert "How long Kafka still keeps" not in text


def test_the_page_of_a_long_backfill_has_the_bound_too() -> None:
    days = [DAY - timedelta(days=number) for number in reversed(range(92))]
    plan = replace(make_plan(), days=tuple(replace(make_plan().days[0], day=day) for day in days))
    example = replace(reasons()[0].examples[0], value="x" * 200)
    many = tuple(
        RejectionReason(reason=f"reason {number} " + "y" * 290, rows=10 - number, examples=(example,) * 3)
        for number in range(10)
    )
    each = [rebuilt(day, replace(profile(day), reasons=many)) for day in days]
    result = replace(
        each[0],
        days=tuple(item.days[0] for item in each),
        profiles=tuple(item.profiles[0] for item in each),
        differences=tuple(item.differences[0] for item in each),
    )
    found = report(complete(plan, rebuild=outcome(result, at=4)))
    html = render(found)
    assert len(json.dumps(found)) > SIZE_MAX
    assert len(html.encode()) <= SIZE_MAX
    assert "more are in report.json" in html
    assert Page(html).text.count(f"Rows per hour of {DAY}") == 4  # title, its summary, caption, and in the drawing
