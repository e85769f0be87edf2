"""``tidemark reconcile``: a reconcile run without a scheduler."""

import getpass
import os
from datetime import UTC, date, datetime

from rich.console import Console

from tidemark.cli.connect import connect_s3
from tidemark.cli.json_output import print_result
from tidemark.cli.one_run import lazy_spark, run_here
from tidemark.cli.root import FINE, WRONG, explain
from tidemark.core.days import last_ended
from tidemark.definitions.stream import load_stream
from tidemark.orchestration import tasks
from tidemark.orchestration.run_days import form_days, require_over
from tidemark.orchestration.steps import SPAN_DAYS_MAX
from tidemark.settings import Settings


def reconcile(
    stack: str | None,
    stream: str,
    *,
    from_day: str | None,
    to_day: str | None,
    force: bool,
    accept_loss: bool,
    approve: str | None,
    reassign_days: bool,
    as_json: bool,
) -> int:
    """Run every step for the days, by default yesterday. Print the report, even after a failure.

    Return the exit code.
    """
    settings = connect_s3(stack)
    days = _days(stream, settings, from_day, to_day)
    request = tasks.Request(
        days=days,
        force=force,
        by=_user(),
        accept_loss=accept_loss,
        approve=approve,
        reassign_days=reassign_days,
    )
    console = Console(stderr=as_json, soft_wrap=True)
    with lazy_spark(settings, f"tidemark-reconcile-{stream}") as spark:
        result, failure = run_here(console, settings, stream, request, spark)
    if failure is not None:
        explain(failure)
    if as_json:
        print_result("reconcile", result)
    return FINE if failure is None else WRONG


def _user() -> str:
    """The name of the operating system's user; the number if it has none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _days(stream: str, settings: Settings, from_day: str | None, to_day: str | None) -> tuple[date, ...]:
    zone, now = load_stream(stream, settings.streams_dir).zone, datetime.now(UTC)
    if not (from_day or to_day):
        return (last_ended(now, zone),)
    days = form_days(from_day, to_day or from_day, days_max=SPAN_DAYS_MAX)
    require_over(days, now=now, zone=zone)
    return days
