"""What a backfill would do: its runs, the state of their days, what they read at most, and what that costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from tidemark.core.days import date_ranges
from tidemark.core.requests import ASSUMED_PRICES, Requests, reconcile_run
from tidemark.orchestration.run_days import day_chunks

if TYPE_CHECKING:
    from tidemark.current_view.day_states import DayState
    from tidemark.definitions.stream import Stream
    from tidemark.settings import Settings

_STATES = {"unproven": "published, not proven", "not_over": "not over"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillDay:
    """A day that a run of the backfill is for: its state before, and what the archive holds of it at most."""

    day: date
    state: str
    rows_max: int
    objects_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """The days of each run. ``complete`` days are left out: their seals have every archived record.

    ``manifests`` are the new ones, which each run reads.
    """

    stream: str
    complete: tuple[date, ...]
    runs: tuple[tuple[BackfillDay, ...], ...]
    manifests: int

    @property
    def days(self) -> tuple[BackfillDay, ...]:
        """The days of all runs."""
        return tuple(day for run in self.runs for day in run)

    @property
    def requests(self) -> Requests:
        """The requests to S3 of all runs, at most; without a refill."""
        total = Requests()
        for run in self.runs:
            objects = sum(day.objects_max for day in run)
            total += reconcile_run(objects=objects, manifests=self.manifests, folders=objects)
        return total


def plan_backfill(
    settings: "Settings", stream: "Stream", days: Sequence[date], *, days_per_run: int, force: bool, now: datetime
) -> BackfillPlan:
    """Reads seals, manifests and the table's metadata. With ``force`` no day is left out.

    Raises ServiceError where S3 or the catalog does not answer.
    """
    from tidemark.current_view.day_states import StoredDays, read_day_states
    from tidemark.s3 import ObjectStore

    stored = StoredDays.read(settings, ObjectStore(settings), stream)
    found = read_day_states(settings, stream, first=days[0], last=days[-1], grace=timedelta(), now=now, stored=stored)
    states = {item.day: item for item in found}
    complete = () if force else tuple(day for day in days if _is_complete(states[day]))
    history = stored.archived.history()

    def shown(day: date) -> BackfillDay:
        rows, objects = history.size(day)
        return BackfillDay(day=day, state=_state_text(states[day]), rows_max=rows, objects_max=objects)

    chunks = day_chunks([day for day in days if day not in set(complete)], days_per_run)
    return BackfillPlan(
        stream=stream.name,
        complete=complete,
        runs=tuple(tuple(map(shown, chunk)) for chunk in chunks),
        manifests=stored.archived.new,
    )


def plan_lines(plan: BackfillPlan) -> Iterator[str]:
    """The plan as text: a line per day, and what all runs cost at most."""
    yield f"Backfill of {plan.stream}: {_number(len(plan.days), 'day')} in {_number(len(plan.runs), 'run')}"
    if plan.complete:
        yield f"Left out, sealed with every archived record: {date_ranges(plan.complete)}"
    if not plan.runs:
        return
    yield f"{'run':>4}  {'day':<10}  {'rows':>13}  {'objects':>9}  state"
    for number, run in enumerate(plan.runs, 1):
        for day in run:
            yield f"{number:>4}  {day.day}  {day.rows_max:>13,}  {day.objects_max:>9,}  {day.state}"
    rows, objects = sum(day.rows_max for day in plan.days), sum(day.objects_max for day in plan.days)
    requests = plan.requests
    cost = f"{requests.total:,.0f} requests to S3, ${ASSUMED_PRICES.cost(requests):,.2f} ({ASSUMED_PRICES.name})"
    yield f"At most {_number(rows, 'row')} of {_number(objects, 'object')}; {cost}"
    yield "Records that Kafka has and the archive lacks are not counted: the runs fetch them"


def _is_complete(state: "DayState") -> bool:
    return state.status == "sealed" and not state.waiting_max


def _state_text(state: "DayState") -> str:
    sealed = f"sealed v{state.sealed.version}, {state.sealed.quality}" if state.sealed else "not sealed"
    waiting = f", at most {_number(state.waiting_max, 'record')} waiting" if state.waiting_max else ""
    return f"{_STATES.get(state.status, sealed)}{waiting}"


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
