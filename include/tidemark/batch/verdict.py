"""What a saved audit says of the rows it looked at."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from tidemark.core.plan import DayPlan, Plan


def condemns(audit: Mapping[str, Any]) -> bool:
    """Whether a critical check looked at the rows and did not pass: to audit the same rows again is pointless.

    An audit that failed before its checks, or one whose checks could not be made, says nothing about the rows.
    """
    return any(
        item["severity"] == "critical" and item["success"] is not True and item["exception"] is None
        for item in audit.get("checks", ())
    )


def held_days(audit: Mapping[str, Any]) -> dict[date, str]:
    """The days that late records reopened and that keep their version, with what their new rows did not pass."""
    return {date.fromisoformat(item["day"]): item["because"] for item in audit.get("held", ())}


def passed_days(plan: Plan, audit: Mapping[str, Any]) -> tuple[DayPlan, ...]:
    """The days of a plan that a passed audit lets readers see."""
    held = held_days(audit)
    return tuple(item for item in plan.days if item.day not in held)


def held_text(audit: Mapping[str, Any]) -> str:
    """What is held back, and the ways out; empty where nothing is."""
    found = "; ".join(held_days(audit).values())
    return f"late records are held back, for what they make of their days does not pass: {found}" if found else ""
