"""What step ``delivery`` says about the days of a run: the live topic compared with the table."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from tidemark.core.delivery import DELIVERY, DayDelivery
from tidemark.reconcile.report.outcomes import Outcomes
from tidemark.reconcile.report.values import DayReport


def compared(outcomes: Outcomes) -> Mapping[date, DayDelivery]:
    """By day, unless the step failed: its counts are not reliable then."""
    found = outcomes.by_step.get(DELIVERY.name)
    result = outcomes.result(DELIVERY) if found and found.status == "ok" else None
    return {item.day: item for item in result.days} if result else {}


def not_compared(outcomes: Outcomes) -> str | None:
    """Why no day was compared; None if one was."""
    found = outcomes.by_step.get(DELIVERY.name)
    if found is None:
        return "Step delivery was not reached"
    if found.status != "ok":
        return f"Step delivery failed: {found.error}"
    result = outcomes.result(DELIVERY)
    return result.because if result else None


def delivery_sentences(outcomes: Outcomes, days: Sequence[DayReport]) -> Iterator[str]:
    """What a reader of the verdict should know: a failure, what was found, and copies that delivery may repeat."""
    found = outcomes.by_step.get(DELIVERY.name)
    if found is not None and found.status != "ok":
        yield f"The live topic was not compared with the table: {found.error}"
    for day in days:
        if day.delivery is not None and (differs(day) or day.delivery.total("duplicated")):
            yield f"{day.day}, live topic against the table: {day.delivery.text}."


def differs(day: DayReport) -> bool:
    """Whether the live topic lacks records of the table, or has others."""
    return day.delivery is not None and day.delivery.verdict == "findings"


def command(stream: str, day: date) -> str:
    """What shows each finding of a day."""
    return f"See each record with 'tidemark delivery {stream} --from {day}'."
