"""The index of a stream's reports: one row per day, with the days that are not sealed."""

from dataclasses import replace
from datetime import timedelta

from tests.report.samples import DAY, broken, complete, make_run, summary
from tests.report.test_report_page import Page
from tidemark.reconcile.report.index import DAYS, index_rows, render_index, with_answers
from tidemark.reconcile.report.report import make_report


def test_each_day_of_the_last_ninety_has_an_answer_and_its_run() -> None:
    days = [DAY - timedelta(days=number) for number in range(120)]
    sealed = [summary(day) for day in days if day != DAY - timedelta(days=2)]
    sealed[0] = replace(sealed[0], version=2, quality="warnings")
    sealed.append(replace(summary(days[1]), version=2, run="later", lost_of_day=7))
    rows = index_rows(sealed, DAY)
    assert [row.day for row in rows] == days[:DAYS]
    assert [(row.answer, row.because) for row in rows[:4]] == [
        ("limited", "Checks of severity warning did not pass."),
        ("limited", "Of the offsets that are lost for good, 7 may be of this day."),
        ("no", "It is not sealed."),
        ("yes", ""),
    ]
    page = Page(render_index(make_report(make_run(), complete()), rows, None))
    links = [item["href"] for item in page.all("a")]
    assert links[:3] == ["scheduled__2013-01-17/report.html", f"run-{DAY}/report.html", "later/report.html"]
    assert "2013-01-14 no It is not sealed." in page.text


def test_a_sealed_day_whose_new_version_failed_is_limited_by_that() -> None:
    sealed = [summary(DAY), summary(DAY - timedelta(days=1))]
    rows, report = index_rows(sealed, DAY), make_report(make_run(), broken())
    failed, other = with_answers(rows, report)
    assert (failed.answer, failed.because) == ("limited", "The run has not published version 2. Readers see version 1.")
    assert (other.answer, other.because) == ("yes", "")
    since = index_rows([replace(summary(DAY), version=2)], DAY)
    assert with_answers(since, report) == since
    assert with_answers(rows, make_report(make_run(), complete())) == rows


def test_the_index_begins_with_the_first_sealed_day() -> None:
    rows = index_rows([summary(DAY - timedelta(days=3))], DAY)
    assert [row.summary is not None for row in rows] == [False, False, False, True]
    assert len(index_rows([], DAY)) == 1


def test_days_that_cannot_be_read_are_reported_on_the_page() -> None:
    text = Page(render_index(make_report(make_run(), complete()), (), "S3 does not answer")).text
    assert "The days could not be read: S3 does not answer" in text
