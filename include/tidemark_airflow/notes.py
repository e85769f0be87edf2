"""A run's note: its days, in the stream's time zone, what the run is for, and the words of the person who wanted it.

A task can't set the note of its own run. So the scheduler does it as a run begins, by ``on_dag_run_running``.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any

from airflow.listeners import hookimpl

_PREFIX = "reconcile_"
_CHARACTERS_MAX = 1_000  # of a note, in Airflow's database
_DAYS_CHARACTERS_MAX = 500  # of many days that are not in a row
_REASONS = {"scheduled": "by the schedule", "backfill": "by a backfill of Airflow", "asset_triggered": "after an event"}


def run_note(stream_name: str, days: Sequence[date], why: str, words: str = "") -> str:
    """The note of a run that a task or a page starts. ``words`` are a person's.

    Raises ConfigError for a definition that can't be used.
    """
    from tidemark.definitions.stream import load_stream
    from tidemark.settings import streams_dir

    return _note(days, load_stream(stream_name, streams_dir()).time_zone, why, words)


@hookimpl
def on_dag_run_running(dag_run: Any) -> None:
    """Give a reconcile run its note, unless it has one that names the days, or its form is wrong.

    A person's own note is kept: it becomes the end.
    """
    if not dag_run.dag_id.startswith(_PREFIX):
        return
    zone = getattr(dag_run.dag.timetable, "_timezone", None)  # Airflow's timetables have no public name for it
    if zone is None:  # a broken definition's
        return
    if (days := _days(dag_run, zone)) is not None:
        why = _REASONS.get(str(dag_run.run_type), f"started by {dag_run.triggering_user_name or 'a task'}")
        own = dag_run.note or ""
        if not own.startswith(_of_days(days, zone.name)):
            dag_run.note = _note(days, zone.name, why, own)


def _days(dag_run: Any, zone: Any) -> tuple[date, ...] | None:
    from tidemark.core.errors import RequestError
    from tidemark.orchestration.run_days import run_days

    form, start, end = dag_run.conf or {}, dag_run.data_interval_start, dag_run.data_interval_end
    interval = (start, end) if start and end else None
    try:
        return run_days(from_day=form.get("from_day"), to_day=form.get("to_day"), interval=interval, zone=zone)
    except RequestError:  # step wait says what is wrong
        return None


def _note(days: Sequence[date], zone_name: str, why: str, words: str) -> str:
    from tidemark.core.text import cut

    text = f"{_of_days(days, zone_name)}{why}{': ' if words else ''}{words}"
    return cut(text, _CHARACTERS_MAX)


def _of_days(days: Sequence[date], zone_name: str) -> str:
    from tidemark.core.text import cut
    from tidemark.orchestration.tasks import days_text

    return f"{cut(days_text(days), _DAYS_CHARACTERS_MAX)}, {zone_name}: "
