"""Environment variables in stream definitions: one definition for several environments."""

from pathlib import Path

import pytest
import yaml

from tests.test_streams import SMALLEST, write
from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import load_stream, misnamed_files, problems, stream_names
from tidemark.definitions.yaml_file import BYTES_MAX

GOOD = yaml.safe_dump(SMALLEST)
SIZES = """
archive:
  flush_size: ${FLUSH:-90}
  rotate_interval_seconds: ${ROTATE:-60.5}
batch:
  accept_loss: ${LOSS:-true}
  checks:
  - expectation: ${CHECK:-expect_column_values_to_match_regex_list}
    kwargs: {column: "${LEAST:-1}", row_condition: "$$5", regex_list: ["^a$", "$${FLUSH}"]}
"""


def test_values_come_from_variables_and_unquoted_numbers_are_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = "topic: orders\nspeed:\n  topic: ${TOPICS:-dev}.live\n  dead_letter_topic: ${TOPICS:-dev}.dead-${N}\n"
    write(tmp_path, f"name: orders\nvalue_schema: id BIGINT\n{topics}{SIZES}")
    monkeypatch.setenv("N", "7")
    monkeypatch.setenv("LEAST", "3")
    stream = load_stream("orders", tmp_path)
    assert (stream.speed.topic, stream.speed.dead_letter_topic) == ("dev.live", "dev.dead-7")
    assert (stream.archive.flush_size, stream.archive.rotate_interval_seconds) == (90, 60.5)
    assert stream.batch.accept_loss is True
    (check,) = stream.batch.checks
    assert (check.expectation, check.kwargs) == (
        "expect_column_values_to_match_regex_list",
        {"column": "3", "row_condition": "$5", "regex_list": ["^a$", "${FLUSH}"]},
    )
    by_default = stream.archive_settings
    monkeypatch.setenv("TOPICS", "prod.orders")
    monkeypatch.setenv("FLUSH", "500")
    stream = load_stream("orders", tmp_path)
    assert (stream.speed.topic, stream.archive.flush_size) == ("prod.orders.live", 500)
    assert stream.archive_settings != by_default
    write(tmp_path, f"name: orders\nvalue_schema: id BIGINT\n{topics}{SIZES}".replace("${FLUSH:-90}", "500"))
    assert load_stream("orders", tmp_path).archive_settings == stream.archive_settings


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("${ORDERS_TOPIC}", "no value for ${ORDERS_TOPIC}: the variable ORDERS_TOPIC is not set"),
        ("a-${ORDERS_TOPIC}", "no value for ${ORDERS_TOPIC}: the variable ORDERS_TOPIC is not set"),
        (
            "${1}",
            "no reference: expected ${NAME} or ${NAME:-default}; a dollar sign before { is written $$",
        ),
        ("${MY_SECRET:-x}", "no secrets in a definition, found ${MY_SECRET}"),
        (
            "${AIRFLOW__DATABASE__SQL_ALCHEMY_CONN}",
            "no secrets in a definition, found ${AIRFLOW__DATABASE__SQL_ALCHEMY_CONN}",
        ),
        ("${AIRFLOW_CONN_TIDEMARK_S3}", "no secrets in a definition, found ${AIRFLOW_CONN_TIDEMARK_S3}"),
    ],
)
def test_a_reference_without_a_value_is_one_error_of_its_stream_only(tmp_path: Path, value: str, problem: str) -> None:
    lines = GOOD.replace("topic: orders\n", f"topic: {value}\n").splitlines()
    path = write(tmp_path, "\n".join(lines))
    write(tmp_path, GOOD.replace("orders", "rides"), "rides")
    with pytest.raises(ConfigError) as caught:
        load_stream("orders", tmp_path)
    (one,) = problems(caught.value)
    number = lines.index(f"topic: {value}") + 1
    assert str(one) == f"topic: {problem}, in line {number} [{path}]"
    assert load_stream("rides", tmp_path).topic == "rides"


def test_variables_cannot_make_a_definition_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONG", "x" * (BYTES_MAX // 3))
    check = "{expectation: expect_x, kwargs: {a: '${LONG}'}}"
    write(tmp_path, GOOD + f"batch:\n  checks: [{', '.join([check] * 1_000)}]\n")
    with pytest.raises(ConfigError, match=r"batch\.checks\.3\.kwargs\.a: the variables hold more than 262,144 char"):
        load_stream("orders", tmp_path)


def test_a_key_that_is_nearly_right_is_suggested(tmp_path: Path) -> None:
    write(tmp_path, GOOD + "batch:\n  scedule: 0 1 * * *\n")
    with pytest.raises(ConfigError, match=r"batch\.scedule: unknown key, allowed keys: .*\. Did you mean schedule\?"):
        load_stream("orders", tmp_path)


def test_a_yml_file_is_named_with_the_name_it_needs(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("orders", "rides"), "rides")
    (tmp_path / "orders.yml").write_text(GOOD, encoding="utf-8")
    assert stream_names(tmp_path) == ("rides",)
    ((name, error),) = misnamed_files(tmp_path).items()
    assert name == "orders.yml"
    expected = f"not read: expected <name>.yaml, found 'orders.yml' [{tmp_path}]. Rename orders.yml to orders.yaml"
    assert str(error) == expected
    with pytest.raises(ConfigError, match=r"^no such stream: .*\. Rename orders\.yml to orders\.yaml$"):
        load_stream("orders", tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        "DB_CONN",
        "KEY_PASSPHRASE",
        "AIRFLOW__CORE__FERNET_KEY",
        "API_KEY",
        "DB_PWD",
        "SESSION_COOKIE",
        "BLOB_SAS",
        "MY_JWT",
        "CLIENT_KEY",
    ],
)
def test_names_of_secrets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "planted")
    write(tmp_path, GOOD.replace("topic: orders\n", f"topic: ${{{name}}}\n"))
    with pytest.raises(ConfigError, match="no secrets in a definition") as caught:
        load_stream("orders", tmp_path)
    assert "planted" not in str(caught.value)
