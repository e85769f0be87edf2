"""Code, documentation and texts use the project's words: tests/language.toml lists the others (no server)."""

import io
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIST = "tests/language.toml"
# Texts of others, and generated ones
NOT_OURS = re.compile(
    r"LICENSE|requirements(?:-executors)?\.txt|jars/SHA256SUMS|deploy/helm/render/go\.sum|tests/durations\.json"
    r"|tests/upgrades/[\d.]+/.*"
)
SHOWN_MAX = 60


@dataclass(frozen=True, slots=True)
class Finding:
    path: str
    line: int
    word: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word}"


@dataclass(frozen=True, slots=True)
class WordList:
    """Banned words and names; keys are lower-case, values say what to use instead."""

    words: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    allowed: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def findings(self, path: str, text: str) -> Iterator[Finding]:
        # Same number of lines: an identifier's words get spaces between them.
        spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ")
        allowed = {word: _spans(phrases, spaced) for word, phrases in self.allowed.items()}
        for match in _pattern(self.words).finditer(spaced):
            word = " ".join(re.findall(r"[\w']+", match[0].lower()))
            if not any(start <= match.start() < end for start, end in allowed.get(word, ())):
                yield Finding(path, spaced.count("\n", 0, match.start()) + 1, word)
        if path.endswith(".py"):
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.NAME and token.string.strip("_").lower() in self.names:
                    yield Finding(path, token.start[0], token.string.strip("_").lower())


def _pattern(phrases: Sequence[str] | Mapping[str, str]) -> re.Pattern[str]:
    """Any of the phrases as whole words; a line break with a comment's ``#`` separates words as a space does."""
    alternatives = "|".join(
        r"[\s#]+".join(map(re.escape, phrase.split())) for phrase in sorted(phrases, key=len, reverse=True)
    )
    return re.compile(rf"(?<![\w'])(?:{alternatives})(?!\w)" if alternatives else r"(?!)", re.IGNORECASE)


def _spans(phrases: Sequence[str], text: str) -> list[tuple[int, int]]:
    return [match.span() for match in _pattern(phrases).finditer(text.replace("-", " "))]


def _files() -> list[str]:
    """Every file of the project, new ones too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({path for path in listed if not NOT_OURS.fullmatch(path) and (ROOT / path).is_file()})


def _excepted(exceptions: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    return {(path, word) for item in exceptions for path in item["paths"] for word in item["words"]}


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    return tomllib.loads((ROOT / LIST).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found(rules: dict[str, Any]) -> list[Finding]:
    """Every finding in the project, those under an exception too."""
    listed = WordList(rules["words"], rules["names"], rules["allowed"])
    return [item for path in _files() for item in listed.findings(path, (ROOT / path).read_text(encoding="utf-8"))]


def _not_excepted(rules: dict[str, Any], found: Sequence[Finding]) -> list[Finding]:
    excepted = _excepted(rules["exceptions"])
    return [item for item in found if not {(item.path, item.word), (item.path, "*")} & excepted]


def test_no_file_uses_a_banned_word(rules: dict[str, Any], found: list[Finding]) -> None:
    says = {**rules["names"], **rules["words"]}
    wrong = _not_excepted(rules, found)
    lines = [f"{item}: say {says[item.word]}" for item in wrong[:SHOWN_MAX]]
    assert not wrong, "\n".join([f"{len(wrong)} banned words (see {LIST}):", *lines])


def test_every_exception_is_needed_and_has_a_reason(rules: dict[str, Any], found: list[Finding]) -> None:
    used = {pair for item in found for pair in ((item.path, item.word), (item.path, "*"))}
    assert sorted(_excepted(rules["exceptions"]) - used) == []
    assert all(item["reason"].endswith(".") for item in rules["exceptions"])


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("It was old.", []),
        ("an olden goldmine", []),
        ("OLD\n", [1]),
        ("\nthe_old = 1", [2]),
        ("\n\nclass MyOldOne:", [3]),
        ("in the\nend", [1]),
        ("# in the\n# end", [1]),
        ("in the. End", []),
        ("a good-old word, a bad old word", [1]),
    ],
)
def test_a_banned_word_is_found_in_text_and_identifiers(text: str, lines: list[int]) -> None:
    listed = WordList({"old": "former", "in the end": "finally"}, {}, {"old": ["it was old", "good old"]})
    assert [item.line for item in listed.findings("a.md", text)] == lines


def test_a_banned_name_is_found_only_as_a_whole_name() -> None:
    listed = WordList(names={"some": "a noun"})
    text = "# some text\n_some = some_value\nclass Some: ...\n"
    assert [item.line for item in listed.findings("a.py", text)] == [2, 3]
    assert list(listed.findings("a.md", text)) == []
