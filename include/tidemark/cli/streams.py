"""``tidemark streams``: check every definition and transformation, compare it with its table, and estimate costs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from tidemark.cli.connect import connect
from tidemark.cli.json_output import print_result
from tidemark.cli.output import counted, open_console
from tidemark.connections.sources import CONFIG_VARIABLE, ENV_FILE_VARIABLE
from tidemark.core.costs import Advice, StreamCosts, advise
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.core.text import error_text
from tidemark.definitions.sections import Check
from tidemark.definitions.stream import Stream, load_stream, misnamed_files, problems, stream_names
from tidemark.settings import Settings, streams_dir
from tidemark.spark.java_command import java_command
from tidemark.stack.java import BRIEF_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCheck:
    """One definition: what was checked if it is valid, else its problems. ``costs`` and ``advice`` are estimates."""

    stream: str
    valid: bool
    checked: str | None
    problems: tuple[str, ...]
    costs: str | None
    advice: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsResult:
    """Every definition of the folder. ``valid``: all of them are."""

    valid: bool
    folder: str
    streams: tuple[StreamCheck, ...]


def check_streams(stack: str | None, *, as_json: bool) -> bool:
    """Print one line per stream and one per problem, and what a valid stream costs. Return whether there is no problem.

    Costs are no problem: a warning names the setting to change.
    """
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
    if streams:
        with Console(stderr=True).status("starting Spark, about ten seconds"):
            results.update(_check(streams, folder, deployment))
    valid = {name: stream for name, stream in streams.items() if isinstance(results[name], str)}
    costs = dict(_costs(valid, deployment))
    found = tuple(_stream_check(name, results[name], costs.get(name)) for name in names)
    fine = all(item.valid for item in found)
    if as_json:
        print_result("streams", StreamsResult(valid=fine, folder=str(folder), streams=found))
    else:
        _print_streams(open_console(), found)
    return fine


def _stream_check(name: str, result: str | Sequence[TidemarkError], costs: StreamCosts | str | None) -> StreamCheck:
    return StreamCheck(
        stream=name,
        valid=isinstance(result, str),
        checked=result if isinstance(result, str) else None,
        problems=() if isinstance(result, str) else tuple(" ".join(str(item).split()) for item in result),
        costs=costs_text(costs) if isinstance(costs, StreamCosts) else costs and " ".join(costs.split()),
        advice=tuple(map(advice_text, advise(costs))) if isinstance(costs, StreamCosts) else (),
    )


def _print_streams(console: Console, found: Sequence[StreamCheck]) -> None:
    width = max(len(item.stream) for item in found)
    for item in found:
        name = item.stream.ljust(width)
        if item.valid:
            console.print(f"{escape(name)}  [green]ok[/green]: {escape(item.checked or '')}", highlight=False)
            console.print(f"  {escape(item.costs or '')}", highlight=False)
            for advice in item.advice:
                console.print(f"  [yellow]costly[/yellow]: {escape(advice)}", highlight=False)
            continue
        problems = counted(len(item.problems), "problem")
        console.print(f"{escape(name)}  [red]invalid[/red]: {problems}", highlight=False)
        for problem in item.problems:
            console.print(f"  [red]{escape(problem)}[/red]", highlight=False)


def _check(
    streams: dict[str, Stream], folder: Path, deployment: Settings | None
) -> Iterator[tuple[str, str | Sequence[TidemarkError]]]:
    """Each stream's name, with a text about what was checked, or with its problems."""
    java_command()
    os.environ.update(BRIEF_JVM)
    from tidemark.reconcile.check_definition import missing_stream_columns
    from tidemark.spark.session import bare_session

    columns: dict[str, Sequence[str]] = {}
    spark = bare_session("tidemark-streams")
    try:
        results: dict[str, str | Sequence[TidemarkError]] = {}
        for name, stream in streams.items():
            try:
                columns[name], results[name] = _check_stream(spark, stream, folder, deployment)
            except Exception as error:  # noqa: BLE001 - the other streams are checked all the same
                problem = "a definition can't be checked"
                results[name] = (ConfigError(problem, found=error_text(error), where=str(folder / name)),)
    finally:
        spark.stop()
    for name, result in results.items():
        wrong = missing_stream_columns(streams[name], columns, folder)
        yield name, [*(() if isinstance(result, str) else result), *wrong] if wrong else result


def _check_stream(
    spark: "SparkSession", stream: Stream, folder: Path, deployment: Settings | None
) -> tuple[Sequence[str], str | Sequence[TidemarkError]]:
    """The columns of the stream's table, and a text about what was checked or the problems."""
    from tidemark.reconcile.check_definition import check_definition

    table, table_text = _table(stream, deployment)
    checked = check_definition(spark, stream, folder, table=table)
    made = [item for item in stream.batch.checks if item.severity != "none"]
    columns, checks = counted(len(checked.columns), "column"), counted(len(made), "check")
    text = f"definition, transformation ({columns}), {checks}{_profile_text(stream, checked.profile)}{table_text}"
    if checked.changes:
        text += f"; the next rebuild changes the table: {', '.join(map(str, checked.changes))}"
    return checked.table_columns, checked.problems or _not_exactly_once(spark, stream, folder) or text


def _profile_text(stream: Stream, checks: Sequence[Check]) -> str:
    """The checks that come from the stream's profile, with their columns."""
    columns: dict[str, list[str]] = {}
    for check in checks:
        columns.setdefault(check.expectation, []).extend([check.kwargs["column"]] if "column" in check.kwargs else [])
    texts = [f"{name} of {', '.join(of)}" if of else name for name, of in columns.items()]
    return f", {len(checks)} of profile {stream.batch.profile}: {'; '.join(texts)}" if checks else ""


def _table(stream: Stream, deployment: Settings | None) -> tuple["StructType | None", str]:
    """The columns of the stream's table, None if there is none or it is unreadable; and a text about it."""
    from tidemark.tables.catalogs import QUESTION
    from tidemark.tables.reader import load_table
    from tidemark.tables.schema_evolution import table_columns

    if deployment is None:
        return None, ""
    try:
        table = load_table(deployment, stream.table, QUESTION)
        return (table_columns(table), ", table") if table else (None, "")
    except TidemarkError as error:
        return None, f"; cannot compare its table: {' '.join(str(error).split())}"


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


def _costs(streams: Mapping[str, Stream], deployment: Settings | None) -> Iterator[tuple[str, StreamCosts | str]]:
    """What each stream costs, or why Kafka does not show its load. Then it is not asked for others: each would wait."""
    from tidemark.inspect.stream_costs import UNKNOWN_LOAD, last_day, stream_costs

    kafka = None if deployment is None else deployment.kafka
    for name, stream in streams.items():
        try:
            load = UNKNOWN_LOAD if kafka is None else last_day(kafka, stream, datetime.now(UTC))
        except TidemarkError as error:
            kafka = None
            yield name, f"cannot estimate costs from Kafka's load: {error}"
        else:
            yield name, stream_costs(stream, load)


def costs_text(costs: StreamCosts) -> str:
    """The estimate in a sentence, with what it assumes."""
    load = costs.load
    records = f"{load.records_per_day:,.0f} records" if load.known else "records at all times"
    return (
        f"S3 in a day with {counted(load.partitions, 'partition')} and {records}: at most"
        f" {costs.archive_day.objects:,.0f} objects, {costs.requests:,.0f} requests, ${costs.dollars:,.2f}"
        f" ({costs.prices.name})"
    )


def advice_text(advice: Advice) -> str:
    """The problem, the change, and the estimate after it."""
    current = "" if advice.current is None else f" in place of {advice.current:g}"
    return (
        f"{advice.problem}. {advice.key}: {advice.value:,.0f}{current} makes it"
        f" {advice.then.archive_day.objects:,.0f} objects and ${advice.then.dollars:,.2f} a day"
    )


def _deployment(stack: str | None) -> Settings | None:
    """The deployment whose tables are compared: the named one, or the environment's; None without either."""
    if stack is None and not {"TIDEMARK_CATALOG_URI", ENV_FILE_VARIABLE, CONFIG_VARIABLE} & os.environ.keys():
        return None
    return connect(stack)
