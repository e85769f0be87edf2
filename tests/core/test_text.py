"""Text from outside: cut between characters, and without a character that a terminal or log would obey."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tidemark.core.errors import IncompleteError
from tidemark.core.text import as_markdown, cut, from_markdown, printable, quoted

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
THUMB = "\U0001f44d\U0001f3fd"
FLAG = "\U0001f1e9\U0001f1ea"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ☃ é \U0001f44d", "plain ☃ é \U0001f44d"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("one\r\ntwo\t", "one\\r\\ntwo\\t"),
        ("\x00\x07\x7f\x9b", "\\x00\\x07\\x7f\\x9b"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u2028b\ud83d", "a\\u2028b\\ud83d"),
        (FAMILY, FAMILY),
    ],
)
def test_control_characters_are_shown_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_what_is_printable_has_no_control_character_and_can_be_written(text: str) -> None:
    shown = printable(text)
    assert {unicodedata.category(item) for item in shown}.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    shown.encode()
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("text", "characters", "expected"),
    [
        ("abcd", 4, "abcd"),
        ("abcde", 4, "abc…"),
        ("ab" + "e\u0301" + "fg", 4, "ab…"),
        ("ab" + "e\u0301" + "fg", 5, "abe\u0301…"),
        ("a" + FAMILY + "b", 5, "a…"),
        ("a" + FAMILY + "bc", 7, "a" + FAMILY + "…"),
        ("a" + THUMB + "bc", 3, "a…"),
        (FLAG + FLAG + "x", 4, FLAG + "…"),
        (FLAG + FLAG + "xy", 5, FLAG + FLAG + "…"),
        ("e" + "\u0301" * 9, 5, "…"),
    ],
)
def test_text_is_cut_between_characters(text: str, characters: int, expected: str) -> None:
    assert cut(text, characters) == expected


@given(st.text(), st.integers(1, 20))
def test_a_cut_text_is_a_start_of_the_text_within_the_bound(text: str, characters: int) -> None:
    found = cut(text, characters)
    assert len(found) <= characters
    assert found == text or (found.endswith("…") and text.startswith(found[:-1]))


def test_a_value_is_quoted_on_one_line_within_200_characters() -> None:
    assert quoted("a\nb\x9b") == "'a\\nb\\x9b'"
    assert len(quoted(list(range(1_000)))) == 200
    assert quoted(1 << 20_000) == "a value of type int that is too long to show"


def test_an_errors_text_is_safe_on_a_terminal_and_one_line_in_a_log() -> None:
    error = IncompleteError(
        "a record\x1b]0;title\x07 fails", expected="a\nb", found="c\rd", where="k\u202ey", hint="Do \x9b31m it"
    )
    expected = "a record\\x1b]0;title\\x07 fails: expected a\\nb, found c\\rd [k\\u202ey]. Do \\x9b31m it"
    assert (str(error), error.args) == (expected, (expected,))
    assert error.found == "c\rd"


MARKUP = (
    "[report](http://x.y) **Approve**",
    "![i](z.png)",
    "[a][b] [b]: z",
    "<b>",
    "`c`",
    "__d__",
    "a\\*",
    "&amp;",
    "~~e~~",
)


@given(st.lists(st.sampled_from(MARKUP) | st.text(st.characters(exclude_categories=["C", "Z"]))))
def test_text_in_markdown_stays_text(parts: list[str]) -> None:
    text = "Failed check: expect_a, observed [3, 5) " + " ".join(filter(None, parts))
    (line,) = MarkdownIt("commonmark").enable("strikethrough").parseInline(as_markdown(text))
    assert "".join(item.content for item in line.children or ()) == text
    assert {item.type for item in line.children or ()} <= {"text", "text_special"}
    assert from_markdown(as_markdown(text)) == text
    assert as_markdown("expect_a_b: [3, 5)") == "expect_a_b: [3, 5)"
