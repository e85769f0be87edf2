"""The parts of the reference that come from the code, as Markdown; ``scripts/docs_hooks.py`` puts them into pages."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
import yaml
from pydantic import BaseModel, Secret, SecretStr
from pydantic.fields import FieldInfo

import reference_examples
from conformance import cases, marked_tests
from tidemark.cli.app import app
from tidemark.cli.root import EXIT_CODES
from tidemark.cli.schemas import OTHER_RESULTS, RESULTS, command_line
from tidemark.connections import kafka_names, spark
from tidemark.core import errors
from tidemark.core.certificate import DayCertificate
from tidemark.core.instruments import STEP_INSTRUMENTS, STREAM_INSTRUMENTS, Instrument
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream
from tidemark.inspect.problems import KINDS, WATCH_KINDS
from tidemark.inspect.status_metrics import STATUS_METRICS
from tidemark.installation import PROJECT
from tidemark.objects.footer import Footer
from tidemark.settings import Settings

UNITS = ("seconds", "hours", "days", "bytes", "records", "offsets")
WORDS = {str: "text", int: "integer", float: "number", bool: "true or false", date: "date", NoneType: "null"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a pipe in a cell is escaped unless it is inside code."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else part.replace("|", r"\|") for part in parts)


# The stream's YAML


def stream_keys() -> str:
    """Every key of a stream definition, a table per group of keys."""
    return "\n".join(_group(Stream, "", "Top level"))


def leaf_keys(model: type[BaseModel] = Stream, path: str = "") -> Iterator[tuple[str, type[BaseModel], FieldInfo]]:
    """Dotted name, model and field of every key that holds no group of keys."""
    for name, field in model.model_fields.items():
        groups = _models(field.annotation)
        if not groups:
            yield f"{path}{name}", model, field
        for group in groups:
            yield from leaf_keys(group, f"{path}{name}.")


def _group(model: type[BaseModel], path: str, title: str) -> Iterator[str]:
    yield f"### {title}\n\n{_docstring(model)}\n"
    schema = model.model_json_schema()["properties"]
    own = [(name, field) for name, field in model.model_fields.items() if not _models(field.annotation)]
    yield table(
        ("Key", "Value", "Meaning"),
        [
            (
                f"`{name}`",
                f"{_kind(name, schema[name])}<br>{_default(field)}",
                f"{field.description} {_example(name, field)}",
            )
            for name, field in own
        ],
    )
    for name, field in model.model_fields.items():
        for group in _models(field.annotation):
            tag = next((item for item in ("type", "extractor") if item in group.model_fields), None)
            suffix = f", {tag} `{get_args(group.model_fields[tag].annotation)[0]}`" if tag else ""
            list_of = "[]" if get_origin(field.annotation) is tuple else ""
            if issubclass(model, group):  # a part with the keys of the whole
                continue
            yield from _group(group, f"{path}{name}.", f"`{path}{name}{list_of}`{suffix}")


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The groups of keys that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for item in get_args(annotation) for model in _models(item)]


def _kind(name: str, schema: dict[str, Any]) -> str:
    """A key's type, unit and constraints, from its JSON schema."""
    schema = next((item for item in schema.get("anyOf", ()) if item.get("type") != "null"), schema)
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return " or ".join(f"`{item}`" for item in choices)
    kind = {"string": "text", "boolean": "`true` or `false`", "array": "list", "object": "mapping"}
    text: str = kind.get(schema["type"], schema["type"])
    text += next((f", {unit}" for unit in UNITS if unit in name), "")
    limits = {
        "minimum": "≥",
        "exclusiveMinimum": ">",
        "maximum": "≤",
        "minItems": "entries ≥",
        "maxProperties": "entries ≤",
    }
    text += "".join(f", {sign} {schema[key]:,}" for key, sign in limits.items() if key in schema)
    return text + (f", `{schema['pattern']}`" if "pattern" in schema else "")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default.get_secret_value() if isinstance(field.default, Secret | SecretStr) else field.default
    default = default.model_dump(exclude_defaults=True) if isinstance(default, BaseModel) else default
    return "default: none" if default in (None, (), {}, "") else f"default: `{yaml_text(default)}`"


def _example(name: str, field: FieldInfo) -> str:
    return f"<br>Example: `{name}: {yaml_text(field.examples[0])}`" if field.examples else ""


def yaml_text(value: Any) -> str:
    """A value on one line of YAML."""
    value = str(value) if not isinstance(value, bool | int | float | list | dict) else value
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def settings() -> str:
    """Every environment variable of a deployment."""
    return table(
        ("Variable", "Value", "Meaning"),
        [
            (f"`TIDEMARK_{name.upper()}`", _default(item), str(item.description))
            for name, item in Settings.model_fields.items()
        ],
    )


def kafka_settings() -> str:
    """Every setting of a Kafka connection."""
    aliases: dict[str, list[str]] = {}
    for alias, name in kafka_names.ALIASES.items():
        aliases.setdefault(name, []).append(alias)
    rows = []
    for name, kind in kafka_names.SETTINGS.items():
        also = "".join(f", or `{alias}`" for alias in aliases.get(name, ()))
        rows.append((f"`{name}`{also}", kind if isinstance(kind, str) else ", ".join(f"`{item}`" for item in kind)))
    return table(("Setting", "Value"), rows)


def ignored_kafka_settings() -> str:
    """The settings of a Kafka connection that are left out."""
    return ", ".join(f"`{name}`" for name in sorted(kafka_names.OWN)) + ".\n"


def refused_spark_properties() -> str:
    """The properties of Spark that can't be given, and why."""
    rows = ((", ".join(f"`{name}`" for name in names), reason) for names, reason in spark.REFUSED.items())
    return table(("Property", "Why"), rows)


# Commands and errors


def commands() -> str:
    """Every command: what it does, its usage, arguments, options and exit codes."""
    return "\n".join(_command(name, item) for name, item in sorted(typer.main.get_command(app).commands.items()))  # type: ignore[attr-defined]  # it is a group


def _command(name: str, command: Any) -> str:
    usage, rows = f"tidemark {name}", []
    for item in command.params:
        given = item.param_type_name == "argument"
        label = item.name.upper() if given else item.opts[0]
        label += "" if given or isinstance(item.default, bool) else f" {item.name.upper()}"
        usage += f" {label}" if item.required else f" [{label}]" if given else ""
        default = "optional" if item.default in (None, False) else f"default: `{item.default}`"
        rows.append((f"`{label}`", "required" if item.required else default, item.help))
    text = f"### `tidemark {name}`\n\n{command.help}\n\n```sh\n{usage} [options]\n```\n"
    return f"{text}\n{table(('Argument or option', 'Value', 'Meaning'), rows)}" if rows else text


def exit_codes() -> str:
    """The exit codes of every command."""
    return table(("Exit code", "When"), [(str(code), meaning) for code, meaning in EXIT_CODES.items()])


def found_exit_codes() -> str:
    """What some commands mean by an exit code, from their help texts."""
    found = [
        (f"`tidemark {name}`", code, sentence)
        for name, item in sorted(typer.main.get_command(app).commands.items())  # type: ignore[attr-defined]  # it is a group
        for code, sentence in re.findall(r"Exits (\d+) if (.+?)\.(?:\s|$)", " ".join(item.help.split()))
    ]
    return table(("Command", "Exit code", "When"), found)


def problem_kinds() -> str:
    """The kinds of problems of a stream."""
    return table(("Kind", "Meaning"), [(f"`{kind}`", meaning) for kind, meaning in KINDS.items()])


def watch_kinds() -> str:
    """The kinds of problems that only the watch finds."""
    return table(("Kind", "Meaning"), [(f"`{kind}`", meaning) for kind, meaning in WATCH_KINDS.items()])


def json_schemas() -> str:
    """The schema of each command's JSON, as a link to its file."""
    names = RESULTS | OTHER_RESULTS
    rows = [(f"`{command_line(name)}`", f"[{name}.schema.json](json/{name}.schema.json)") for name in names]
    return table(("Command", "Schema"), rows)


def error_kinds() -> str:
    """Every kind of error: when it is raised and what to do."""
    kinds = [
        item
        for _, item in inspect.getmembers(errors, inspect.isclass)
        if issubclass(item, errors.TidemarkError) and item is not errors.TidemarkError
    ]
    return table(
        ("Kind", "When", "What to do"), [(f"`{item.__name__}`", *_docstring(item).split("\n\n")) for item in kinds]
    )


def metrics() -> str:
    """Every metric that a stream exports."""
    return _instruments(STREAM_INSTRUMENTS)


def step_metrics() -> str:
    """Every metric that a step exports."""
    return _instruments(STEP_INSTRUMENTS)


def status_metrics() -> str:
    """Every metric of ``tidemark metrics``."""
    return table(
        ("Metric", "Labels", "Meaning"),
        [
            (f"`{item.name}`", ", ".join(f"`{name}`" for name in item.labels), f"{item.about}.")
            for item in STATUS_METRICS
        ],
    )


def _instruments(found: Iterable[Instrument]) -> str:
    return table(
        ("Metric", "Kind", "Unit", "Meaning"),
        [(f"`{item.name}`", item.kind, f"`{item.unit}`", f"{item.about}.") for item in found],
    )


# Persisted JSON


def manifest_fields() -> str:
    """The manifest's JSON, field by field: the fields of a log or range stand in the value that has it."""
    return "\n".join(_field_tables(Manifest, "Manifest", flat=True))


def seal_fields() -> str:
    """The seal's JSON, field by field."""
    return "\n".join(_field_tables(Seal, "Seal", flat=False))


def certificate_fields() -> str:
    """The certificate's JSON, field by field; the seal has a page of its own."""
    return "\n".join(_field_tables(DayCertificate, "Certificate", flat=False))


def footer_fields() -> str:
    """The entry in the footer of a data object."""
    return table(("Field", "Type", "Meaning"), json_fields(Footer, flat=False))


def _field_tables(kind: type, title: str, *, flat: bool) -> Iterator[str]:
    """A table of a dataclass's fields, and one of each dataclass inside it."""
    yield f"### {title}\n\n{table(('Field', 'Type', 'Meaning'), json_fields(kind, flat=flat))}"
    for name, hint in get_type_hints(kind).items():
        for item in (hint, *get_args(hint)):
            if is_dataclass(item) and isinstance(item, type) and item not in _in_place(flat=flat):
                label = f"Entry of `{name}`" if get_origin(hint) is tuple else f"`{name}`"
                yield from _field_tables(item, label, flat=flat)


def _in_place(*, flat: bool) -> set[type]:
    """Dataclasses without a table of their own."""
    return {OffsetRange, TopicPartition} if flat else {OffsetRange}


def json_fields(kind: type, *, flat: bool) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of a dataclass's JSON fields; with ``flat``, a log's or range's stand in its place."""
    hints, meanings = get_type_hints(kind), field_docs(kind)
    for item in fields(kind):
        if flat and hints[item.name] in _in_place(flat=True):
            yield from json_fields(hints[item.name], flat=flat)
        else:
            yield f"`{item.name}`", _json_type(hints[item.name]), meanings[item.name]


def field_docs(kind: type) -> dict[str, str]:
    """What a dataclass's docstring says of each field, in lines ``- name: text``."""
    found = re.findall(r"^- (\w+): (.+(?:\n  .+)*)", _docstring(kind), re.MULTILINE)
    return {name: f"{text[0].upper()}{' '.join(text.split())[1:]}" for name, text in found}


def _json_type(kind: Any) -> str:
    if kind is OffsetRange:
        return "`[start, end]`"
    if kind in WORDS:
        return WORDS[kind]
    if is_dataclass(kind):
        return "object"
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return " or ".join(f"`{item}`" for item in arguments)
    if get_origin(kind) is tuple:
        return "list" if Ellipsis in arguments else "pair"
    return " or ".join(dict.fromkeys(_json_type(item) for item in arguments))


def _docstring(kind: type) -> str:
    return textwrap.dedent(inspect.getdoc(kind) or "").strip()


def flights() -> str:
    """A whole definition: the project's own."""
    return f"```yaml\n{(PROJECT / 'include' / 'streams' / 'flights.yaml').read_text(encoding='utf-8')}```\n"


def conformance() -> str:
    """Each case with the tests that prove it."""
    found = marked_tests(PROJECT / "tests")
    rows = ((str(number), text, _tests(found.get(number, {}))) for number, text in cases())
    return table(("Case", "What must hold", "Tests"), rows)


def _tests(files: Mapping[str, Sequence[str]]) -> str:
    """Files with their tests, whose names are sentences."""
    texts = (
        f"`{name}`"
        + (f": {'; '.join(test.removeprefix('test_').replace('_', ' ') for test in tests)}" if tests else "")
        for name, tests in files.items()
    )
    return "<br>".join(texts) or "not yet"


BLOCKS: dict[str, Callable[[], str]] = {
    item.__name__: item
    for item in (
        stream_keys,
        flights,
        settings,
        kafka_settings,
        ignored_kafka_settings,
        refused_spark_properties,
        commands,
        exit_codes,
        found_exit_codes,
        problem_kinds,
        watch_kinds,
        json_schemas,
        error_kinds,
        metrics,
        step_metrics,
        status_metrics,
        manifest_fields,
        seal_fields,
        certificate_fields,
        footer_fields,
        conformance,
        reference_examples.manifest,
        reference_examples.compaction,
        reference_examples.seal,
        reference_examples.certificate,
        reference_examples.footer,
        reference_examples.example_keys,
    )
}
