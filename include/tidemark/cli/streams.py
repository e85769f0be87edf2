"""``tidemark streams``: check every stream's definition and transformation, and compare it with its table."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from tidemark.cli.connect import connect
from tidemark.cli.output import open_console
from tidemark.connections.sources import CONFIG_VARIABLE, ENV_FILE_VARIABLE
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.core.text import error_text
from tidemark.definitions.stream import Stream, load_stream, misnamed_files, problems, stream_names
from tidemark.settings import Settings, streams_dir
from tidemark.spark.java_command import java_command
from tidemark.stack.java import BRIEF_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def check_streams(stack: str | None) -> bool:
    """Print one line per stream and one per problem. Return whether there is no problem."""
    deployment = _deployment(stack)
    # A check needs no servers, so there need not be a deployment.
    folder = deployment.streams_dir if deployment else streams_dir()
    defined, misnamed = stream_names(folder), misnamed_files(folder)
    names = (*defined, *misnamed)
    if not names:
        raise ConfigError("no streams", expected="<name>.yaml files", where=str(folder))
    streams: dict[str, Stream] = {}
    results: dict[str, str | Sequence[TidemarkError]] = {name: (error,) for name, error in misnamed.items()}
    for name in defined:
        try:
            streams[name] = load_stream(name, folder)
        except TidemarkError as error:
            results[name] = problems(error)
    console = open_console()
    if streams:
        with console.status("starting Spark, about ten seconds"):
            results.update(_check(streams, folder, deployment))
    width = max(map(len, names))
    for name in names:
        result = results[name]
        if isinstance(result, str):
            console.print(f"{name:<{width}}  [green]ok[/green]: {result}", highlight=False)
            continue
        console.print(
            f"{escape(name.ljust(width))}  [red]invalid[/red]: {_counted(len(result), 'problem')}", highlight=False
        )
        for problem in result:
            console.print(f"  [red]{escape(' '.join(str(problem).split()))}[/red]", highlight=False)
    return all(isinstance(result, str) for result in results.values())


def _check(
    streams: dict[str, Stream], folder: Path, deployment: Settings | None
) -> Iterator[tuple[str, str | Sequence[TidemarkError]]]:
    """Each stream's name, with a text about what was checked, or with its problems."""
    java_command()
    os.environ.update(BRIEF_JVM)
    from tidemark.spark.session import bare_session

    spark = bare_session("tidemark-streams")
    try:
        for name, stream in streams.items():
            try:
                yield name, _check_stream(spark, stream, folder, deployment)
            except Exception as error:  # noqa: BLE001 - the other streams are checked all the same
                found = error_text(error)
                yield name, (ConfigError("a definition can't be checked", found=found, where=str(folder / name)),)
    finally:
        spark.stop()


def _check_stream(
    spark: "SparkSession", stream: Stream, folder: Path, deployment: Settings | None
) -> str | Sequence[TidemarkError]:
    from tidemark.reconcile.check_definition import check_definition

    table, table_text = _table(stream, deployment)
    checked = check_definition(spark, stream, folder, table=table)
    columns, checks = _counted(len(checked.columns), "column"), _counted(len(stream.batch.checks), "check")
    text = f"definition, transformation ({columns}), {checks}{table_text}"
    if checked.changes:
        text += f"; the next rebuild changes the table: {', '.join(map(str, checked.changes))}"
    return checked.problems or _not_exactly_once(spark, stream, folder) or text


def _table(stream: Stream, deployment: Settings | None) -> tuple["StructType | None", str]:
    """The columns of the stream's table, None if there is none or it is unreadable; and a text about it."""
    from tidemark.tables.reader import load_table
    from tidemark.tables.schema_evolution import table_columns

    if deployment is None:
        return None, ""
    try:
        table = load_table(deployment, stream.table)
        return (table_columns(table), ", table") if table else (None, "")
    except TidemarkError as error:
        return None, f"; cannot compare its table: {escape(' '.join(str(error).split()))}"


def _not_exactly_once(spark: "SparkSession", stream: Stream, folder: Path) -> Sequence[TidemarkError]:
    """Why a valid transformation cannot be delivered exactly once; nothing if the stream does not ask for it."""
    from tidemark.spark.process import load_transform
    from tidemark.speed.exactly_once.preconditions import require_exactly_once

    if stream.speed.delivery == "exactly_once":
        try:
            require_exactly_once(spark, stream, load_transform(stream, folder))
        except ConfigError as error:
            return (error,)
    return ()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _deployment(stack: str | None) -> Settings | None:
    """The deployment whose tables are compared: the named one, or the environment's; None without either."""
    if stack is None and not {"TIDEMARK_CATALOG_URI", ENV_FILE_VARIABLE, CONFIG_VARIABLE} & os.environ.keys():
        return None
    return connect(stack)
