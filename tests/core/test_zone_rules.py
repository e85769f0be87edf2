"""Two programs' rules of a time zone: equal ones pass whatever their versions; a difference says what to update."""

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tidemark.core.errors import ConfigError
from tidemark.core.zone_rules import ZoneRules, compared_time, require_same_rules, zone_offsets

HOUR = 3600
START, SPRING, AUTUMN = (
    int(datetime.fromisoformat(f"2025-{at}+00:00").timestamp()) for at in ("01-01T00:00", "03-30T01:00", "10-26T01:00")
)
PYTHON = ZoneRules(
    program="Python",
    version="2025b",
    offsets=((START, HOUR), (SPRING, 2 * HOUR), (AUTUMN, HOUR)),
    update="install tzdata",
)
JAVA = replace(PYTHON, program="Java 17.0.9", version="2023c", update="install Java")


def refusal(python: ZoneRules, java: ZoneRules) -> str:
    with pytest.raises(ConfigError) as caught:
        require_same_rules("Europe/Berlin", python, java)
    return str(caught.value)


def test_equal_rules_pass_whatever_the_versions() -> None:
    require_same_rules("Europe/Berlin", PYTHON, JAVA)
    require_same_rules("Europe/Berlin", replace(PYTHON, version=None), JAVA)


@pytest.mark.parametrize(
    ("offsets", "expected", "found"),
    [
        (((START, HOUR),), "UTC+02:00 from 2025-03-30T01:00+00:00", "no further change"),
        (((START, HOUR), (SPRING + 60, 2 * HOUR)), "UTC+02:00 from 2025-03-30T01:00", "+02:00 from 2025-03-30T01:01"),
        (((START, -HOUR * 7 // 2),), "UTC+01:00 from 2025-01-01T00:00", "UTC-03:30 from 2025-01-01T00:00+00:00"),
    ],
    ids=["no summer time", "a minute later", "another offset"],
)
def test_a_difference_names_both_versions_its_first_moment_and_the_older_data(
    offsets: tuple[tuple[int, int], ...], expected: str, found: str
) -> None:
    text = refusal(PYTHON, replace(JAVA, offsets=offsets))
    assert f"expected Python, data 2025b: {expected}" in text
    assert "found Java 17.0.9, data 2023c: " in text
    assert found in text
    assert text.endswith("[time zone Europe/Berlin]. Update the data of Java 17.0.9: install Java")


@pytest.mark.parametrize(
    ("python", "java", "updates"),
    [
        (
            {"version": "2024a"},
            {"version": "2025b", "offsets": ((START, 0),)},
            "Update the data of Python: install tzdata",
        ),
        ({}, {"offsets": (), "version": None}, "Update the data of Java 17.0.9: install Java"),
        ({"offsets": ()}, {}, "Update the data of Python: install tzdata"),
        (
            {"version": None, "offsets": ((START, 0),)},
            {},
            "Update the data of Python: install tzdata; or Update the data of Java 17.0.9: install Java",
        ),
    ],
    ids=["older Python", "unknown to Java", "unknown to Python", "unknown version"],
)
def test_the_data_to_update_is_the_older_or_both(
    python: dict[str, object], java: dict[str, object], updates: str
) -> None:
    text = refusal(replace(PYTHON, **python), replace(JAVA, **java))  # type: ignore[arg-type]  # fields of the class
    assert text.endswith(f"]. {updates}")


def test_pythons_rules_are_those_of_the_time_that_is_compared() -> None:
    start, end = compared_time(datetime(2024, 6, 1, 12, 34, tzinfo=UTC))
    assert (start, end) == (datetime(2023, 6, 1, 12, tzinfo=UTC), datetime(2026, 6, 3, 12, tzinfo=UTC))
    found = [
        (datetime.fromtimestamp(at, UTC), offset // HOUR)
        for at, offset in zone_offsets(ZoneInfo("Europe/Berlin"), start, end)
    ]
    assert found == [
        (start, 2),
        (datetime(2023, 10, 29, 1, tzinfo=UTC), 1),
        (datetime(2024, 3, 31, 1, tzinfo=UTC), 2),
        (datetime(2024, 10, 27, 1, tzinfo=UTC), 1),
        (datetime(2025, 3, 30, 1, tzinfo=UTC), 2),
        (datetime(2025, 10, 26, 1, tzinfo=UTC), 1),
        (datetime(2026, 3, 29, 1, tzinfo=UTC), 2),
    ]
    assert zone_offsets(ZoneInfo("UTC"), start, end) == ((int(start.timestamp()), 0),)
