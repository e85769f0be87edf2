"""Checks are validated when a definition is loaded, by a catalogue that equals the installed Great Expectations."""

import subprocess
import sys
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_streams import SMALLEST, refusal, write
from tidemark.core.errors import ConfigError
from tidemark.definitions.check_arguments import Kind
from tidemark.definitions.check_catalogue import FILE, catalogue, check_problems
from tidemark.definitions.check_profile import ProfiledColumn, stream_checks
from tidemark.definitions.own_checks import OWN_CHECKS
from tidemark.definitions.sections import Batch, Check, Deduplicate
from tidemark.definitions.stream import load_stream, problems
from tidemark.installation import PROJECT

SAMPLES: dict[Kind, Any] = {
    "text": "a",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "date": datetime(2013, 1, 14),
    "list": ["a", "b"],
    "mapping": {},
    "null": None,
}
# Values of a kind that the library looks into.
SPECIAL = {"quantile_ranges": {"quantiles": [0.5], "value_ranges": [[0, 1]]}, "value_pairs_set": [["a", 1]]}


def check(expectation: str, **kwargs: Any) -> dict[str, Any]:
    return {"expectation": expectation, "kwargs": kwargs}


def with_checks(*checks: dict[str, Any]) -> dict[str, Any]:
    return {**SMALLEST, "batch": {"checks": list(checks)}}


def test_the_catalogue_is_the_installed_librarys() -> None:
    """``make schemas`` writes the file again."""
    import check_catalogue

    assert FILE.read_text(encoding="utf-8") == check_catalogue.text()


def test_the_library_takes_every_argument_that_the_catalogue_takes() -> None:
    from great_expectations.expectations import registry

    refused, tried = [], 0
    for name, arguments in catalogue().expectations.items():
        if name in OWN_CHECKS:
            continue
        fields = registry.get_expectation_impl(name).__fields__
        assert {argument for argument, field in fields.items() if field.required} == {
            argument for argument, found in arguments.items() if found.required
        }
        for argument, found in arguments.items():
            values: list[Any] = [*found.choices] or [SAMPLES[kind] for kind in found.kinds]
            values += [bound for bound in (found.minimum, found.maximum) if bound is not None]
            for value in values:
                within = 0.5 if found.maximum == 1 and value == 1.5 else SPECIAL.get(argument, value)
                tried += 1
                assert found.problem(within) is None
                if fields[argument].validate(within, {}, loc=argument)[1]:
                    refused.append((name, argument, within))
    assert refused == []
    assert tried > 400


NOT_NULL = "expect_column_values_to_not_be_null"
BETWEEN = "expect_column_values_to_be_between"


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        (
            [check("expect_colum_values_to_not_be_null", column="id")],
            f"expectation: no such expectation, found 'expect_colum_values_to_not_be_null'. Did you mean {NOT_NULL}?",
        ),
        (
            [check("expect_wonders")],
            "expectation: no such expectation, found 'expect_wonders'. Give a name of Great Expectations 1.24.1 or ",
        ),
        ([check("ExpectColumnToExist", column="id")], "expectation: no such expectation, found 'ExpectColumnToExist'"),
        # Nothing in Great Expectations makes it on Spark.
        ([check("expect_column_values_to_match_like_pattern", column="id")], "expectation: no such expectation"),
        (
            [check(NOT_NULL, column="id", mostli=0.9)],
            "kwargs.mostli: unknown argument, allowed arguments: column, mostly, row_condition. Did you mean mostly?",
        ),
        ([check(NOT_NULL, column="id", meta={})], "kwargs.meta: unknown argument, allowed arguments: column, mostly"),
        ([check(NOT_NULL)], "kwargs.column: missing, expected a value"),
        (
            [check(NOT_NULL, column="id", mostly=90)],
            "kwargs.mostly: expected a number, at least 0 and at most 1, found 90",
        ),
        ([check(NOT_NULL, column="id", mostly="most")], "kwargs.mostly: expected a number, at least 0 and at most 1, "),
        ([check(NOT_NULL, column=["id"])], "kwargs.column: expected text, found ['id']"),
        (
            [check(BETWEEN, column="id", min_value="low")],
            "kwargs.min_value: expected a date or a number, found 'low'",
        ),
        (
            [check(BETWEEN, column="id", strict_min=1)],
            "kwargs.strict_min: expected true or false, found 1",
        ),
        (
            [check("expect_column_values_to_not_be_outliers", column="id", method="iqrs")],
            "kwargs.method: expected iqr or std, found 'iqrs'. Did you mean iqr?",
        ),
    ],
)
def test_a_wrong_check_is_named_when_the_definition_is_loaded(
    tmp_path: Path, checks: list[dict[str, Any]], message: str
) -> None:
    assert refusal(tmp_path, with_checks(*checks)).startswith(f"batch.checks.0.{message}")


def test_each_problem_of_each_check_is_named(tmp_path: Path) -> None:
    wrong = [
        check("expect_x"),
        check(NOT_NULL, column="id"),
        check(BETWEEN, colum="id", min_value=True),
        {**check(NOT_NULL, column="id"), "severity": "warning"},
    ]
    write(tmp_path, yaml.safe_dump(with_checks(*wrong)))
    with pytest.raises(ConfigError) as caught:
        load_stream("orders", tmp_path)
    assert [item.problem.partition(":")[0] for item in problems(caught.value)] == [
        "batch.checks.0.expectation",
        "batch.checks.2.kwargs.colum",
        "batch.checks.2.kwargs.min_value",
        "batch.checks.2.kwargs.column",
        "batch.checks.3",
    ]
    assert "batch.checks.3: the same check as batch.checks.1" in str(caught.value)


def test_each_of_thousands_of_wrong_checks_is_named() -> None:
    wrong = [Check(expectation=f"expect_column_values_{number}_to_not_be_nul") for number in range(4_000)]
    assert len(check_problems([*wrong, *wrong])) == 12_000


def test_right_checks_are_taken_as_they_are(tmp_path: Path) -> None:
    right = [
        check(NOT_NULL, column="id", mostly=1, row_condition="id > 3"),
        check(BETWEEN, column="id", min_value=1, max_value=2.5, strict_max=True),
        check(BETWEEN, column="at", min_value="2013-01-01"),
        check(BETWEEN, column="at", min_value=date(2013, 1, 1), max_value=None),
        check("expect_column_values_to_be_in_set", column="id", value_set=[1, 2]),
        check("unexpected_rows_expectation", unexpected_rows_query="SELECT * FROM {batch} WHERE id < 0"),
    ]
    write(tmp_path, yaml.safe_dump(with_checks(*right)))
    found = load_stream("orders", tmp_path).batch.checks
    assert [{"expectation": item.expectation, "kwargs": item.kwargs} for item in found] == right


def test_a_check_against_history_has_arguments_of_its_own(tmp_path: Path) -> None:
    wrong = [
        check("expect_row_count_to_match_histori"),
        check("expect_row_count_to_match_history", weekdays=0, deviation=-1),
        check("expect_column_mean_to_match_history", deviation=1),
    ]
    message = refusal(tmp_path, with_checks(*wrong))
    for part in (
        "'expect_row_count_to_match_histori'. Did you mean expect_row_count_to_match_history?",
        "batch.checks.1.kwargs.weekdays: expected an integer, at least 1 and at most 52, found 0",
        "batch.checks.1.kwargs.deviation: expected a number, at least 0, found -1",
        "batch.checks.2.kwargs.deviation: unknown argument, allowed arguments: column, standard_deviations, weekdays",
        "batch.checks.2.kwargs.column: missing, expected a value",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("stream", "near"),
    [("ride", ". Did you mean rides?"), ("orders", ""), ("../orders", "")],
    ids=["near", "own", "path"],
)
def test_a_check_across_streams_names_another_stream_of_the_folder(tmp_path: Path, stream: str, near: str) -> None:
    write(tmp_path, yaml.safe_dump({**SMALLEST, "name": "rides"}), "rides")
    message = refusal(tmp_path, with_checks(check("expect_row_count_to_match_stream", stream=stream)))
    assert message == f"batch.checks.0.kwargs.stream: no other stream of that name, found '{stream}'{near}"
    write(tmp_path, yaml.safe_dump(with_checks(check("expect_row_count_to_match_stream", stream="rides"))))
    assert load_stream("orders", tmp_path).batch.checks[0].kwargs == {"stream": "rides"}


def test_the_profile_gives_a_stream_checks_that_its_definition_replaces_and_switches_off() -> None:
    columns = (
        ProfiledColumn(name="id", kind="number"),
        ProfiledColumn(name="name", kind="text"),
        ProfiledColumn(name="at", kind="other"),
    )
    assert stream_checks(Batch(), columns) == ()
    by_default = stream_checks(Batch(profile="default", deduplicate=Deduplicate(key=("id",))), columns)
    assert [(item.expectation, item.kwargs.get("column")) for item in by_default] == [
        ("expect_row_count_to_match_history", None),
        ("expect_hourly_row_counts_to_match_history", None),
        (NOT_NULL, "id"),
        ("expect_column_null_share_to_match_history", "id"),
        ("expect_column_mean_to_match_history", "id"),
        ("expect_column_null_share_to_match_history", "name"),
        ("expect_column_distinct_values_to_match_history", "name"),
        ("expect_column_null_share_to_match_history", "at"),
    ]
    assert {item.severity for item in by_default} == {"warning"}
    assert check_problems(by_default) == []
    replaced = Check(expectation="expect_row_count_to_match_history", kwargs={"deviation": 0.1}, severity="critical")
    off = Check(expectation="expect_column_mean_to_match_history", kwargs={"column": "id"}, severity="none")
    found = stream_checks(Batch(profile="default", checks=(replaced, off)), columns)
    assert found[0] == replaced
    assert [item.expectation for item in found].count(replaced.expectation) == 1
    assert off.expectation not in [item.expectation for item in found]
    assert stream_checks(Batch(checks=(replaced, off)), columns) == (replaced,)


def test_the_page_has_every_check_of_tidemarks_own_with_its_defaults() -> None:
    page = (PROJECT / "docs" / "how-to" / "compare-with-earlier-days.md").read_text(encoding="utf-8")
    for name, arguments in OWN_CHECKS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        defaults = {argument: found.default for argument, found in arguments.items() if argument != "weekdays"}
        assert row.split(" | ")[1].split(", ") == [
            f"`{argument}`" if default is None else f"`{argument}: {default:g}`"
            for argument, default in defaults.items()
        ]


def test_loading_a_definition_imports_no_great_expectations_and_no_spark(tmp_path: Path) -> None:
    write(tmp_path, yaml.safe_dump(with_checks(check(NOT_NULL, column="id"))))
    code = (
        "import sys; from pathlib import Path; from tidemark.definitions.stream import load_stream;"
        "load_stream('orders', Path(sys.argv[1]));"
        "assert not {'great_expectations', 'pyspark'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
