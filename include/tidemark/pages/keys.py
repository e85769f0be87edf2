"""What a search for a key within a day has found, in words."""

from datetime import date

from tidemark.core.days import utc_second
from tidemark.core.text import excerpt
from tidemark.inspect.locate_key import RECORDS_MAX, KeyForm, KeyRecords
from tidemark.pages.words import number, plural, sentence

_UNREAD_SHOWN_MAX = 10


def key_name(text: str, form: KeyForm) -> str:
    """The key as the person gave it."""
    return f"“{excerpt(text, 80)}”" if form == "text" else f"0x{excerpt(text, 80)}"


def key_headline(found: KeyRecords | None, day: date, name: str, *, continued: bool) -> str:
    """What was found, in one sentence."""
    if found is None:
        return f"The records of {day} with key {name} are not known."
    if _is_missing(found, continued=continued):
        is_later = found.newest_day is None or day > found.newest_day
        return f"The archive has no records of {day}{' yet' if is_later else ''}."
    shown = len(found.records)
    if found.ended_by == "records":
        which = "The next" if continued else "The first"
        return f"{which} {number(RECORDS_MAX)} records of {day} with key {name}; there are more."
    if found.ended_by == "time":
        return f"{plural(shown, 'record')} of {day} with key {name} so far; the search is not finished."
    where = " in the objects that could be read" if found.unread else ""
    if not shown:
        none = f"No more records of {day} have" if continued else f"No record of {day} has"
        return f"{none} key {name}{where}."
    more = " more" if continued else ""
    records = "record of" if shown == 1 else "records of"
    return f"{number(shown)}{more} {records} {day} {_has(shown)} key {name}{where}."


def key_sentences(found: KeyRecords, day: date, *, continued: bool) -> tuple[str, ...]:
    """What was searched."""
    seal = found.seal
    objects = f"{plural(found.objects, 'object')} of the archive"
    if _is_missing(found, continued=continued):
        searched = []  # the headline says it
    elif _has_no_rows(found):
        searched = [f"The archive has no{' more' if continued else ''} rows of {day}."]
    else:
        searched = [f"Searched: {plural(found.rows, 'row')} of {day} in {objects}. Each copy of a row counts."]
    if seal is None:
        return *searched, f"{day} is not sealed, so no version has its records yet."
    version = f"The newest version of {day} is {seal.version}, sealed {utc_second(seal.sealed_at_us)}"
    return *searched, f"{version}: {plural(seal.rows_read, 'row')} read, {number(seal.rows_published)} published."


def unread_sentences(found: KeyRecords) -> tuple[str, ...]:
    """Which objects could not be read, and what to do; empty if each could."""
    if not found.unread:
        return ()
    first = (sentence(item.error) for item in found.unread[:_UNREAD_SHOWN_MAX])
    left = len(found.unread) - _UNREAD_SHOWN_MAX
    return (
        f"The answer may lack records: {plural(len(found.unread), 'object')} could not be read.",
        *first,
        *([f"{plural(left, 'further object')} could not be read either."] if left > 0 else []),
        "Restore the damaged or missing objects from a copy of the bucket. Then search again.",
    )


def _is_missing(found: KeyRecords, *, continued: bool) -> bool:
    """Whether the archive has no rows of the day, and no seal proves that there are none."""
    return _has_no_rows(found) and not continued and (found.seal is None or found.seal.rows_read > 0)


def _has_no_rows(found: KeyRecords) -> bool:
    """Whether no object has rows of the day, from where the search started."""
    return not found.objects and not found.unread


def _has(count: int) -> str:
    return "has" if count == 1 else "have"
