"""The TOML file named by ``TIDEMARK_CONFIG``: a table per profile, and ``[default]`` for all of them.

A text may hold ``${NAME}`` or ``${NAME:-default}``, or be ``file:PATH``, whose value is the file's text. Nothing here
shows a value: an error names the key, the file and the line.
"""

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tidemark.connections.sources import CONFIG_VARIABLE, PREFIX, PROFILE_VARIABLE, Given
from tidemark.core.errors import ConfigError
from tidemark.core.references import expand
from tidemark.core.text import did_you_mean

SHARED = "default"
_FILE = re.compile(r"file:(?!//)(.+)", re.DOTALL)  # file:// begins a URL
_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")


def from_file(known: Collection[str], wanted: Collection[str], variables: Mapping[str, str]) -> dict[str, Given]:
    """What the file gives of the ``wanted`` settings in the chosen profile. Empty without a file.

    The references of others are not followed: parsing a DAG must work where their secrets are not to be had.

    Raises ConfigError for a file that is not as described, an unknown profile or key, and a reference without a value.
    """
    path, profile = variables.get(CONFIG_VARIABLE), variables.get(PROFILE_VARIABLE, "")
    if not path:
        if profile:
            hint = f"Set {CONFIG_VARIABLE} to the TOML file that has the profile"
            raise ConfigError("a profile without a file", found=profile, where=PROFILE_VARIABLE, hint=hint)
        return {}
    file = _read(Path(path))
    file.require_known(known)
    chosen = file.chosen(profile)
    tables = {key: table for table in (SHARED, chosen) for key in file.profiles.get(table, {})}
    return {
        key: Given(file.resolved(table, key, file.profiles[table][key], variables), file.place(table, key))
        for key, table in tables.items()
        if key in wanted
    }


def toml_text(values: Mapping[str, str]) -> str:
    """The text of a file from which ``from_file`` reads these texts as they are."""
    lines = (f"{name} = {_literal(text)}\n" for name, text in values.items())
    return f"[{SHARED}]\n{''.join(lines)}"


def _literal(text: str) -> str:
    text = text.replace("$", "$$")
    if _FILE.fullmatch(text):
        text = f"${{{PREFIX}NONE:-f}}{text[1:]}"  # a reference to no variable, so that the text names no file
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True)
class _File:
    """A TOML file's text and values."""

    path: Path
    text: str
    profiles: Mapping[str, Any]

    def require_known(self, names: Collection[str]) -> None:
        """Raises ConfigError with the first key that is no setting or stands in no profile."""
        for profile, values in self.profiles.items():
            if not isinstance(values, dict):
                hint = f"Put it below a line [{SHARED}], or the name of a profile"
                raise ConfigError("a key outside of a profile", found=profile, where=str(self.path), hint=hint)
            for key in values:
                if key not in names:
                    raise ConfigError(
                        "unknown setting", found=key, where=self.place(profile, key), hint=did_you_mean(key, names)
                    )

    def chosen(self, profile: str) -> str:
        """The profile to use; the only one needs no choice. Raises ConfigError for an unknown one, or for several."""
        own = [name for name in self.profiles if name != SHARED]
        if not profile:
            if len(own) > 1:
                hint = f"Set {PROFILE_VARIABLE} to one of them"
                raise ConfigError(
                    "several profiles", expected="a choice", found=", ".join(own), where=str(self.path), hint=hint
                )
            return next(iter(own), SHARED)
        if profile not in self.profiles:
            raise ConfigError(
                "unknown profile",
                expected=f"one of: {', '.join(self.profiles) or 'none'}",
                found=profile,
                where=str(self.path),
                hint=did_you_mean(profile, self.profiles),
            )
        return profile

    def resolved(self, profile: str, key: str, value: Any, variables: Mapping[str, str]) -> Any:
        """The value, with what its references stand for."""
        if isinstance(value, dict):
            return {name: self.resolved(profile, f"{key}.{name}", item, variables) for name, item in value.items()}
        if isinstance(value, list):
            return [self.resolved(profile, key, item, variables) for item in value]
        if not isinstance(value, str):
            return value
        place, file = self.place(profile, key), _FILE.fullmatch(value)
        try:
            text = expand(file[1] if file else value, variables)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}", where=place) from error
        if file is None:
            return text
        try:
            return (self.path.parent / text).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            found = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ConfigError(f"{key}: no value for {value}", found=found, where=place) from error

    def place(self, profile: str, key: str) -> str:
        """The file with the line and the profile of a key."""
        name = key.split(".", maxsplit=1)[0]
        line = self._lines.get((profile, key), self._lines.get((profile, name)))
        return f"{self.path}, {'' if line is None else f'line {line}, '}[{profile}]"

    @cached_property
    def _lines(self) -> dict[tuple[str, str], int]:
        """Where keys stand, for messages: TOML's reader does not say it."""
        lines: dict[tuple[str, str], int] = {}
        profile = table = ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := _HEADER.match(line):
                profile, _, table = header[1].replace('"', "").partition(".")
                lines.setdefault((profile, table), number)
            elif key := re.match(r"\s*\"?([A-Za-z0-9_.-]+)\"?\s*=", line):
                name = f"{table}.{key[1]}" if table else key[1]
                lines.setdefault((profile, name), number)
                lines.setdefault((profile, name.split(".")[0]), number)
        return lines


def _read(path: Path) -> _File:
    try:
        text = path.read_text(encoding="utf-8")
        return _File(path, text, tomllib.loads(text))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else error
        raise ConfigError("the file of settings can't be read", found=found, where=str(path)) from error
