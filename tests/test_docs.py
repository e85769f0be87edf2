"""The pages against the code: links, commands, keys, settings, paths, examples, pictures, and how they are written."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import typer
import yaml
from pydantic import BaseModel
from typer.main import get_command

from tests.pages import blocks
from tidemark.cli.app import app
from tidemark.connections.sources import OWN_VARIABLES
from tidemark.core.references import expand
from tidemark.definitions.stream import Stream
from tidemark.installation import PROJECT
from tidemark.orchestration.steps import STEPS
from tidemark.settings import Settings

DOCS = PROJECT / "docs"
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
RUNBOOKS = sorted((DOCS / "runbooks").glob("*.md"))
EXPLANATION = sorted((DOCS / "explanation").rglob("*.md"))
# The pages that people wrote; the reference comes from the code and has a test of its own.
WRITTEN = [PROJECT / "README.md", DOCS / "tutorial.md", *HOW_TO, *RUNBOOKS, *EXPLANATION]
PAGES = sorted({*PROJECT.glob("*.md"), *DOCS.rglob("*.md")})
PLACEHOLDERS = {"OFFSET": "1", "PARTITION": "1", "VERSION": "1", "ROLE": "archive"}
SENTENCE_WORDS_MAX = 25
PARAGRAPH_WORDS_MAX = 120


def by_path(pages: list[Path]) -> pytest.MarkDecorator:
    """Parametrizes a test by page."""
    return pytest.mark.parametrize("page", pages, ids=[str(page.relative_to(PROJECT)) for page in pages])


def code(page: Path) -> Iterator[str]:
    """Every line of a shell block, and every code span."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        if block.language == "sh":
            yield from block.text.splitlines()
    for span in re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)):
        yield " ".join(span.split())


@by_path(PAGES)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        file = page.parent / target if target else page
        if (DOCS / "reference") in file.resolve().parents and not (DOCS / "reference").exists():
            continue
        if not file.exists() or (anchor and anchor not in anchors(file)):
            wrong.append(f"{target}#{anchor}")
    assert wrong == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@by_path(PAGES)
def test_every_command_fits_the_parser(page: Path) -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for line in code(page):
        match shlex.split(line) if line.startswith(("make ", "tidemark ")) else []:
            case ["make", target, *_]:
                assert target in targets, line
            case ["tidemark", name, *arguments]:
                command = get_command(app).commands.get(name)  # type: ignore[attr-defined]  # it is a group
                assert command is not None, line
                given = [PLACEHOLDERS.get(word, word) for word in arguments]
                try:
                    command.make_context(name, given)
                except typer.BadParameter as error:
                    if type(error).__name__ != "MissingParameter":  # a command that is only mentioned
                        raise


@by_path(WRITTEN)
def test_every_path_of_the_project_exists(page: Path) -> None:
    folders = r"(?:include|spark_apps|dags|tests|scripts|plugins|benchmarks|docs)/[\w./-]+|[\w-]+\.(?:toml|yaml)"
    wanted = {found[0] for line in code(page) if (found := re.match(rf"({folders})(?: [\w<]+)*$", line))}
    written = {block.title for block in blocks(page)} | {"include/streams/rides.yaml", "rides.yaml", "orders.yaml"}
    written.add("tidemark.toml")  # the file of settings, in examples
    assert sorted(path.split()[0] for path in wanted - written if not (PROJECT / path.split()[0]).exists()) == []


@by_path(WRITTEN)
def test_every_key_and_setting_exists(page: Path) -> None:
    keys = set(leaf_keys(Stream))
    sections = {key.split(".")[0] for key in keys if "." in key}
    named = {
        found[1]
        for line in code(page)
        if (found := re.match(r"([a-z_]+(?:\.[a-z_]+)+)(?::.*)?$", line)) and found[1].split(".")[0] in sections
    }
    assert sorted(name for name in named if not any(f"{key}.".startswith(f"{name}.") for key in keys)) == []
    settings = {f"TIDEMARK_{name.upper()}" for name in Settings.model_fields} | set(OWN_VARIABLES)
    assert set(re.findall(r"\bTIDEMARK_[A-Z0-9_]*[A-Z0-9]", page.read_text(encoding="utf-8"))) <= settings


def leaf_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key of a stream's YAML file, with dots."""
    for name, field in model.model_fields.items():
        models = [kind for kind in _types(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
        for nested in models:
            yield from leaf_keys(nested, f"{prefix}{name}.")
        if not models:
            yield f"{prefix}{name}"


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _types(part)


@by_path(WRITTEN)
def test_every_yaml_example_is_a_valid_definition_and_python_compiles(page: Path) -> None:
    base = {
        "name": "orders",
        "topic": "orders",
        "value_schema": "order_id BIGINT, line INT, fare DOUBLE",
        "speed": {"topic": "orders.live", "dead_letter_topic": "orders.dead-letter"},
    }
    for block in blocks(page):
        if block.text.startswith("apiVersion:") or block.title == "prometheus.yml":  # of Kubernetes, of Prometheus
            continue
        if block.language == "yaml":
            Stream.model_validate({**base, **yaml.safe_load(expand(block.text, {}))})
        elif block.language == "python":
            compile(block.text, str(page), "exec")


def test_every_example_dag_is_shown_as_it_is() -> None:
    shown = {item.title: item.text for item in blocks(DOCS / "how-to" / "follow-sealed-days.md") if item.title}
    files = (PROJECT / "dags" / "examples").glob("*.py")
    assert shown == {str(path.relative_to(PROJECT)): path.read_text(encoding="utf-8") for path in files}


@by_path([page for page in HOW_TO if page.name != "index.md"])
def test_a_how_to_says_when_it_is_needed_and_how_to_see_that_it_worked(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.match(r"# .+\n\n\*\*When you need this\.\*\* ", text)
    assert text.split("\n## ")[-1].startswith("How to see that it worked\n")


@by_path([page for page in RUNBOOKS if page.name != "index.md"])
def test_a_runbook_names_its_alert_and_has_four_parts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.match(r"# .+\n\n\*\*Alert\.\*\* `Tidemark\w+`\n", text)
    parts = ["What it means", "How to see it", "What to do", "How to see that it is over"]
    assert re.findall(r"(?m)^## (.+)$", text) == parts


@pytest.mark.parametrize(
    "folder",
    [DOCS / "how-to", DOCS / "runbooks", DOCS / "explanation" / "decisions"],
    ids=lambda path: path.name,
)
def test_a_folders_index_lists_each_of_its_pages(folder: Path) -> None:
    index = (folder / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(([\w-]+\.md)\)", index)
    assert sorted(set(listed)) == sorted(page.name for page in folder.glob("*.md") if page.name != "index.md")


def test_architecture_draws_the_floors_of_the_import_contract() -> None:
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (item["layers"] for item in contracts["contracts"] if item["type"] == "layers")
    (drawn,) = (block.text for block in blocks(DOCS / "explanation" / "architecture.md") if block.language == "text")
    assert drawn.splitlines() == layers


def test_architecture_and_its_picture_name_the_steps_in_order() -> None:
    steps = [step.name for step in STEPS]
    page = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    picture = (DOCS / "reconcile.svg").read_text(encoding="utf-8")
    listed = [
        name
        for line in re.findall(r"^\d+\. .+(?:\n   .+)*", page, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", line)
    ]
    drawn = re.findall(r">(\w+)</text>", picture)
    for named, least in ((listed, 8), (drawn, 7)):
        found = [name for name in dict.fromkeys(named) if name in steps]
        assert len(found) >= least
        assert found == [name for name in steps if name in found]


@pytest.mark.parametrize("name", ["flow", "archive", "reconcile", "speed", "capacity"])
def test_a_picture_has_a_title_a_description_and_colours_for_the_dark(name: str) -> None:
    picture = ET.parse(DOCS / f"{name}.svg").getroot()  # noqa: S314 - our own file
    texts = {child.tag.rpartition("}")[2]: child.text or "" for child in picture}
    assert texts["title"]
    assert texts["desc"]
    assert "prefers-color-scheme: dark" in texts["style"]


@by_path(WRITTEN)
def test_sentences_and_paragraphs_are_short(page: Path) -> None:
    text = re.sub(
        r"^```.*?^```$|<!--.*?-->|!\[.*?\]\(.*?\)", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    text = re.sub(r"^\s*(?:[-*]|\d+\.) |\|", "\n\n", text, flags=re.MULTILINE)
    paragraphs = re.split(r"\n\s*\n", text)
    assert [part for part in paragraphs if len(part.split()) > PARAGRAPH_WORDS_MAX] == []
    sentences = [sentence for part in paragraphs for sentence in re.split(r"(?<=[.!?:;])\s+", part)]
    assert [sentence for sentence in sentences if len(sentence.split()) > SENTENCE_WORDS_MAX] == []
