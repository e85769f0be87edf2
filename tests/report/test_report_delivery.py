"""The live topic against the table in a report: what was found, or why nothing was compared. Neither fails a run."""

import re
from typing import Any

import pytest

from tests.report.samples import DAY, PLANTED, audited, complete, history, make_run, outcome, profile
from tests.report.test_report_page import Page
from tidemark.core.delivery import DeliveryAudit
from tidemark.core.outcome import Outcome
from tidemark.reconcile.report import figures
from tidemark.reconcile.report.page import render
from tidemark.reconcile.report.report import make_report

ROWS = {item.hour: item.published for item in profile(DAY).hours}


def report(delivery: Outcome[DeliveryAudit]) -> dict[str, Any]:
    return make_report(make_run(), complete(delivery=delivery), history=history())


def section(found: dict[str, Any]) -> str:
    """The answer about what is missing."""
    (html,) = re.findall(r'<section aria-labelledby="missing">.*?</section>', render(found), re.DOTALL)
    return Page(html).text


def test_missing_duplicated_and_unexpected_records_are_shown_in_their_hours() -> None:
    found = report(outcome(DeliveryAudit(days=(audited(PLANTED),)), at=9))
    table, live = sum(ROWS.values()), sum(ROWS.values()) - 2
    text = section(found)
    assert (
        f"{table - 3:,} rows in the table, {live:,} records on the live topic: 2 missing, 1 duplicated, 3 unexp" in text
    )
    assert "3 were removed from the table as duplicates by key." in text
    for hour, rows in ROWS.items():
        missing, duplicated, unexpected = PLANTED.get(hour, (0, 0, 0))
        row = f"{hour:02}:00 {rows} {rows - missing} {missing} {duplicated} {unexpected}"
        assert f" {row} " in text, row
    assert found["verdict"]["status"] == "complete"
    assert (
        f"{DAY}, live topic against the table: 2 missing, 1 duplicated, 3 unexpected." in found["verdict"]["sentences"]
    )
    assert [item["answer"] for item in found["use"]] == ["yes"]
    assert [(item["what"], item["number"]) for item in found["missing"]] == [
        ("archived records that are on neither the live nor the dead-letter topic", 2)
    ]
    assert found["todo"] == [f"data engineer: See each record with 'tidemark delivery flights --from {DAY}'."]


def test_the_chart_names_each_finding_below_its_hour() -> None:
    found = report(outcome(DeliveryAudit(days=(audited(PLANTED),)), at=9))
    (figure,) = figures.page_figures(found).delivered[str(DAY)]
    assert figure.svg is not None
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", figure.svg)
    assert texts.count("·") == 3 * 24 - 3
    assert {"missing", "duplicated", "unexpected", "2", "1", "3", "09:00"} <= set(texts)


def test_a_day_as_in_the_table_says_so_and_asks_for_nothing() -> None:
    found = report(outcome(DeliveryAudit(days=(audited({}, verdict="pass"),)), at=9))
    assert "as in the table" in section(found)
    assert (found["todo"], found["missing"], found["not_compared"]) == ([], [], None)


def test_copies_that_delivery_may_repeat_are_noted_and_ask_for_nothing() -> None:
    found = report(outcome(DeliveryAudit(days=(audited({17: (0, 3, 0)}, verdict="pass"),)), at=9))
    assert "as in the table" in section(found)
    assert "0 missing, 3 duplicated, 0 unexpected." in section(found)
    words = "every record was delivered, with 3 further copies"
    assert f"{DAY}, live topic against the table: {words}." in found["verdict"]["sentences"]
    assert (found["todo"], found["missing"]) == ([], [])


def test_records_that_kafka_may_have_deleted_are_not_called_missing() -> None:
    found = report(outcome(DeliveryAudit(days=(audited({}, verdict="unknown", pending=5),)), at=9))
    text = section(found)
    assert "not certain" in text
    assert "0 missing, 0 duplicated, 0 unexpected. 5 may still be delivered, or Kafka has deleted them." in text
    assert found["todo"] == []


@pytest.mark.parametrize(
    ("delivery", "shown", "actions"),
    [
        (
            outcome(DeliveryAudit(days=(), because="The speed layer has delivered nothing"), at=9),
            "delivered nothing.",
            0,
        ),
        (
            outcome(DeliveryAudit(days=(audited({}),)), at=9, error="ServiceError: Kafka is down"),
            "failed: ServiceError",
            1,
        ),
        (None, "Step delivery was not reached.", 0),
    ],
    ids=["nothing to compare", "failed", "killed"],
)
def test_a_run_without_a_comparison_is_complete_and_says_why(
    delivery: Outcome[DeliveryAudit], shown: str, actions: int
) -> None:
    found = report(delivery)
    assert shown in section(found)
    assert found["verdict"]["status"] == "complete"
    assert [item["delivery"] for item in found["days"]] == [None]
    assert len(found["todo"]) == actions
