"""The types of single values in a stream definition, each with the error for a wrong one."""

import re
from collections import Counter
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterBadDateError, croniter
from pydantic import AfterValidator, BeforeValidator, Field

from tidemark.core.json_path import steps
from tidemark.core.renames import require_once


def _time_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: a folder, such as Europe
        raise ValueError("not a time zone of the IANA database, such as Europe/Berlin") from error
    return value


def _visible(value: str) -> str:
    """Spark, like Hadoop, ignores files with such names, so their rows would never be rebuilt."""
    if value.startswith(("_", ".")):
        raise ValueError(f"{value!r} starts with '_' or '.': Spark does not read objects of such a name")
    return value


def _own_table(value: str) -> str:
    if value.endswith("_quarantine"):
        raise ValueError(f"the table {value} is for what stream {value.removesuffix('_quarantine')} quarantines")
    return value


def _json_path(value: str) -> str:
    if not re.match(r"\$\.[^.\[\]]", value):
        raise ValueError("not the JSON path of a field, which starts with '$.', such as $.departed_at")
    steps(value)
    return value


def _cron(value: str) -> str:
    """Croniter also accepts a sixth field, days such as 31 February that never come, and lists that take it seconds.

    It replaces R with a random number, and H with a hash: each process could compute other times.
    """
    if len(value) > _CRON_CHARACTERS_MAX:
        raise ValueError(f"a cron expression of more than {_CRON_CHARACTERS_MAX} characters")
    if drawn := _CRON_DRAWN.search(value):
        raise ValueError(f"a cron expression with a random or hashed field, {drawn[0]}; write numbers")
    if len(value.split()) != 5 or not croniter.is_valid(value):
        raise ValueError("not a cron expression of five fields, such as '0 * * * *'")
    try:
        croniter(value).get_next()
    except CroniterBadDateError as error:
        raise ValueError("a cron expression of days that never come") from error
    return value


def _time_of_day(value: Any) -> Any:
    """YAML reads 10:30 without quotes as the number 630."""
    if not isinstance(value, str) or not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", value):
        raise ValueError("not a time from 00:00 to 23:59 in quotes, such as '06:00'")
    return value


def _personal(value: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for name, times in Counter(name.casefold() for name in value).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"the name {twice!r} is listed twice")
    return value


_CRON_CHARACTERS_MAX = 1_000
_CRON_DRAWN = re.compile(r"(?<![a-z])[hr](?![a-z])\S*", re.IGNORECASE)

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$"), AfterValidator(_own_table)]
Topic = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
SourceTopic = Annotated[Topic, AfterValidator(_visible)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
Renames = Annotated[dict[str, tuple[str, ...]], AfterValidator(require_once)]
Personal = Annotated[tuple[Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")], ...], AfterValidator(_personal)]
SchemaFile = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")]
JsonPath = Annotated[str, AfterValidator(_json_path)]
Cron = Annotated[str, AfterValidator(_cron)]
TimeOfDay = Annotated[str, BeforeValidator(_time_of_day)]
