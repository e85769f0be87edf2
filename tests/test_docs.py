"""The documentation against the code: links, commands, steps, limits. The site is in test_docs_site.py."""

import re
from pathlib import Path

import pytest

from tidemark.cli.app import app
from tidemark.orchestration.steps import BACKFILL_DAYS_MAX, SPAN_DAYS_MAX, STEPS
from tidemark.stack.local import PROJECT

PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
IDS = [str(page.relative_to(PROJECT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_make_target_and_command_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE))
    assert targets <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    commands = set(re.findall(r"(?:`|^)tidemark ([a-z]+)", text, re.MULTILINE))
    assert commands <= {item.name or getattr(item.callback, "__name__", "") for item in app.registered_commands}


def test_batch_names_every_step_in_order() -> None:
    text = (PROJECT / "docs" / "batch.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \| (?:Python|Spark)", text, re.MULTILINE) == [step.name for step in STEPS]


def test_the_limits_of_both_forms_are_named() -> None:
    for page, limit in (("batch.md", SPAN_DAYS_MAX), ("operations.md", BACKFILL_DAYS_MAX)):
        text = (PROJECT / "docs" / page).read_text(encoding="utf-8")
        assert re.search(rf"`from_day`[^|]+ {limit:,} at most", text), page


def test_the_picture_is_well_formed_and_says_what_it_shows() -> None:
    picture = (PROJECT / "docs" / "flow.svg").read_text(encoding="utf-8")
    assert picture.count("<") == picture.count(">")
    for words in (
        "<title",
        "<desc",
        *(f">{step.name}<" for step in STEPS if step.name not in {"wait", "finalize_plan"}),
    ):
        assert words in picture
