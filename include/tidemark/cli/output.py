"""How commands print: consoles and tables that never cut a value.

On a terminal, a table takes the terminal's width and folds long values onto further lines. In a pipe or a file, each
row is one line, so that ``grep`` sees it whole. ``COLUMNS`` sets the width of both.
"""

import os
from collections.abc import Mapping

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemark.core.text import printable

PIPE_WIDTH = 10_000
# A line below the head and above a new section; nothing else, so that a row can be copied.
_LINES = Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")


def open_console() -> Console:
    """Standard output. Plain lines are never wrapped here: the terminal does it, and a pipe gets them whole."""
    console = Console(soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


def make_table(*names: str, numbers: tuple[str, ...] = (), fold: tuple[str, ...]) -> Table:
    """An empty table with these columns.

    Columns in ``numbers`` align to the right. On a narrow terminal only the columns in ``fold`` get narrower; their
    values then take several lines. Print a title as a line before the table: rich would cut it.
    """
    table = Table(box=_LINES, show_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(
            name, justify="right" if name in numbers else "left", no_wrap=name not in fold, overflow="fold"
        )
    return table


def plain(text: str, *, style: str = "") -> Text:
    """Text for a console: nothing in it is markup, and its control characters are escaped."""
    return Text(printable(text), style=style)


def print_fields(console: Console, title: str, fields: Mapping[str, str], *, style: str = "bold") -> None:
    """A title and one line per field. The lines are never folded, so that keys and snapshots can be copied."""
    console.print(plain(title, style=style))
    for label, value in fields.items():
        console.print(plain(f"  {label:<21}{value}"))


def fits(console: Console, table: Table) -> bool:
    """Whether the console is wide enough to print the table without folding."""
    return console.measure(table, options=console.options.update(max_width=PIPE_WIDTH)).maximum <= console.width


def duration(seconds: float) -> str:
    """``42 s``, ``3 min``, ``5 h``, ``12 d``: the largest unit that gives at least 2."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(number: int, noun: str) -> str:
    """``1 day``, ``1,200 days``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
