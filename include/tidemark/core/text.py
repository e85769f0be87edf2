"""Text from outside, such as a record's, for terminals, logs and reports: safe to print, and cut between characters."""

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

SHOWN_MAX = 200  # characters of a value in a message
ELLIPSIS = "…"

# C0, DEL and C1; marks that reorder or end lines; half a character of UTF-16, which no terminal or file can take.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
# What begins markup within a line. A range such as "[3, 5)" begins none.
_MARKS = re.compile(r"[\\`*~<&]|(?<=\])[(\[:]|(?<![^\W_])_|_(?![^\W_])")
_ESCAPED = re.compile(r"\\([\\`*_~<&(\[:])")
_ACCENTS = {"Mn", "Mc", "Me"}
_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAGS = range(0x1F1E6, 0x1F200)


def printable(text: str) -> str:
    """The text on one line, with each control character as Python writes it in a literal.

    What a terminal would take for a command, or a log's reader for a new line, is then shown and does nothing.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def as_markdown(text: str) -> str:
    """The text where Markdown is expected: no link, code or emphasis comes of it. ``from_markdown`` undoes it."""
    return _MARKS.sub(r"\\\g<0>", text)


def from_markdown(text: str) -> str:
    """The text of which ``as_markdown`` has made this."""
    return _ESCAPED.sub(r"\1", text)


def cut(text: str, characters_max: int) -> str:
    """The text, or its start and an ellipsis: at most ``characters_max`` code points, cut between characters.

    A letter keeps its accents, an emoji its modifiers, and a flag both halves.
    """
    if len(text) <= characters_max:
        return text
    end = characters_max - len(ELLIPSIS)
    while end > 0 and _continues(text, end):
        end -= 1
    return text[:end] + ELLIPSIS


def excerpt(text: str, characters_max: int = SHOWN_MAX) -> str:
    """The text on one line, printable and cut."""
    return cut(printable(text), characters_max)


def error_text(error: Exception) -> str:
    """The type of an error of others, and an excerpt of what it says."""
    return f"{type(error).__name__}: {excerpt(str(error))}"


def quoted(value: object, characters_max: int = SHOWN_MAX) -> str:
    """``repr`` of a value, printable and cut; its type if it has no such text."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write integers of more than 4,300 digits
        text = f"a value of type {type(value).__name__} that is too long to show"
    return excerpt(text, characters_max)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A question that names the known name that was probably meant, or None."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.8)
    return f"Did you mean {near[0]}?" if near else None


def _continues(text: str, at: int) -> bool:
    """Whether the code point at ``at`` belongs to the character before it."""
    code = ord(text[at])
    if unicodedata.category(text[at]) in _ACCENTS or _JOINER in text[at - 1 : at + 1] or code in _SKIN_TONES:
        return True
    flags = 0  # halves of flags before this one: two make a flag
    while code in _FLAGS and flags < at and ord(text[at - 1 - flags]) in _FLAGS:
        flags += 1
    return flags % 2 == 1
