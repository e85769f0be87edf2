"""The outcomes of a run's steps, as its report reads them after whatever happened."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tidemark.core.delivery import FAILS_NO_RUN
from tidemark.core.errors import FormatError
from tidemark.core.outcome import Outcome, RunStep
from tidemark.core.plan import Plan
from tidemark.reconcile.report.values import StepReport
from tidemark.reconcile.results import APPROVE, FINALIZE_PLAN, PLAN, REFILL, STEPS, WAIT
from tidemark.run import Run

OPTIONAL = frozenset({WAIT.name, REFILL.name, APPROVE.name, *FAILS_NO_RUN})
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """By step; a step that never ran has none."""

    by_step: Mapping[str, Outcome[Any]]

    def result(self, step: RunStep[T]) -> T | None:
        """The step's result, of a failed attempt too; None where it did not come that far."""
        found: Outcome[T] | None = self.by_step.get(step.name)
        return None if found is None else found.result

    @property
    def plan(self) -> Plan | None:
        """The final plan, else the first one."""
        found = self.result(FINALIZE_PLAN) or self.result(PLAN)
        return found.plan if found else None

    @property
    def ended_at(self) -> datetime | None:
        """When the last of the steps ended, in UTC; None if none has saved an outcome."""
        ends = (
            datetime.fromisoformat(item.started_at) + timedelta(seconds=item.seconds)
            for item in self.by_step.values()
            if item.started_at
        )
        return max(ends, default=None)

    def states(self, run: Run) -> tuple[StepReport, ...]:
        """How each step ended. An outcome older than that of a step before it is marked as of an earlier attempt."""
        names = [step.name for step in STEPS]
        reached = [name for name in names if name in self.by_step]
        states: list[StepReport] = []
        newest = ""
        for at, name in enumerate(names):
            found = self.by_step.get(name)
            if found is None:
                skipped = name in OPTIONAL and any(names.index(other) > at for other in reached)
                states.append(
                    StepReport(
                        name=name,
                        status="not needed" if skipped else "not reached",
                        seconds=None,
                        error=None,
                        started_at=None,
                        key=None,
                    )
                )
                continue
            states.append(
                StepReport(
                    name=name,
                    status="earlier attempt" if found.started_at < newest else found.status,
                    seconds=found.seconds,
                    error=found.error,
                    started_at=found.started_at or None,
                    key=run.key(name),
                )
            )
            newest = max(newest, found.started_at)
        return tuple(states)


def read_outcomes(run: Run) -> Outcomes:
    """What the run's steps have saved; an outcome that does not parse counts as a failure with that error."""
    found: dict[str, Outcome[Any]] = {}
    for step in STEPS:
        try:
            outcome: Outcome[Any] | None = run.outcome(step)
        except FormatError as error:
            outcome = Outcome(started_at="", seconds=0.0, status="failed", error=str(error), result=None)
        if outcome is not None:
            found[step.name] = outcome
    return Outcomes(by_step=found)
