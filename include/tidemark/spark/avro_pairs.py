"""Find earlier Avro schemas of a stream whose records would be read as something else than was written.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding: a record's bytes contain neither names nor types. So
two schemas with the same types in the same order have the same bytes, and only a registry knows which one was meant.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

_SHOWN = 3
_BYTES = {"int": "number", "long": "number", "string": "bytes"}  # int and long have the same bytes, so have the others
_PROMOTED = {"int": "number", "long": "number", "float": "number", "double": "number", "string": "bytes"}
_IN_SPARK = {"int": "long", "float": "double"}  # of a union with both, Spark makes one column of the wider one
_NAMED = ("record", "enum", "fixed")
_CONVERTED = ("date", "decimal(", "local-timestamp-", "time-", "timestamp-")  # by Spark, from the number in the bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroType:
    """A type as far as bytes and meaning go.

    ``unit`` is the logical type, such as ``timestamp-millis`` or ``decimal(2)`` with its scale; empty without one.
    ``fields`` are names, aliases and types; ``inside`` are the branches of a union, or the type of the values in an
    array or map.
    """

    kind: str
    name: str = ""
    unit: str = ""
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[tuple[str, tuple[str, ...], "AvroType"], ...] = ()
    inside: tuple["AvroType", ...] = ()

    @classmethod
    def of(cls, schema: Any) -> "AvroType":
        """The type of Avro's own ``Schema``, a Java object; it must not contain itself."""
        kind = str(schema.getType().getName())
        inside: Sequence[Any] = ()
        if kind == "union":
            inside = schema.getTypes()
        elif kind in ("array", "map"):
            inside = [schema.getElementType() if kind == "array" else schema.getValueType()]
        fields = schema.getFields() if kind == "record" else ()
        return cls(
            kind=kind,
            name=schema.getName() if kind in _NAMED else "",
            unit=_unit(schema),
            size=schema.getFixedSize() if kind == "fixed" else 0,
            symbols=tuple(schema.getEnumSymbols()) if kind == "enum" else (),
            fields=tuple((item.name(), tuple(item.aliases()), cls.of(item.schema())) for item in fields),
            inside=tuple(map(cls.of, inside)),
        )

    @property
    def label(self) -> str:
        return self.name or _IN_SPARK.get(self.kind, self.kind)


def _unit(schema: Any) -> str:
    """From the properties: Avro forgets a logical type that it does not know, or where it renames the type."""
    name = str(schema.getProp("logicalType") or "")
    return f"decimal({schema.getObjectProp('scale') or 0})" if name == "decimal" else name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """One value in a record's bytes. ``read_as`` is the newest schema's field for it, empty if there is none."""

    form: tuple[Any, ...]
    path: tuple[str, ...]
    read_as: tuple[str, ...]
    symbols: tuple[str, ...] = ()
    unit_change: str = ""


def misreadings(newest_file: str, newest: AvroType, earlier: Mapping[str, AvroType]) -> Iterator[tuple[str, str]]:
    """Each file whose records would be read wrongly, and what would be wrong.

    ``newest`` reads the records of the ``earlier`` schemas, which are by the names of their files. They have the names
    that Avro gives them for its reader: those of the newest schema where it has aliases for them.
    """
    for file, schema in earlier.items():
        if wrong := [*_ignored_aliases(schema, newest, ())]:
            yield file, _listed(wrong)
    schemas = {newest_file: newest, **earlier}
    values = {file: tuple(_values(schema, newest, (), ())) for file, schema in schemas.items()}
    for file in earlier:
        if changes := [item.unit_change for item in values[file] if item.unit_change]:
            yield file, f"{_listed(changes)} in {newest_file}"
    for (file, one), (earlier_file, other) in combinations(values.items(), 2):
        if [item.form for item in one] == [item.form for item in other]:
            wrong = [*dict.fromkeys(text for pair in zip(one, other, strict=True) for text in _differences(*pair))]
            if wrong:
                yield earlier_file, f"the same bytes as a record of {file}, with which {_listed(wrong)}"


def _ignored_aliases(schema: AvroType, reader: AvroType | None, path: tuple[str, ...]) -> Iterator[str]:
    """Fields that the reader names in its aliases, and Avro does not read as such: the record has another full name."""
    if reader is not None and reader.kind == "union" and schema.kind != "union":
        reader = _branch(reader, schema)
    for branch in schema.inside:
        yield from _ignored_aliases(branch, reader if schema.kind == "union" else _item(reader), path)
    for name, _, kind in schema.fields:
        target = _target(reader, name)
        lost = next((to for to, aliases, _ in (reader.fields if reader else ()) if name in aliases), None)
        if target is None and lost is not None:
            place = ".".join((*path, name))
            yield f"{place} is not read as {lost}: its record has another name or namespace, so Avro ignores the alias"
        yield from _ignored_aliases(kind, target, (*path, name))


def _differences(one: _Value, earlier: _Value) -> Iterator[str]:
    if one.read_as != earlier.read_as:
        yield f"{'.'.join(earlier.path)} is read as {'.'.join(one.path)}"
    elif one.read_as:
        for symbol, was in zip(one.symbols, earlier.symbols, strict=False):
            if symbol != was:
                yield f"{was} of {'.'.join(earlier.path)} is read as {symbol}"


def _listed(texts: Sequence[str]) -> str:
    return ", ".join([*texts[:_SHOWN], *(["…"] if len(texts) > _SHOWN else [])])


def _values(
    schema: AvroType, reader: AvroType | None, path: tuple[str, ...], read_as: tuple[str, ...]
) -> Iterator[_Value]:
    """The values in the bytes of ``schema``, in their order. ``reader`` is the type that they become, None for none."""
    if reader is not None and reader.kind == "union" and schema.kind != "union":
        reader = _branch(reader, schema)
        read_as = (*read_as, reader.label) if reader is not None else ()
    if schema.kind == "union":
        several = sum(branch.kind != "null" for branch in schema.inside) > 1
        branches = [(branch, reader, (*path, branch.label) if several else path) for branch in schema.inside]
        yield from _whole(schema.kind, branches, path, read_as)
    elif schema.kind in ("array", "map"):
        yield from _whole(schema.kind, [(schema.inside[0], _item(reader), path)], path, read_as)
    elif schema.kind == "record":
        for name, _, kind in schema.fields:
            target = _target(reader, name)
            yield from _values(kind, target, (*path, name), (*read_as, name) if target else ())
    elif schema.kind != "null":
        yield _Value(
            form=(_BYTES.get(schema.kind, schema.kind), schema.size),
            path=path,
            read_as=read_as,
            symbols=schema.symbols,
            unit_change=_unit_change(schema, reader, path),
        )


def _whole(
    kind: str,
    types: list[tuple[AvroType, AvroType | None, tuple[str, ...]]],
    path: tuple[str, ...],
    read_as: tuple[str, ...],
) -> Iterator[_Value]:
    """A union, array or map: its own bytes, and the values of the types in it, each with its reader and path."""
    each = [tuple(_values(schema, reader, inside, read_as)) for schema, reader, inside in types]
    yield _Value(form=(kind, *(tuple(item.form for item in values) for values in each)), path=path, read_as=read_as)
    yield from chain(*each)


def _item(reader: AvroType | None) -> AvroType | None:
    return reader.inside[0] if reader is not None and reader.inside else None


def _target(reader: AvroType | None, name: str) -> AvroType | None:
    """The type of the reader's field of a name."""
    return next((kind for to, _, kind in (reader.fields if reader else ()) if to == name), None)


def _branch(union: AvroType, schema: AvroType) -> AvroType | None:
    """The branch of the reader's union that reads a type: of the same type and name, else one it is promoted to."""
    kinds = [item for item in union.inside if item.kind == schema.kind]
    same = [item for item in kinds if item.name == schema.name] or [item for item in kinds if item.kind == "record"]
    promoted = _PROMOTED.get(schema.kind, schema.kind)
    wider = [item for item in union.inside if _PROMOTED.get(item.kind, item.kind) == promoted and not item.name]
    return next(iter([*same, *wider]), None)


def _unit_change(schema: AvroType, reader: AvroType | None, path: tuple[str, ...]) -> str:
    """What is wrong if a number or text is read in another unit: Avro takes its bytes as they are."""
    if reader is None or not reader.unit.startswith(_CONVERTED) or schema.unit == reader.unit:
        return ""
    if not schema.unit and (schema.kind == reader.kind or {schema.kind, reader.kind} == {"int", "long"}):
        return ""  # from now on the number has a unit
    return f"{'.'.join(path)} is {schema.unit or schema.kind} here, and {reader.unit}"
