"""MkDocs hooks: the generated parts of the reference, the pages of the navigation's patterns, links out of the docs.

A line ``*Generated from […](…) by `make docs`.* <!-- name -->`` stands for the part of that name. It makes sense to
readers of the source as well, and nothing generated is in the repository.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reference import BLOCKS

GENERATED = re.compile(r"^\*Generated from .*<!-- (\w+) -->$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Replace each pattern of the navigation by its pages, and leave out sections without any."""
    config["nav"] = pages_of(config["nav"], Path(config["docs_dir"]))
    return config


def pages_of(entries: Any, docs: Path) -> list[Any]:
    """The navigation's entries with pages instead of patterns."""
    found: list[Any] = []
    for entry in [entries] if isinstance(entries, str) else entries:
        if isinstance(entry, str):
            found += (path.relative_to(docs).as_posix() for path in _in_order(docs.glob(entry)))
            continue
        ((title, inner),) = entry.items()
        pages = pages_of(inner, docs)
        if pages:
            found.append({title: pages[0] if pages == [inner] else pages})
    return found


def _in_order(pages: Iterable[Path]) -> list[Path]:
    """A folder's pages: its index, then those that the index lists, in its order, then the others by name."""
    found = sorted(pages)
    index = next((path for path in found if path.name == "index.md"), None)
    if index is None:
        return found
    listed = ["index.md", *(link for _, link, _ in LINK.findall(index.read_text(encoding="utf-8")))]
    return sorted(found, key=lambda path: listed.index(path.name) if path.name in listed else len(listed))


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Fill in the generated parts; of a link to a file that is no page, leave the text."""
    folder = (Path(config["docs_dir"]) / page.file.src_uri).parent
    return LINK.sub(
        lambda found: _link(found, folder, Path(config["docs_dir"])),
        GENERATED.sub(lambda found: BLOCKS[found[1]](), markdown),
    )


def _link(found: re.Match[str], folder: Path, docs: Path) -> str:
    return found[0] if (folder / found[2]).resolve().is_relative_to(docs) else found[1]
