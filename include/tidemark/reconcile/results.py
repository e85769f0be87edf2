"""What a saved audit says of the rows it looked at."""

from collections.abc import Collection, Mapping
from datetime import date
from typing import Any

from tidemark.core.plan import DayPlan, Plan

# What to do about late records that are held back.
WAY_OUT = (
    "Every new run tries them again until they pass: let the transformation reject what is bad, or mend the check or"
    " object that is named, or leave days so far back alone (batch.reopen_days)."
)


def new_run_hint(stream: str, days: Collection[date]) -> str:
    """What to do where another run has moved one of the days meanwhile."""
    return (
        f"Start a new run of the days: trigger the DAG reconcile_{stream} with from_day {min(days)} and to_day"
        f" {max(days)}, and with force where nothing new was archived since they were sealed"
    )


def condemns(audit: Mapping[str, Any]) -> bool:
    """Whether critical checks that looked at the rows stop the run: to audit the same rows again is pointless.

    An audit that failed before its checks, or one whose checks could not be made, says nothing about the rows.
    """
    return audit.get("condemned") is True


def held_days(audit: Mapping[str, Any]) -> dict[date, str]:
    """The days that late records reopened and that keep their version, with what was wrong with their new rows."""
    return {date.fromisoformat(item["day"]): item["because"] for item in audit.get("held", ())}


def passed_days(plan: Plan, audit: Mapping[str, Any]) -> tuple[DayPlan, ...]:
    """The days of a plan that a passed audit lets readers see."""
    held = held_days(audit)
    return tuple(item for item in plan.days if item.day not in held)


def held_text(audit: Mapping[str, Any]) -> str:
    """What is held back, and the ways out; empty where nothing is."""
    found = "; ".join(held_days(audit).values())
    return f"late records are held back, for their days can't be rebuilt or do not pass: {found}" if found else ""
