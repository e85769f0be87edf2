"""Masked errors: what stays of their text, and that nothing of a value does."""

import traceback

import pytest

from tidemark.core.errors import ConfigError, ServiceError
from tidemark.core.masking import failure_text, masked_addresses, masked_cause, masked_failures

CAST = (
    "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'ada@example.org' of the type"
    ' "STRING" cannot be cast to "INT". SQLSTATE: 22018'
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CAST, "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] •••"),
        ("[USER_RAISED_EXCEPTION] ada. SQLSTATE: P0001", "[USER_RAISED_EXCEPTION] •••"),
        ("[FOREACH.USER_ERROR] ada", "[FOREACH.USER_ERROR] •••"),
        ("ValueError: ada", "ValueError: •••"),
        ("KeyError", "KeyError: •••"),
        ("json.decoder.JSONDecodeError: ada", "json.decoder.JSONDecodeError: •••"),
        ("java.lang.RuntimeException: [ADA] no", "java.lang.RuntimeException: •••"),
        ("ValueError: [ADA] no", "ValueError: •••"),
        ("ada: ValueError", "•••"),
        ("ada.lovelace: no", "•••"),
        ("ada@example.org", "•••"),
        ("[ada] no", "•••"),
        ("ErrorOfAda: no", "•••"),
        ("", "•••"),
    ],
)
def test_a_masked_cause_names_the_class_and_sparks_condition_and_no_value(text: str, expected: str) -> None:
    assert masked_cause(text) == expected


@pytest.mark.conformance(29)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Failed to parse: http://user:pa/ada@host/api", "Failed to parse: http://•••@host/api"),
        ("HTTPConnectionPool(host='h', port=1): url: /api?key=ada&x=1 (Caused by", None),
        ("see https://docs.example.com/errors/28000 for help", None),
    ],
)
def test_addresses_in_an_error_lose_their_logins_and_parameters(text: str, expected: str | None) -> None:
    masked = masked_addresses(text)
    assert masked == (expected or text.replace("key=ada&x=1", "•••"))


@pytest.mark.conformance(29)
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConfigError("a key is wrong", found="x"), "a key is wrong: found x"),
        (
            LookupError("https://ada:s3cret@host/a?sig=s3cret refused\nas 403"),
            "LookupError: https://•••@host/a?••• refused\\nas 403",
        ),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (ValueError("x" * 2_000), "ValueError: " + "x" * 999 + "…"),
    ],
)
def test_the_kept_text_of_an_unexpected_error_is_one_line_without_logins(error: BaseException, expected: str) -> None:
    assert failure_text(error) == expected
    assert failure_text(error, named=True).removeprefix(f"{type(error).__name__}: ") == expected.removeprefix(
        f"{type(error).__name__}: "
    )


def test_an_unexplained_error_of_personal_rows_is_raised_without_its_text_and_without_its_cause() -> None:
    error = LookupError("a" + "da")  # no line of code in the trace has the whole value
    error.__cause__ = ValueError(*error.args)
    with pytest.raises(ServiceError, match="found LookupError: •••") as caught, masked_failures(personal=True):
        raise error
    assert error.args[0] not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(("personal", "error"), [(True, ConfigError("ada")), (False, LookupError("ada"))])
def test_an_explained_error_and_one_without_personal_rows_stay_as_they_are(personal: bool, error: Exception) -> None:
    with pytest.raises(type(error), match="ada") as caught, masked_failures(personal=personal):
        raise error
    assert caught.value is error
