"""The documentation's site, and the reference against the code it comes from."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
import yaml
from pydantic import TypeAdapter

import reference
import reference_examples
from conformance import cases, marked_tests
from docs_hooks import GENERATED, pages_of
from tidemark.cli.app import app
from tidemark.core.codec import decode
from tidemark.core.manifest import parse_manifest
from tidemark.core.seal import parse_seal
from tidemark.installation import PROJECT
from tidemark.objects.footer import Footer
from tidemark.objects.schema import SCHEMA
from tidemark.speed.headers import DEAD_LETTER_HEADERS, HEADERS
from tidemark.tables.columns import QUARANTINE_SCHEMA
from tidemark.tables.snapshot_summary import (
    DAYS_PROPERTY,
    INPUTS_PROPERTY,
    RANGES_PROPERTY,
    ROWS_PROPERTY,
    RUN_PROPERTY,
    snapshot_summary,
)

pytestmark = pytest.mark.conformance(57)

REFERENCE = PROJECT / "docs" / "reference"
KEYS = list(reference.leaf_keys())


class Loaded(HTMLParser):
    """Everything that a page makes the browser load, and the classes of its elements."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.classes: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.classes |= set((given.get("class") or "").split())
        name = "href" if tag == "link" else "src"
        if tag != "a" and (url := given.get(name)):
            self.urls.append(url)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.mark.services
def test_no_page_of_the_site_loads_anything_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    loaded = {page.relative_to(site).as_posix(): Loaded(page) for page in pages}
    assert {name: found for name, page in loaded.items() if (found := [url for url in page.urls if "//" in url])} == {}
    assert [name for name, page in loaded.items() if "mermaid" in page.classes] == []  # its script is on another host
    styles = {path.name: path.read_text(encoding="utf-8") for path in site.rglob("*.css")}
    assert [name for name, text in styles.items() if re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", text)] == []


@pytest.mark.services
def test_no_placeholder_is_left_on_the_site_and_every_page_is_in_the_search_index(site: Path) -> None:
    assert [page.name for page in site.rglob("*.html") if "Generated from" in page.read_text(encoding="utf-8")] == []
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - found == {"404.html"}


def test_every_generated_part_is_on_one_page() -> None:
    pages = [*REFERENCE.glob("*.md"), PROJECT / "docs" / "conformance.md"]
    used = [name for page in pages for name in GENERATED.findall(page.read_text(encoding="utf-8"))]
    assert sorted(used) == sorted(reference.BLOCKS)


def test_every_page_is_in_the_navigation_and_no_section_is_empty(tmp_path: Path) -> None:
    def pages(entries: Any) -> Iterator[str]:
        for entry in entries if isinstance(entries, list) else [entries]:
            yield from pages(next(iter(entry.values()))) if isinstance(entry, dict) else [entry]

    docs = PROJECT / "docs"
    nav = pages_of(yaml.safe_load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"], docs)
    assert {*pages(nav)} >= {path.relative_to(docs).as_posix() for path in docs.rglob("*/*.md")}
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.md").touch()
    shown = pages_of([{"A": ["a/*.md", {"Empty": "a/b/*.md"}]}, {"One": "a/one.md"}, {"None": "b.md"}], tmp_path)
    assert shown == [{"A": ["a/one.md"]}, {"One": "a/one.md"}]


@pytest.mark.parametrize(("key", "field"), [(key, field) for key, _, field in KEYS], ids=[key for key, _, _ in KEYS])
def test_every_key_of_a_stream_has_a_description_and_a_valid_example(key: str, field: Any) -> None:
    assert field.description, key
    assert field.description.endswith("."), key
    assert field.examples, key
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[field.annotation, field])
    for example in field.examples:
        adapter.validate_python(example)
        assert yaml.safe_load(f"{key.rpartition('.')[2]}: {reference.yaml_text(example)}") == {
            key.rpartition(".")[2]: example
        }


def test_every_setting_and_command_is_described() -> None:
    assert [line for line in reference.settings().splitlines() if "None" in line or line.endswith("|  |")] == []
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # it is a group
    assert [name for name in commands if f"### `tidemark {name}`\n" not in reference.commands()] == []


def rows(page: str, heading: str) -> Iterator[tuple[str, str]]:
    """First and second cell of the first table under a heading, without their code marks."""
    section = (REFERENCE / page).read_text(encoding="utf-8").split(f"{heading}\n", 1)[1].split("\n#", 1)[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            yield cells[0].strip("`"), cells[1]


def test_the_columns_of_data_objects_and_tables_are_the_codes() -> None:
    assert list(rows("archive-format.md", "## Data objects")) == [(item.name, str(item.type)) for item in SCHEMA]
    quarantine = [(item.name, item.dataType.simpleString()) for item in QUARANTINE_SCHEMA.fields]
    assert list(rows("tables.md", "## Quarantine table")) == quarantine
    assert list(rows("tables.md", "## Published table")) == quarantine[:6]


def test_the_headers_and_snapshot_properties_are_the_codes() -> None:
    both = [(f"tidemark.{name}", "both topics") for name in HEADERS]
    assert list(rows("headers.md", "# Headers")) == [
        *both,
        *((f"tidemark.{name}", "dead letters") for name in DEAD_LETTER_HEADERS),
    ]
    written = {
        *snapshot_summary("flights", {}, {}),
        DAYS_PROPERTY,
        INPUTS_PROPERTY,
        RANGES_PROPERTY,
        ROWS_PROPERTY,
        RUN_PROPERTY,
    }
    assert {name for name, _ in rows("tables.md", "## Snapshot properties")} == written


def shown(block: str) -> Any:
    """The JSON of an example."""
    return json.loads(block.removeprefix("```json\n").removesuffix("```\n"))


def canonical(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()


def test_the_examples_are_what_the_code_writes_and_reads() -> None:
    manifest = shown(reference_examples.manifest())
    assert parse_manifest(canonical(manifest), where="example") == reference_examples.FIRST
    compacted = {**json.loads(reference_examples.COMPACTED.to_json()), **shown(reference_examples.compaction())}
    assert parse_manifest(canonical(compacted), where="example") == reference_examples.COMPACTED
    assert parse_seal(canonical(shown(reference_examples.seal())), where="example") == reference_examples.SEALED
    assert decode(Footer, shown(reference_examples.footer()), where="example") == reference_examples.FOOTER
    data = reference_examples.FIRST.files[0].key
    assert reference_examples.LAYOUT.parse_data_key(data).range == reference_examples.FIRST.ranges[0].range
    assert f"`{data}`" in reference_examples.example_keys()


def test_the_fields_of_manifest_and_seal_are_those_of_their_json() -> None:
    def names(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for key, item in value.items():
                if not re.fullmatch(r"\d{4}-\d\d-\d\d", key):  # a day
                    yield key
                yield from names(item)
        elif isinstance(value, list):
            for item in value:
                yield from names(item)

    def documented(text: str) -> set[str]:
        return set(re.findall(r"^\| `(\w+)` ", text, re.MULTILINE))

    written = set(names(json.loads(reference_examples.COMPACTED.to_json())))
    assert documented(reference.manifest_fields()) == (written | {"day", "unreadable_times"}) - {"format"}
    seal = set(names(json.loads(reference_examples.SEALED.to_json())))
    assert seal - {"format"} <= documented(reference.seal_fields())
    empty = {"key", "keep", "removed", "added", "changed", "approval", "by", "at_us", "words"}  # null there
    empty |= {"truncated", "archived", "leader_epoch"}
    assert documented(reference.seal_fields()) - seal == empty


def test_every_marker_names_a_case_and_every_early_case_has_a_test() -> None:
    numbers, marked = [number for number, _ in cases()], marked_tests(PROJECT / "tests")
    assert numbers == list(range(1, len(numbers) + 1))
    assert set(marked) - set(numbers) == set()
    assert set(range(1, 30)) <= set(marked)
