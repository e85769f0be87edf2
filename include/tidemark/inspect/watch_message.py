"""One message about everything that changed since a notifier announced the state last: subject, text and HTML."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from html import escape

from tidemark.core.days import moment_text
from tidemark.core.text import cut, printable
from tidemark.inspect.problems import KINDS, PAGES, WATCH_KINDS
from tidemark.inspect.watch import ALL_STREAMS, Change

DETAILS_MAX = 30
_SUBJECT_MAX = 150
_TEXT_MAX = 1_000
_DAYS_MAX = 5
# The mark of a problem of a day, or of a day in a run: see watch_findings.
_DAY = re.compile(r"(\d{4}-\d{2}-\d{2})( in run .*)?")
_WORDS = {"began": "began", "worse": "got worse", "ended": "ended"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Absolute URLs: of a stream's page (of all streams for ``ALL_STREAMS``), of the page of its day, and of a page of
    the documentation."""

    page: Callable[[str], str]
    day: Callable[[str, date], str]
    docs: Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The same in three forms. The subject is one line, and HTML's texts are escaped."""

    subject: str
    text: str
    html: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paragraph:
    """One change: a title, and lines with a name and a text; a link's text is its URL."""

    title: str
    lines: tuple[tuple[str, str], ...]


def write_message(deployment: str, changes: Sequence[Change], links: Links) -> Message:
    """The message about at least one change: what began first, and what ended last."""
    ordered = sorted(changes, key=lambda item: (list(_WORDS).index(item.change), item.problem.key))
    paragraphs = [_paragraph(item, links) for item in ordered[:DETAILS_MAX]]
    rest = [f"{_name(item)}: {item.problem.kind} {_WORDS[item.change]}" for item in ordered[DETAILS_MAX:]]
    if rest:
        shown = ("Also", cut("; ".join(rest), _TEXT_MAX))
        paragraphs.append(_Paragraph(title=f"{len(rest)} more", lines=(shown, ("Page", links.page(ALL_STREAMS)))))
    subject = _subject(deployment, ordered)
    return Message(
        subject=subject,
        text="\n\n".join([subject, *map(_plain, paragraphs)]) + "\n",
        html=f"<h2>{escape(subject)}</h2>\n" + "\n".join(map(_html, paragraphs)),
    )


def _subject(deployment: str, changes: Sequence[Change]) -> str:
    counts = Counter[str](item.change for item in changes)
    parts = [f"{counts[change]} {words}" for change, words in _WORDS.items() if counts[change]]
    streams = ", ".join(dict.fromkeys(map(_name, changes)))
    return cut(printable(f"Tidemark {deployment}: problems: {', '.join(parts)} ({streams})"), _SUBJECT_MAX)


def _name(item: Change) -> str:
    return item.problem.stream or "all streams"


def _paragraph(item: Change, links: Links) -> _Paragraph:
    problem, ended = item.problem, item.change == "ended"
    meaning = {**KINDS, **WATCH_KINDS}[problem.kind]
    since = f"{moment_text(problem.since_us, UTC)[:16].replace('T', ' ')} UTC"
    lines = [("What it was" if ended else "What happened", cut(printable(problem.text), _TEXT_MAX)), ("Since", since)]
    if item.marks:
        lines.insert(1, ("New", cut(printable(", ".join(item.marks)), _TEXT_MAX)))
    if not ended:
        lines.append(("What to do", cut(printable(problem.hint), _TEXT_MAX)))
        days = _days(item.marks or problem.marks)
        lines += [(f"Page of {day}", links.day(problem.stream, day)) for day in days[:_DAYS_MAX]]
        lines.append(("Runbook", links.docs(PAGES[problem.kind])))
    lines.append(("Page", links.page(problem.stream)))
    title = f"{_name(item)}: {problem.kind} {_WORDS[item.change]}. {meaning}"
    return _Paragraph(title=f"{_name(item)}: {problem.kind} ended" if ended else title, lines=tuple(lines))


def _days(marks: Iterable[str]) -> tuple[date, ...]:
    """Those that the marks name, the newest first."""
    found = filter(None, map(_DAY.fullmatch, marks))
    return tuple(sorted({date.fromisoformat(item[1]) for item in found}, reverse=True))


def _plain(paragraph: _Paragraph) -> str:
    return "\n".join([paragraph.title, *(f"  {name}: {text}" for name, text in paragraph.lines)])


def _html(paragraph: _Paragraph) -> str:
    rows = "".join(f"<li>{escape(name)}: {_linked(text)}</li>" for name, text in paragraph.lines)
    return f"<p><b>{escape(paragraph.title)}</b></p>\n<ul>{rows}</ul>"


def _linked(text: str) -> str:
    shown = escape(text)
    return f'<a href="{shown}">{shown}</a>' if text.startswith(("http://", "https://")) and " " not in text else shown
