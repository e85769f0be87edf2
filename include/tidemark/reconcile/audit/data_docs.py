"""Great Expectations' Data Docs of a run's audit: a page for each day, made by the library's renderers.

The page is one file without scripts, and refers to nothing elsewhere: the library's own templates load styles and
scripts from four hosts. It is made of the outcomes that the step saves, so it shows nothing that they mask.
"""

import html
import logging
import re
from collections.abc import Sequence
from datetime import date
from functools import cache
from types import SimpleNamespace
from typing import Any

from tidemark.core.layout import data_docs_name
from tidemark.reconcile.audit.checks import CheckOutcome, example_text, is_counts, observed_text
from tidemark.run import Run

_LOG = logging.getLogger(__name__)
_SEVERITY = {"Severity": "severity"}  # the heading of its column, and the attribute that is in it
_COUNTED = {"element_count", "unexpected_count", "unexpected_percent"}
_HEADING = re.compile(r"(</?)h[3-6]\b")
_TABLE = re.compile(r'<div(?= id="[\w-]+" class="[^"]*\btable-responsive\b)')
_STAND_IN = "expect_table_row_count_to_be_between"  # shown by its description, for what the library does not know


def write_data_docs(run: Run, outcomes: Sequence[CheckOutcome], days: Sequence[date]) -> tuple[date, ...]:
    """Write each day's page into the run's folder; the days that have one. A check of no single day is on every page.

    A page that the library fails to render is left out with a warning: the outcomes are saved all the same.
    """
    written = []
    for day in days:
        own = [item for item in outcomes if item.day in {None, day}]
        try:
            page = render_data_docs(own, f"{run.stream.name}, {day}, run {run.name}")
        except Exception as error:  # noqa: BLE001  # of whatever type: the library's renderers are many
            _LOG.warning("%s has no Data Docs, because they could not be rendered: %s", day, type(error).__name__)
            continue
        key = run.layout.run_key(run.name, data_docs_name(day))
        run.store.put(key, page.encode(), content_type="text/html; charset=utf-8")
        written.append(day)
    return tuple(written)


def render_data_docs(outcomes: Sequence[CheckOutcome], title: str) -> str:
    """The page of these outcomes."""
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer

    results = [_result(item) for item in outcomes]
    passed = sum(bool(item.success) for item in results)
    statistics = {
        "evaluated_expectations": len(results),
        "successful_expectations": passed,
        "unsuccessful_expectations": len(results) - passed,
        "success_percent": 100 * passed / len(results) if results else None,
    }
    found = ExpectationSuiteValidationResult(
        success=passed == len(results), results=results, suite_name="audit", statistics=statistics, meta={}
    )
    # A renderer that wants a list where the outcome has a mask shows a dash, and logs its trace.
    logging.getLogger("great_expectations.render").setLevel(logging.CRITICAL)
    document = ValidationResultsPageRenderer().render(found)
    document.page_title = title
    overview = document.sections[0].content_blocks
    overview[:] = overview[1:2]  # the statistics, without a link to a page of the suite, and notes on the library
    return _accessible(_view().render(document))


def _accessible(page: str) -> str:
    """The page with headings that skip no level, and tables that the keyboard scrolls. Texts of checks have no tags."""
    return _TABLE.sub(r'<div tabindex="0"', _HEADING.sub(r"\1h2", page))


def _result(item: CheckOutcome) -> Any:
    """The outcome as the library has it."""
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    expected = item.expected
    known = expected.expectation in list_registered_expectation_implementations()
    state = expected.severity if item.success is not None else f"{expected.severity}, and unknown"
    described = ", ".join([expected.expectation, *(f"{name}: {value}" for name, value in expected.kwargs.items())])
    configuration = _shown_configuration()(
        type=expected.expectation if known else _STAND_IN,
        kwargs={**expected.kwargs, "meta_properties_to_render": _SEVERITY},
        meta={"attributes": {"severity": state}},
        description=expected.about or (None if known else described),
    )
    raised = {"raised_exception": item.exception is not None, "exception_message": item.exception}
    return ExpectationValidationResult(
        success=item.success is True,
        expectation_config=configuration,
        result=_seen(item),
        exception_info={**raised, "exception_traceback": ""},
    )


@cache
def _shown_configuration() -> Any:
    """The class of a check's configuration on the page; the library is loaded only for a page."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    class ShownConfiguration(ExpectationConfiguration):
        """The renderers want its description only. A whole expectation would refuse the arguments of a broken check,
        and the one that has the heading of our column."""

        def to_domain_obj(self) -> Any:
            return SimpleNamespace(description=self.description)

    return ShownConfiguration


def _seen(item: CheckOutcome) -> dict[str, Any]:
    """What the check saw, with the keys that the renderers need for their table of examples; else as one text."""
    if isinstance(item.observed, dict) and item.observed.keys() >= _COUNTED:
        # The library would show each null as an empty line.
        shown = [_text(value) for value in item.examples if value is not None]
        return {**item.observed, "partial_unexpected_list": shown}
    if not item.examples:
        return {"observed_value": observed_text(item.observed) if is_counts(item.observed) else item.observed}
    examples = "; ".join(str(_text(value)) for value in item.examples)
    return {"observed_value": f"{observed_text(item.observed)}, for example: {examples}"}


def _text(value: Any) -> Any:
    """A value as it is, but a row of several as one text."""
    return example_text(value) if isinstance(value, dict) else value


def _view() -> Any:
    """The library's view with our page around it, and with every text escaped."""
    from great_expectations.render.view.view import DefaultJinjaPageView
    from jinja2 import ChoiceLoader, PackageLoader, pass_context

    class DataDocsView(DefaultJinjaPageView):
        def __init__(self) -> None:
            super().__init__()
            library: Any = self.env.loader
            self.env.loader = ChoiceLoader([PackageLoader("tidemark.reconcile.audit", "views"), library])

        @pass_context
        def render_content_block(self, context: Any, block: Any, *args: Any, **kwargs: Any) -> Any:
            return super().render_content_block(context, _escaped(block), *args, **kwargs)

        def render_string_template(self, template: Any) -> Any:
            if isinstance(template, dict):
                # The library escapes parameters only, and those only if the template has a style.
                text = html.escape(template.get("template", ""), quote=False).replace("&lt;br&gt;", "<br>")
                template = {"styling": {}, **template, "template": text}
            return super().render_string_template(template)  # type: ignore[no-untyped-call]  # the library's

    return DataDocsView()


def _escaped(block: Any) -> Any:
    """A text, or the texts of a list, fit for HTML."""
    if isinstance(block, str):
        return html.escape(block)
    if isinstance(block, list):
        return [_escaped(item) if not isinstance(item, dict) else item for item in block]
    return block
