"""What a stream needs a person for, the most urgent first, each with the page where it can be fixed."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from tidemark.core.days import date_ranges
from tidemark.inspect.problems import Problem
from tidemark.inspect.status_rows import DayRow, StreamRow
from tidemark.orchestration.steps import dag_id
from tidemark.pages.causes import RunCause
from tidemark.pages.words import sentence

# The most urgent first: what destroys data, then what readers miss, then what only lags. The kinds are those of
# problems; "approval" is a run that waits for a person.
URGENCY = (
    "retention",
    "day_unproven",
    "day_not_ours",
    "approval",
    "day_overdue",
    "definition_invalid",
    "days_held_back",
    "run_failed",
    "archive_failed",
    "archive_stale",
    "speed_failed",
    "speed_stale",
    "archive_never_started",
)
# A run of a day fetches what is missing from Kafka, and seals what was published without a proof.
_MENDED_BY_A_RUN = ("retention", "archive_never_started", "day_unproven")
BACKFILL = "tidemark_backfill"
_LINKS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """``links`` are texts and paths below the stream's page, ``dags`` those of Airflow that mend it; ``details`` are
    shown only to those who ask for them."""

    kind: str
    text: str
    hint: str = ""
    links: tuple[tuple[str, str], ...] = ()
    dags: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """Its urgency: 0 is the most urgent."""
        return URGENCY.index(self.kind) if self.kind in URGENCY else len(URGENCY)


def stream_needs(status: StreamRow, cause: RunCause | None = None) -> tuple[Need, ...]:
    """The needs of a stream. ``cause`` is that of its last run, if it was found out."""
    return tuple(sorted(_needs(status, cause), key=lambda item: item.rank))


def _needs(status: StreamRow, cause: RunCause | None) -> Iterator[Need]:
    run = status.last_run
    if run is not None and run.verdict == "waiting":
        text = f"{date_ranges(run.days)} {'waits' if len(run.days) == 1 else 'wait'} for a person's approval."
        yield Need(kind="approval", text=text, links=_day_links(run.days), details=run.sentences)
    for item in status.problems:
        if item.kind == "day_overdue":
            yield from _overdue(status)
        elif item.kind in {"run_failed", "days_held_back"} and run is not None:
            if run.verdict == "waiting":  # a later run than the one of this problem
                continue
            why = cause.sentences[0] if cause and cause.sentences else ""
            details = cause.details if cause else run.sentences
            report = ("Report of the run", f"runs/{run.name}")
            links = (*_day_links(run.days), report)
            yield Need(kind=item.kind, text=f"{sentence(run.title)} {why}".strip(), links=links, details=details)
        else:
            yield _plain(status, item)


def _overdue(status: StreamRow) -> Iterator[Need]:
    """The days that no failed run explains already."""
    run = status.last_run
    failed = run.days if run is not None and (run.failed or run.verdict == "waiting") else ()
    days = tuple(day for day in status.overdue if day not in failed)
    if days:
        text = (
            f"{date_ranges(days)} {'is' if len(days) == 1 else 'are'} missing: not sealed, and the deadline has passed."
        )
        dags = (BACKFILL,) if len(days) > 1 else ()
        yield Need(kind="day_overdue", text=text, links=_day_links(days), dags=dags)


def _plain(status: StreamRow, problem: Problem) -> Need:
    """With the pages and DAGs that the hint is about."""
    text = sentence(problem.text.removeprefix(f"{status.stream}: "))
    days = tuple(item.day for item in status.days if _concerns(problem.kind, item))
    dags = (dag_id(status.stream),) if problem.kind in _MENDED_BY_A_RUN else ()
    hint = sentence(problem.hint)
    return Need(kind=problem.kind, text=text, hint=hint, links=_day_links(days), dags=dags)


def _concerns(kind: str, item: DayRow) -> bool:
    match kind:
        case "day_unproven" | "day_not_ours":
            return item.state == "unproven" and (item.unproven_run is not None) == (kind == "day_unproven")
        case "retention" | "archive_never_started":
            return item.state in {"overdue", "unsealed"}
        case _:
            return False


def _day_links(days: tuple[date, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((f"Open {day}", f"days/{day}") for day in days[:_LINKS_MAX])
