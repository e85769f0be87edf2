"""A stream's last reconcile run, by its report."""

import json
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from tidemark.core.errors import FormatError
from tidemark.core.layout import Layout
from tidemark.reconcile.results import NOT_ENDED
from tidemark.s3 import ObjectStore

_REPORT = "/report.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The run that wrote its report last.

    ``verdict`` is the report's status, such as ``complete``, ``unchanged`` or ``failed``; ``title`` and ``sentences``
    say the same in words. ``days`` are those that it rebuilt, held back or found unchanged. ``ended_at`` is in UTC.
    ``report`` is the key of the report's page.
    """

    name: str
    verdict: str
    title: str
    sentences: tuple[str, ...]
    days: tuple[date, ...]
    ended_at: datetime
    report: str

    @property
    def failed(self) -> bool:
        """Whether it has not done every step, and waits for no person."""
        return self.verdict in NOT_ENDED - {"waiting"}


def read_last_run(store: ObjectStore, layout: Layout) -> LastRun | None:
    """The last run with a report; None if there is none. Raises FormatError for a report that does not parse.

    The report step names its run in an object. Only if there is none, as after an upgrade, or no report of that run
    yet, are the runs' objects listed: the newest report by the server's time is the last run's.
    """
    if name := store.get(layout.last_run_key):
        key = layout.run_key(name.decode(), _REPORT.removeprefix("/"))
        if body := store.get(key):
            return _parse(body, key)
    reports = (item for item in store.list(layout.run_prefix) if item.key.endswith(_REPORT))
    newest = max(reports, key=lambda item: (item.modified, item.key), default=None)
    body = None if newest is None else store.get(newest.key)
    return None if newest is None or body is None else _parse(body, newest.key)


def read_run(store: ObjectStore, layout: Layout, name: str) -> LastRun | None:
    """A run by its report; None without one. Raises FormatError for a report that does not parse."""
    key = layout.run_key(name, _REPORT.removeprefix("/"))
    body = store.get(key)
    return None if body is None else _parse(body, key)


def _parse(body: bytes, where: str) -> LastRun | None:
    try:
        outcome = json.loads(body)
        report: dict[str, Any] | None = outcome["result"]
        if report is None:  # the report step itself failed
            return LastRun(
                name=where.removesuffix(_REPORT).rpartition("/")[2],
                verdict="failed",
                title="The run's report could not be made",
                sentences=(str(outcome["error"]),),
                days=(),
                ended_at=datetime.fromisoformat(outcome["started_at"]),
                report=where,
            )
        days = [item["day"] for item in report["days"]] + report["unchanged"]
        return LastRun(
            name=report["run"],
            verdict=report["verdict"]["status"],
            title=report["verdict"]["title"],
            sentences=tuple(report["verdict"]["sentences"]),
            days=tuple(sorted(map(date.fromisoformat, days))),
            ended_at=datetime.fromisoformat(outcome["started_at"]),
            report=report["html_key"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError("a run's report does not parse", found=repr(error), where=where) from error
