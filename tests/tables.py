"""Reads the tables that commands print."""

import re
from itertools import pairwise, takewhile

RULE = re.compile(r" *─+ *")


def read_tables(text: str, key: str) -> list[dict[str, str]]:
    """The rows of every table in the text, cells by column. A line without a ``key`` continues the row above it."""
    lines = text.splitlines()
    heads = [at for at in range(len(lines) - 1) if key in lines[at] and RULE.fullmatch(lines[at + 1])]
    return [row for at in heads for row in _rows(lines[at:], key)]


def _rows(lines: list[str], key: str) -> list[dict[str, str]]:
    """Every line of a table is padded to its width; two columns of blanks separate its cells."""
    width = len(lines[0])
    table = [line for line in takewhile(lambda line: len(line) == width, lines) if not RULE.fullmatch(line)]
    blank = "".join(" " if all(line[at] == " " for line in table) else "x" for at in range(width))
    bounds = [0, *(found.end() for found in re.finditer(r" {2,}(?=x)", blank)), width]
    cells = [[line[start:end].strip() for start, end in pairwise(bounds)] for line in table]
    rows: list[dict[str, str]] = []
    for line in cells[1:]:
        row = dict(zip(cells[0], line, strict=True))
        if row[key]:
            rows.append(row)
        else:
            rows[-1] = {name: f"{rows[-1][name]}\n{cell}".strip("\n") for name, cell in row.items()}
    return rows
