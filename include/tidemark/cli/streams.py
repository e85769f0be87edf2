"""``tidemark streams``: every stream definition and transformation, tried on a Spark of its own without a row."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from tidemark.cli.connect import connect
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.settings import Settings
from tidemark.stack.java import BRIEF_JVM, java_command
from tidemark.streams import Stream, load_stream, problems, stream_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_streams(stack: str | None) -> bool:
    """Print a line per stream and one per problem; whether there is none.

    Raises ConfigError when the folder has no stream, StackError when Spark does not start.
    """
    folder = _folder(stack)
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
            _try(streams, folder, right, wrong)
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
    streams: dict[str, Stream], folder: Path, right: dict[str, str], wrong: dict[str, Sequence[TidemarkError]]
) -> None:
    """Sort the streams into those that would run, with what was checked, and those that would not."""
    java_command()
    os.environ.update(BRIEF_JVM)
    from tidemark.batch.definition import check_definition
    from tidemark.spark.session import bare_session

    spark = bare_session("tidemark-streams")
    try:
        for name, stream in streams.items():
            checked = check_definition(spark, stream, folder)
            found = checked.problems or _not_exactly_once(spark, stream, folder)
            if found:
                wrong[name] = found
            else:
                columns = _counted(len(checked.columns), "column")
                checks = _counted(len(stream.batch.checks), "check")
                right[name] = f"definition, transformation ({columns}), {checks}"
    finally:
        spark.stop()


def _not_exactly_once(spark: "SparkSession", stream: Stream, folder: Path) -> Sequence[TidemarkError]:
    """Why a transformation that works can't be delivered exactly once; nothing where that is not asked for."""
    from tidemark.spark.process import load_transform
    from tidemark.speed.refusals import require_exactly_once

    if stream.speed.delivery == "exactly_once":
        try:
            require_exactly_once(spark, stream, load_transform(stream, folder))
        except ConfigError as error:
            return (error,)
    return ()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _folder(stack: str | None) -> Path:
    """The deployment's folder of streams; without a deployment, the default one: a check needs no servers."""
    if stack is not None:
        return connect(stack).streams_dir
    default: Path = Settings.model_fields["streams_dir"].default
    return Path(os.environ.get("TIDEMARK_STREAMS_DIR", default))
