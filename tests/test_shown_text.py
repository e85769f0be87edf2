"""Text from records in commands and reports: cut between characters, and obeyed by no terminal."""

import io

import pytest
from rich.console import Console

from tidemark.cli.output import plain, print_fields
from tidemark.cli.root import explain
from tidemark.core.errors import FormatError, StackError
from tidemark.reconcile.json_values import safe

HOSTILE = "bad\x1b]0;owned\x07\r\n\x9b2Jvalue [red]"
SHOWN = "bad\\x1b]0;owned\\x07\\r\\n\\x9b2Jvalue [red]"


@pytest.mark.conformance(28)
def test_a_records_text_is_escaped_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=400)
    print_fields(console, f"Quarantined: {HOSTILE}", {"object": HOSTILE})
    console.print(plain(HOSTILE))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [f"Quarantined: {SHOWN}", f"  {'object':<21}{SHOWN}", SHOWN]


def test_an_error_with_a_records_text_is_escaped_and_keeps_the_lines_of_its_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    explain(FormatError("a value", found=HOSTILE))
    explain(StackError("it ended", hint="Its last log lines:\none\x1b[1m\ntwo"))
    expected = [
        f"FormatError: a value: found {SHOWN}",
        "StackError: it ended. Its last log lines:",
        "one\\x1b[1m",
        "two",
    ]
    assert capsys.readouterr().err.splitlines() == expected


def test_values_in_a_report_are_cut_between_characters_and_bytes() -> None:
    assert safe("e\u0301" * 150) == "e\u0301" * 99 + "…"
    assert safe(b"\xc3\xa9" * 150) == "c3a9" * 49 + "c3" + "…"
    assert safe(b"\xc3" * 100) == "c3" * 100
