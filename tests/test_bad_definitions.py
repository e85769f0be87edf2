"""A bad definition harms nobody else: each ends in one clear line at once, whatever its file and its name hold."""

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.test_streams import SMALLEST, write
from tidemark.cli import streams as command
from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import Stream, load_stream, misnamed_files, problems, stream_names

pytestmark = pytest.mark.conformance(62)
GOOD = yaml.safe_dump(SMALLEST)
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
MISNAMED = ("flights (copy)", "a b", "Orders", "orders_quarantine", "9lives", "x" * 64, "naïve", "a\nb", "..")


def refusal(folder: Path, text: str | bytes) -> ConfigError:
    """The error of ``orders.yaml``, which is one line, shorter than a screen, and took no minutes of CPU."""
    path = folder / "orders.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_stream("orders", folder)
    assert time.process_time() - began < 10  # of most, a hundredth; a file that grows by itself takes hours
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1_000
    return caught.value


def with_check(value: str) -> str:
    """A good definition whose check has an argument, written as it is."""
    return f"{GOOD}batch:\n  checks:\n  - expectation: expect_x\n    kwargs:\n      min_value: {value}\n"


@pytest.mark.parametrize("name", MISNAMED)
def test_a_name_is_checked_before_anything_is_made_of_it(tmp_path: Path, name: str) -> None:
    write(tmp_path, GOOD)
    if name != "..":
        write(tmp_path, GOOD, name)
    with pytest.raises(ConfigError, match=r"not the name of a stream: expected a lower-case letter") as caught:
        load_stream(name, tmp_path)
    assert repr(name) in str(caught.value)
    assert stream_names(tmp_path) == ("orders",)
    assert [str(error) for error in misnamed_files(tmp_path).values()] == ([str(caught.value)] if name != ".." else [])


def test_the_longest_name_of_a_stream_fits_airflows_limits(tmp_path: Path) -> None:
    name = "a" * 63
    write(tmp_path, yaml.safe_dump({**SMALLEST, "name": name}), name)
    assert load_stream(name, tmp_path).name == name
    assert len(f"reconcile_{name}") <= 250


def test_an_editors_hidden_file_is_no_definition(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / ".#orders.yaml").symlink_to("somebody@host.1234")
    assert (stream_names(tmp_path), misnamed_files(tmp_path)) == (("orders",), {})


def test_a_file_of_50_mb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.touch()
    os.truncate(path, 50_000_000)
    with pytest.raises(ConfigError, match="too large: expected 262,144 bytes at most, found more") as caught:
        load_stream("orders", tmp_path)
    assert caught.value.where == str(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").mkdir()
    with pytest.raises(ConfigError, match="not a file"):
        load_stream("orders", tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{GOOD}unknown:\n  {BOMB.replace(chr(10), chr(10) + '  ')}", "no alias (*name), found one"),
        ("name: &n orders\ntopic: *n\n", "no alias (*name), found one"),
        (GOOD + "deep: " + "[" * 100_000, "nesting of at most 32 levels, found more"),
        (GOOD + "deep: " + "{a: " * 60_000, "nesting of at most 32 levels, found more"),
        (GOOD + "".join(f"k{n}:\n" for n in range(30_000)), "at most 20,000 keys and values, found more"),
        (with_check("[" + "1, " * 60_000 + "1]"), "at most 20,000 keys and values, found more"),
    ],
    ids=["bomb in an unknown key", "alias of a value", "lists", "mappings", "keys", "a list"],
)
def test_aliases_deep_nesting_and_too_many_values_are_refused_unread(tmp_path: Path, text: str, expected: str) -> None:
    error = refusal(tmp_path, text)
    assert f"a definition is not plain YAML: expected {expected}" in str(error)
    assert ".yaml, line " in str(error)


@pytest.mark.parametrize(
    "value",
    ["2024-02-30", "0x" + "f" * 100_000, "[[[[x]]]]", "{archive: {typo: 1}}"],
    ids=["no date", "100,000 digits", "lists", "keys"],
)
def test_an_unknown_key_is_refused_before_its_value_is_looked_into(tmp_path: Path, value: str) -> None:
    (problem,) = problems(refusal(tmp_path, f"{GOOD}retention: {value}\n"))
    assert problem.problem.startswith("retention: unknown key, allowed keys: archive, avro_earlier_schema_files, ")


def test_of_many_problems_the_first_twenty_are_named(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(GOOD + "".join(f"k{n}: 1\n" for n in range(5_000)))
    with pytest.raises(ConfigError) as caught:
        load_stream("orders", tmp_path)
    found = [item.problem.partition(":")[0] for item in problems(caught.value)]
    assert found == [*(f"k{n}" for n in range(20)), "and 4,980 more problems"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("2024-02-30", "'2024-02-30' is no timestamp (day is out of range for month)"),
        ("2024-13-01", "'2024-13-01' is no timestamp (month must be in 1..12)"),
        ("2024-01-01T00:00:00+99:99", "is no timestamp (offset must be"),
        ("9" * 100_000, "99… is an integer of more than 128 bits"),
        ("59:" * 80_000 + "59", "59:… is an integer of more than 128 bits"),
        ("0x" + "f" * 5_000, "ff… is an integer of more than 128 bits"),
        ("0b_", "'0b_' is no int"),
        ("!!bool perhaps", "'perhaps' is no bool"),
        ("!!timestamp soon", "'soon' is no timestamp"),
        ("{[1, 2]: 3}", "a key is a list or a mapping"),
    ],
    ids=[
        "30 February",
        "month 13",
        "offset",
        "100,000 digits",
        "base 60",
        "hexadecimal",
        "binary",
        "bool",
        "timestamp",
        "a key",
    ],
)
def test_a_value_that_yaml_cannot_convert_names_file_line_and_reason(tmp_path: Path, value: str, found: str) -> None:
    error = refusal(tmp_path, with_check(value))
    assert error.problem == "not YAML"
    assert found in str(error)
    assert re.search(rf" in line {with_check('').count(chr(10))}, column 1[89] \[", str(error))


def test_a_schedule_of_thousands_of_numbers_is_refused_unread(tmp_path: Path) -> None:
    schedule = ",".join(["1-59"] * 50_000) + " * * * *"
    error = refusal(tmp_path, f"{GOOD}batch:\n  schedule: {schedule}\n")
    assert "batch.schedule: a cron expression of more than 1000 characters, found '1-59," in str(error)


def test_what_was_found_is_quoted_up_to_200_characters(tmp_path: Path) -> None:
    error = refusal(tmp_path, yaml.safe_dump({**SMALLEST, "version": "é" * 1_000}))
    assert str(error).startswith("version: ")
    assert f"found '{'é' * 198}… [" in str(error)


def test_whatever_else_is_wrong_with_one_definition_is_caught_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_raw: Any) -> Stream:
        raise RecursionError("maximum recursion\x1b[2J depth exceeded\n" + "x" * 1_000)

    monkeypatch.setattr(Stream, "model_validate", fails)
    error = refusal(tmp_path, GOOD)
    expected = "a definition can't be used: found RecursionError: maximum recursion\\x1b[2J depth exceeded\\n"
    assert str(error).startswith(expected)


def test_a_stream_that_cannot_be_checked_leaves_the_check_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_spark: object, stream: Stream, *_: object, **__: object) -> Any:
        if stream.name == "orders":
            raise ZeroDivisionError("division by zero")
        return SimpleNamespace(columns=("id",), table_columns=("_day", "id"), changes=(), problems=(), profile=())

    monkeypatch.setattr("tidemark.spark.session.bare_session", lambda _name: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr("tidemark.reconcile.check_definition.check_definition", check)
    streams = {}
    for name in ("orders", "rides"):
        write(tmp_path, yaml.safe_dump({**SMALLEST, "name": name}), name)
        streams[name] = load_stream(name, tmp_path)
    found = dict(command._check(streams, tmp_path, None))
    assert found["rides"] == "definition, transformation (1 column), 0 checks"
    error = found["orders"][0]
    assert isinstance(error, ConfigError)
    assert error.problem == "a definition can't be checked"
    assert error.found == "ZeroDivisionError: division by zero"


def test_a_column_that_another_stream_has_not_is_named_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_spark: object, stream: Stream, *_: object, **__: object) -> Any:
        columns = () if stream.name == "untried" else ("_day", "ride_id", "fare")
        return SimpleNamespace(columns=columns, table_columns=columns, changes=(), problems=(), profile=())

    monkeypatch.setattr("tidemark.spark.session.bare_session", lambda _name: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr("tidemark.reconcile.check_definition.check_definition", check)
    names = ("orders", "rides", "untried")
    for name in names:
        write(tmp_path, yaml.safe_dump({**SMALLEST, "name": name}), name)
    kwargs = ({"stream": stream, "stream_column": "ride_di"} for stream in ("rides", "untried"))
    checks = [
        {"expectation": "expect_column_values_to_exist_in_stream", "kwargs": {"column": "fare", **item}}
        for item in kwargs
    ]
    write(tmp_path, yaml.safe_dump({**SMALLEST, "batch": {"checks": checks}}))
    found = dict(command._check({name: load_stream(name, tmp_path) for name in names}, tmp_path, None))
    (error,) = map(str, found["orders"])
    key = "batch.checks.0.kwargs.stream_column"
    expected = "not a column of the table of rides: expected one of: _day, ride_id, fare, found ride_di"
    assert error == f"{key}: {expected} [{tmp_path / 'orders.yaml'}]. Did you mean ride_id?"
    assert isinstance(found["rides"], str)
