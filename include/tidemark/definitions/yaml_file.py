"""A definition's YAML, read within bounds: whatever the file holds, it takes a fraction of a second."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tidemark.connections.shown import SECRET_WORDS
from tidemark.core.errors import ConfigError
from tidemark.core.references import expand, referenced
from tidemark.core.text import did_you_mean, excerpt, printable, quoted

BYTES_MAX = 256 * 1024
DEPTH_MAX = 32
VALUES_MAX = 20_000
_INTEGER_BITS_MAX = 128  # DECIMAL(38, 0) fits
_INTEGER_CHARACTERS_MAX = 1_000  # PyYAML takes seconds for a longer one in base 60, such as 1:30
# A definition is shown in Airflow and in reports.
_SECRET = re.compile(f"{SECRET_WORDS}|_CONN(_|$)|^AIRFLOW__|_PROPERTIES", re.IGNORECASE)
_INTEGER = "tag:yaml.org,2002:int"
Schema = Mapping[str, Any]


class _Loader(yaml.CSafeLoader):
    """Refuses a repeated key, of which PyYAML silently uses the last one, and names the line of each wrong value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT002 - as PyYAML has it
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=deep)
            if isinstance(key, list | dict | set):
                raise _problem("a key is a list or a mapping", key_node)
            if key in mapping:
                raise _problem(f"the key {quoted(key)} is given twice", key_node)
            mapping[key] = self.construct_object(value_node, deep=deep)
        return mapping

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT002 - as PyYAML has it
        if node.tag == _INTEGER and isinstance(node.value, str) and len(node.value) > _INTEGER_CHARACTERS_MAX:
            raise _problem(f"{quoted(node.value)} is an integer of more than {_INTEGER_BITS_MAX} bits", node)
        try:
            value = super().construct_object(node, deep=deep)
        except yaml.YAMLError:
            raise
        except Exception as error:  # PyYAML's own converters raise what Python's int, date and others do
            kind = node.tag.rpartition(":")[2]
            raise _problem(f"{quoted(node.value)} is no {kind} ({excerpt(str(error))})", node) from error
        if isinstance(value, int) and value.bit_length() > _INTEGER_BITS_MAX:
            raise _problem(f"{quoted(node.value)} is an integer of more than {_INTEGER_BITS_MAX} bits", node)
        return value


def _problem(text: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, text, node.start_mark)


def read_text(path: Path, *, bytes_max: int = BYTES_MAX) -> str:
    """A file's text. Raises ConfigError, with the file, if it is unreadable, too large or not UTF-8."""
    try:
        if not path.is_file():
            found = "something else" if path.exists() else "nothing"
            raise ConfigError("not a file", expected="a file", found=found, where=str(path))
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise ConfigError("a file can't be read", found=error, where=str(path)) from error
    if len(data) > bytes_max:
        raise ConfigError("a file is too large", expected=f"{bytes_max:,} bytes at most", found="more", where=str(path))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at position {error.start}"
        raise ConfigError("not UTF-8", found=found, where=str(path)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a file holds. With a line in ``unresolved``, the value still has references in it."""

    value: Any
    unknown: tuple[str, ...]
    unresolved: tuple[str, ...]


def read_yaml(path: Path, schema: Schema, variables: Mapping[str, str]) -> Definition:
    """The file's value without unknown keys, and one line per unknown key, whose value is not looked into.

    A value may refer to ``variables``, as ``${NAME:-default}``: it is read as if their text stood there. A reference
    without a value gets a line. ``schema`` is the JSON schema of the top level. Raises ConfigError, with the file, for
    anything that is not plain YAML within the bounds: aliases, deep nesting, more values than a definition has.
    """
    text = read_text(path)
    try:
        _require_bounded(text, path)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return Definition(value=None, unknown=(), unresolved=())
            unknown = tuple(_without_unknown(node, schema, schema, ()))
            unresolved = tuple(_Variables(loader, variables).put_into(node, ()))
            return Definition(value=loader.construct_document(node), unknown=unknown, unresolved=unresolved)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        found = printable(" ".join(str(error).split()).replace('in "<unicode string>", line', "in line"))
        raise ConfigError("not YAML", found=found, where=str(path)) from error


def _require_bounded(text: str, path: Path) -> None:
    """From the parser's events, which are read one by one: nothing is built of a text that is refused."""
    depth = values = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        values += isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        for wrong, expected, found in (
            (isinstance(event, yaml.AliasEvent), "no alias (*name)", "one"),
            (depth > DEPTH_MAX, f"nesting of at most {DEPTH_MAX} levels", "more"),
            (values > VALUES_MAX, f"at most {VALUES_MAX:,} keys and values", "more"),
        ):
            if wrong:
                assert event.start_mark is not None
                at = f"{path}, line {event.start_mark.line + 1}"
                raise ConfigError("a definition is not plain YAML", expected=expected, found=found, where=at)


def _without_unknown(node: yaml.Node, schema: Schema, whole: Schema, at: tuple[str, ...]) -> Iterator[str]:
    """Remove keys that ``schema`` does not have from the node, before anything is made of their values."""
    while "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _without_unknown(item, schema.get("items", {}), whole, (*at, str(number)))
    elif isinstance(node, yaml.MappingNode) and "discriminator" in schema:
        tag = next(
            (_text(value) for key, value in node.value if _text(key) == schema["discriminator"]["propertyName"]), ""
        )
        if tag in schema["discriminator"]["mapping"]:  # else the model reports it
            own = {"$ref": schema["discriminator"]["mapping"][tag]}
            yield from _without_unknown(node, own, whole, (*at, tag))
    elif isinstance(node, yaml.MappingNode) and "properties" in schema:
        known, pairs = schema["properties"], node.value
        node.value = [(key, value) for key, value in pairs if _text(key) in known]
        for key, value in pairs:
            name = (*at, excerpt(_text(key)))
            if _text(key) in known:
                yield from _without_unknown(value, known[_text(key)], whole, name)
            else:
                near = did_you_mean(_text(key), known)
                hint = f". {near}" if near else ""
                yield f"{'.'.join(name)}: unknown key, allowed keys: {', '.join(sorted(known))}{hint}"


class _Variables:
    """Puts variables into a definition's values, together no more text than a definition may have."""

    def __init__(self, loader: _Loader, variables: Mapping[str, str]) -> None:
        self._loader = loader
        self._variables = variables
        self._characters = 0

    def put_into(self, node: yaml.Node, at: tuple[str, ...]) -> Iterator[str]:
        """Replace the references below ``at``, and give one line per problem. Keys have no references."""
        if isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                yield from self.put_into(item, (*at, str(number)))
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                yield from self.put_into(value, (*at, excerpt(_text(key))))
        elif isinstance(node, yaml.ScalarNode) and "$" in node.value:
            try:
                self._replace(node)
            except ValueError as error:
                yield f"{'.'.join(at)}: {error}, in line {node.start_mark.line + 1}"

    def _replace(self, node: yaml.ScalarNode) -> None:
        if secret := next(filter(_SECRET.search, referenced(node.value)), None):
            raise ValueError(f"no secrets in a definition, found ${{{secret}}}")
        text = expand(node.value, self._variables)
        self._characters += len(text)
        if self._characters > BYTES_MAX:
            raise ValueError(f"the variables hold more than {BYTES_MAX:,} characters")
        if text != node.value:
            node.value = text
            if not node.style:  # not quoted: it may be a number now
                node.tag = self._loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]  # as PyYAML's composer


def _text(key: yaml.Node) -> str:
    return key.value if isinstance(key, yaml.ScalarNode) else "(a list or a mapping)"
