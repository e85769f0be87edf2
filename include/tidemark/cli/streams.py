"""``tidemark streams``: every stream definition and transformation, tried on a Spark of its own without a row.

Where a deployment is named or set, each is compared with its table as well.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from tidemark.cli.connect import connect
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.definitions.stream import Stream, load_stream, problems, stream_names
from tidemark.settings import ENV_FILE_VARIABLE, Settings
from tidemark.stack.java import BRIEF_JVM, java_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def check_streams(stack: str | None) -> bool:
    """Print a line per stream and one per problem; whether there is none.

    Raises ConfigError when the folder has no stream, StackError when Spark does not start.
    """
    deployment = _deployment(stack)
    folder = deployment.streams_dir if deployment else _folder()
    names = stream_names(folder)
    if not names:
        raise ConfigError("no streams", expected="<name>.yaml files", where=str(folder))
    streams: dict[str, Stream] = {}
    wrong: dict[str, Sequence[TidemarkError]] = {}
    for name in names:
        try:
            streams[name] = load_stream(name, folder)
        except TidemarkError as error:
            wrong[name] = problems(error)
    console = Console(soft_wrap=True)
    right: dict[str, str] = {}
    if streams:
        with console.status("starting Spark, some ten seconds"):
            _try(streams, folder, deployment, right, wrong)
    width = max(map(len, names))
    for name in names:
        if name in right:
            console.print(f"{name:<{width}}  [green]ok[/green]: {right[name]}", highlight=False)
            continue
        console.print(f"{name:<{width}}  [red]wrong[/red]: {_counted(len(wrong[name]), 'problem')}", highlight=False)
        for problem in wrong[name]:
            console.print(f"  [red]{escape(' '.join(str(problem).split()))}[/red]", highlight=False)
    return not wrong


def _try(
    streams: dict[str, Stream],
    folder: Path,
    deployment: Settings | None,
    right: dict[str, str],
    wrong: dict[str, Sequence[TidemarkError]],
) -> None:
    """Sort the streams into those that would run, with what was checked, and those that would not."""
    java_command()
    os.environ.update(BRIEF_JVM)
    from tidemark.reconcile.check_definition import check_definition
    from tidemark.spark.session import bare_session

    spark = bare_session("tidemark-streams")
    try:
        for name, stream in streams.items():
            table, told = _table(stream, deployment)
            checked = check_definition(spark, stream, folder, table=table)
            found = checked.problems or _not_exactly_once(spark, stream, folder)
            if found:
                wrong[name] = found
            else:
                columns = _counted(len(checked.columns), "column")
                checks = _counted(len(stream.batch.checks), "check")
                right[name] = f"definition, transformation ({columns}), {checks}{told}"
                if checked.changes:
                    right[name] += f"; the next rebuild changes the table: {', '.join(map(str, checked.changes))}"
    finally:
        spark.stop()


def _table(stream: Stream, deployment: Settings | None) -> tuple["StructType | None", str]:
    """The columns of the stream's table, None where there is none or nobody can tell, and what to say about it."""
    from tidemark.tables.reader import load_table
    from tidemark.tables.schema_evolution import table_columns

    if deployment is None:
        return None, ""
    try:
        table = load_table(deployment, stream.table)
        return (table_columns(table), ", table") if table else (None, "")
    except TidemarkError as error:
        return None, f"; its table can't be compared: {escape(' '.join(str(error).split()))}"


def _not_exactly_once(spark: "SparkSession", stream: Stream, folder: Path) -> Sequence[TidemarkError]:
    """Why a transformation that works can't be delivered exactly once; nothing where that is not asked for."""
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
    """The deployment whose tables can be asked: the one named, or that of the environment; None where that has none."""
    if stack is None and not {"TIDEMARK_CATALOG_URI", ENV_FILE_VARIABLE} & os.environ.keys():
        return None
    return connect(stack)


def _folder() -> Path:
    """The folder of streams without a deployment: a check needs no servers."""
    default: Path = Settings.model_fields["streams_dir"].default
    return Path(os.environ.get("TIDEMARK_STREAMS_DIR", default))
