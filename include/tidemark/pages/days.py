"""The verdict on a day: one sentence first, then the reasons."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, tzinfo
from typing import Literal

from tidemark.core.day_summary import summarise
from tidemark.core.days import day_end, seal_deadline
from tidemark.core.seal import Seal
from tidemark.inspect.last_run import LastRun
from tidemark.inspect.status import GRACE
from tidemark.pages.causes import RunCause
from tidemark.pages.verdicts import State
from tidemark.pages.words import minute, number, plural, sentence, span
from tidemark.tables.day_publications import DayPublication

# Airflow's states of a run that has not ended, and what to say then.
_UNDER_WAY = {
    "running": "Follow its run below. This page says how it ended.",
    "queued": "It begins when no other run of the stream is under way and its DAG is not paused.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRun:
    """The newest run in Airflow that is for a day. ``name`` is its name in keys, ``state`` Airflow's word, ``started``
    when it began or was queued."""

    name: str
    state: str
    started: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayVerdict:
    """A day in a sentence, ``more`` about it, and whether a person is needed (``open``: not yet).

    ``details`` are what its last ``run`` reported, if that has not done its work. ``loss``: no run seals the day until
    a person accepts its loss.
    """

    state: State | Literal["open"]
    sentence: str
    more: tuple[str, ...]
    details: tuple[str, ...] = ()
    run: str | None = None
    loss: bool = False


def run_of_day(day: date, last_run: LastRun | None, newest: DayRun | None, report: LastRun | None) -> LastRun | None:
    """The last run of a day, by its report. ``last_run`` is the stream's, which the command line may have started, and
    ``report`` that of the ``newest`` in Airflow: a run that failed early names no day in it."""
    of_day = last_run if last_run is not None and day in last_run.days else None
    run = max((item for item in (report, of_day) if item is not None), key=lambda item: item.ended_at, default=None)
    if run is None or newest is None or report is not None or newest.started is None:
        return run
    return run if run.ended_at > newest.started else None  # the newest saved no report


def day_verdict(
    day: date,
    seals: Sequence[Seal] | None,
    run: LastRun | None,
    cause: RunCause | None,
    *,
    zone: tzinfo,
    now: datetime,
    sealed_by: str | None = None,
    newest: DayRun | None = None,
) -> DayVerdict:
    """The verdict on a day. ``seals`` is None if they could not be read. ``run`` is that of ``run_of_day``, and
    ``cause`` is its cause.

    ``sealed_by`` is the deadline on the next day, if the stream has one.
    """
    if seals is None:
        return DayVerdict(state="unknown", sentence=f"Cannot tell whether {day} is complete.", more=())
    if run is not None and seals and seals[-1].run == run.name:
        run = None  # it has sealed the day since it wrote its report
    if seals:
        found = _sealed(day, seals[-1])
    else:
        if newest is not None and newest.state == "running" and not _waits(run, newest):
            run = None  # what an earlier run reported may be corrected already
        deadline = seal_deadline(day, zone, sealed_by, GRACE)
        found = _unsealed(day, run, newest, end=day_end(day, zone), deadline=deadline, now=now)
    if run is None or cause is None or not _needs_person(run):
        return found
    first = () if run.failed and not seals else (f"The last run: {sentence(run.title)}",)
    if run.verdict == "waiting":  # the page shows what is asked
        return replace(found, state="attention")
    why = (*cause.sentences, *(["Every further run fails until a person accepts the loss."] if cause.loss else []))
    return DayVerdict(
        state="attention",
        sentence=found.sentence,
        more=(*why, *found.more) if not seals else (*found.more, *first, *why),
        details=cause.details,
        run=run.name,
        loss=cause.loss,
    )


def readers_verdict(day: date, verdict: DayVerdict, seen: DayPublication | None) -> DayVerdict:
    """The verdict where readers see what no seal proves; ``verdict`` itself where ``seen`` is None."""
    if seen is None:
        return verdict
    why = f"Readers see {seen}, which no seal proves. The stream's next run rebuilds and seals the day."
    sentence = f"{day} is published and not proven."
    return replace(verdict, state="attention", sentence=sentence, more=(why, *verdict.more))


def _waits(run: LastRun | None, newest: DayRun | None) -> bool:
    """Whether the run waits for an answer. A person may have marked it as failed instead."""
    return run is not None and run.verdict == "waiting" and (newest is None or newest.state != "failed")


def _needs_person(run: LastRun) -> bool:
    return run.failed or run.verdict in {"waiting", "days held back"}


def _sealed(day: date, seal: Seal) -> DayVerdict:
    newest = summarise(seal)
    more = [f"{number(newest.published)} records are published in version {newest.version}."]
    if seal.approval:
        more.append(seal.approval.sentence)
    if newest.unexplained:
        more.append(f"{plural(newest.unexplained, 'offset')} without a row have no proven cause: see the proof below.")
    if newest.quality == "warnings":
        more.append("Checks of severity warning failed: see the checks below.")
    if newest.lost_of_day:
        text = f"{day} is sealed, and {plural(newest.lost_of_day, 'lost offset')} may belong to it."
        return DayVerdict(state="attention", sentence=text, more=tuple(more))
    return DayVerdict(state="good", sentence=f"{day} is complete.", more=tuple(more))


def _unsealed(
    day: date, run: LastRun | None, newest: DayRun | None, *, end: datetime, deadline: datetime, now: datetime
) -> DayVerdict:
    if _waits(run, newest):
        text = f"{day} waits for a person's approval."
        return DayVerdict(state="attention", sentence=text, more=("Readers see nothing of it until then.",))
    if end > now:
        left = span((end - now).total_seconds())
        return DayVerdict(state="open", sentence=f"{day} is not over. It ends in {left}.", more=())
    over = f"It ended {span((now - end).total_seconds())} ago and is not sealed."
    if newest is not None and newest.state in _UNDER_WAY:
        late = newest.state == "queued" and now > deadline  # while its DAG is paused it never begins
        more = (over, _UNDER_WAY[newest.state])
        return DayVerdict(state="attention" if late else "open", sentence=_under_way(day, newest), more=more)
    failed = DayVerdict(state="attention", sentence=f"{day} is missing: its last run failed.", more=(over,))
    if run is not None and _needs_person(run):
        return failed
    if run is None and newest is not None and newest.state == "failed":
        return replace(failed, more=(over, "It saved no report. Its log in Airflow says why: see its run below."))
    if now <= deadline:
        return DayVerdict(state="open", sentence=f"{day} is not sealed yet.", more=(over,))
    hint = "No failed run is known. Rebuild the day below, or check whether its DAG is paused."
    return DayVerdict(state="attention", sentence=f"{day} is missing.", more=(over, hint))


def _under_way(day: date, newest: DayRun) -> str:
    since = f" since {minute(newest.started)}" if newest.started else ""
    return f"{day} is being rebuilt{since}." if newest.state == "running" else f"A run of {day} is queued{since}."
