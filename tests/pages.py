"""The blocks of a Markdown page, in order, as the tests of the documentation read them."""

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its language, the file it stands for, and its text."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(language=language, title=title, text=text) for language, title, text in found]
