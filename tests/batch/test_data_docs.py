"""Data Docs of hand-made outcomes: complete, inert, and on no other host."""

import os
from datetime import date
from html.parser import HTMLParser
from typing import Any, Literal

import pytest

from tidemark.core.layout import data_docs_name, parse_data_docs_name
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.audit.data_docs import render_data_docs

HOSTILE = "<script>alert(1)</script>"
COUNTS = {"element_count": 9, "missing_count": 0, "unexpected_count": 2, "unexpected_percent": 22.2}


class Page(HTMLParser):
    """The tags of a page, the values of its attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += " ".join(data.split()) + " "


def outcome(
    expectation: str,
    observed: Any = None,
    *,
    success: bool | None = False,
    about: str = "",
    severity: Literal["critical", "warning"] = "critical",
    examples: tuple[Any, ...] = (),
    exception: str | None = None,
    **kwargs: Any,
) -> CheckOutcome:
    expected = Expected(expectation=expectation, kwargs=kwargs, severity=severity, built_in=bool(about), about=about)
    return CheckOutcome(expected=expected, success=success, observed=observed, examples=examples, exception=exception)


OUTCOMES = [
    outcome("tidemark_rows_to_check", 5, success=True, about="a day with records has rows to check"),
    outcome(
        "unexpected_rows_expectation",
        3,
        about="every record occurs once",
        examples=({"copies": 2, "key": HOSTILE},),
        unexpected_rows_query="SELECT * FROM {batch} WHERE a < 1",
    ),
    outcome(
        "expect_column_values_to_be_in_set",
        COUNTS,
        severity="warning",
        examples=(HOSTILE, "x"),
        column="name",
        value_set=["A", HOSTILE],
    ),
    outcome("expect_column_max_to_be_between", "•••", column="email", max_value=HOSTILE),
    outcome(
        "expect_column_quantile_values_to_be_between",
        "•••",
        column="email",
        quantile_ranges={"quantiles": [0.5], "value_ranges": [[0, 1]]},
    ),
    outcome(
        "expect_column_kl_divergence_to_be_less_than",
        0.5,
        column="delay",
        threshold=0.1,
        partition_object={"bins": [0, 1, 2], "weights": [0.5, 0.5]},
    ),
    outcome(
        "expect_column_values_to_match_regex",
        exception=f"ValueError: {HOSTILE}",
        column=f"<b>{HOSTILE}",
        regex="^<a&b$",
    ),
    outcome("expect_column_values_to_be_between", success=None, column="delay", max_value=1),
    outcome("expect_compound_columns_to_be_unique", COUNTS, examples=({"a": HOSTILE, "b": 1},), column_list=["a", "b"]),
    outcome("expect_no_such_thing", exception="TypeError: no such expectation", wrong=HOSTILE),
]


@pytest.fixture(scope="module")
def page() -> Page:
    os.environ["GX_ANALYTICS_ENABLED"] = "False"
    import great_expectations  # noqa: F401  # registers the expectations

    return Page(render_data_docs(OUTCOMES, f"rides, 2013-01-14 {HOSTILE}"))


def test_the_page_shows_each_outcome_with_its_severity(page: Page) -> None:
    for text in (
        "a day with records has rows to check",
        "3, for example: copies = 2, key = <script>",
        "2 unexpected values found. 22.2% of 9 total rows.",
        "a = <script>alert(1)</script>, b = 1",
        "•••",
        "ValueError: <script>alert(1)</script>",
        "TypeError: no such expectation",
        "^<a&b$",
        "critical, and unknown",
    ):
        assert text in page.text, text
    assert (page.text.count("warning "), page.text.count("critical ")) == (1, len(OUTCOMES) - 2)
    assert "Evaluated Expectations 10" in " ".join(page.text.split())
    assert "Successful Expectations 1 " in " ".join(page.text.split())


def test_counts_that_are_not_of_rows_are_shown_in_words() -> None:
    name = "expect_column_distinct_values_to_equal_set"
    counted = outcome(name, {"missing_count": 1, "unexpected_count": 0}, column="code", value_set=["A"])
    assert "0 unexpected, 1 missing" in Page(render_data_docs([counted], "flights")).text


def test_the_page_runs_nothing_and_refers_to_no_other_host(page: Page) -> None:
    assert page.tags & {"script", "link", "img", "iframe", "form", "object", "b"} == set()
    links = [value for name, value in page.attributes if name in {"href", "src", "action", "srcset", "data"}]
    assert links == ["report.html"]
    assert [name for name, _ in page.attributes if name.startswith("on")] == []
    assert "//" not in page.text.replace("</script>", "")


@pytest.mark.parametrize("name", ["report.html", "data-docs-2013-1-14.html", "data-docs-2013-01-14.html.json", ""])
def test_other_artefacts_are_no_data_docs(name: str) -> None:
    assert parse_data_docs_name(name) is None


def test_the_name_of_data_docs_holds_the_day() -> None:
    day = date(2013, 1, 14)
    assert data_docs_name(day) == "data-docs-2013-01-14.html"
    assert parse_data_docs_name(data_docs_name(day)) == day
