"""Runs of reconcile DAGs that the watch starts for late records."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowRuntimeError

from tidemark.orchestration.steps import dag_id
from tidemark_airflow.notes import run_note
from tidemark_airflow.triggers import UNDER_WAY

if TYPE_CHECKING:
    from tidemark.inspect.watch import Reopening
    from tidemark.inspect.watch_findings import Findings
    from tidemark.inspect.watch_late import LateDays

KEY = "late"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsToStart:
    """The arguments of the operator that starts each run, the streams whose DAG can't start one, and what to save."""

    runs: list[dict[str, Any]]
    paused: "list[LateDays]"
    reopenings: "tuple[Reopening, ...]"


def runs_to_start(found: "Findings", before: "Sequence[Reopening]", now: datetime, ti: Any) -> RunsToStart:
    """What the check decides about late records."""
    from tidemark.inspect.watch_late import reopenings, still_late

    known = [item for item in before if ti.get_dr_count(dag_id(item.stream), run_ids=[item.run])]
    leased = {item.stream for item in found.statuses if item.running is not None}
    start, paused = startable(found.late, known, leased, ti)
    runs = {item.stream: run_of(item, now) for item in start}
    kept = [item for item in still_late(known, found.late, found.unchecked) if item.stream not in runs]
    started = [new for item in start for new in reopenings(item, runs[item.stream]["trigger_run_id"])]
    return RunsToStart(runs=list(runs.values()), paused=paused, reopenings=(*kept, *started))


def startable(
    late: "Sequence[LateDays]", started: "Sequence[Reopening]", leased: Collection[str], ti: Any
) -> "tuple[list[LateDays], list[LateDays]]":
    """The streams for which a run is to start, and those for which it can't, because their DAG is paused or unknown.

    None starts while a run of the stream is under way: of its DAG, or of another process, for the ``leased`` streams.
    """
    from tidemark.inspect.watch_late import to_start

    found: tuple[list[LateDays], list[LateDays]] = ([], [])
    for item in late:
        dag = dag_id(item.stream)
        if not _can_run(dag, ti):
            found[1].append(item)
        elif item.stream not in leased and to_start(item, started) and not ti.get_dr_count(dag, states=UNDER_WAY):
            found[0].append(item)
    return found


def _can_run(dag: str, ti: Any) -> bool:
    try:
        return not ti.get_dag(dag).is_paused
    except AirflowRuntimeError:
        return False


def run_of(late: "LateDays", now: datetime) -> dict[str, Any]:
    """The arguments of the operator that starts the run. Its id starts with the first late day."""
    from tidemark.core.days import date_ranges

    day = str(late.requested)
    return {
        "trigger_dag_id": dag_id(late.stream),
        "trigger_run_id": f"{min(late.records)}__late__{now:%Y-%m-%dT%H-%M-%S}",
        "conf": {"from_day": day, "to_day": day},
        "note": run_note(late.stream, (late.requested,), f"late records of {date_ranges(sorted(late.records))}"),
    }


class LateStep(BaseOperator):
    """Returns the runs to start, as task ``check`` found them."""

    def execute(self, context: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = context["ti"].xcom_pull(task_ids="check", key=KEY) or []
        return found
