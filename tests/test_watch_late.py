"""When a watch starts a run for late records: once per change, never beside another run."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tidemark.current_view.day_states import DayState
from tidemark.inspect.watch import Reopening
from tidemark.inspect.watch_late import (
    LateDays,
    find_late_days,
    paused_problem,
    reopenings,
    still_late,
    to_start,
)
from tidemark.installation import PROJECT

MONDAY, TUESDAY, WEDNESDAY = (date(2026, 11, number) for number in (23, 24, 25))


def day(at: date, waiting: int = 0, status: Any = "sealed") -> DayState:
    return DayState(day=at, status=status, sealed=None, waiting_max=waiting)


@pytest.mark.parametrize(
    ("days", "reopen_days", "records", "requested"),
    [
        ([day(MONDAY, 2), day(TUESDAY), day(WEDNESDAY)], None, {MONDAY: 2}, WEDNESDAY),
        ([day(MONDAY), day(TUESDAY, 1), day(WEDNESDAY, 3)], None, {TUESDAY: 1, WEDNESDAY: 3}, MONDAY),
        ([day(WEDNESDAY, 3)], None, {WEDNESDAY: 3}, WEDNESDAY),
        ([day(MONDAY, 2), day(TUESDAY, 1), day(WEDNESDAY)], 1, {TUESDAY: 1}, WEDNESDAY),
        ([day(TUESDAY, 1), day(WEDNESDAY, 2)], 0, {WEDNESDAY: 2}, WEDNESDAY),
        ([day(MONDAY, 2), day(TUESDAY), day(WEDNESDAY, 9, "not_over")], None, {MONDAY: 2}, TUESDAY),
    ],
)
def test_late_days_are_sealed_ones_within_the_bound_and_the_run_is_for_a_quiet_day(
    days: Sequence[DayState], reopen_days: int | None, records: dict[date, int], requested: date
) -> None:
    assert find_late_days("s", days, reopen_days) == LateDays(stream="s", records=records, requested=requested)


@pytest.mark.parametrize(
    "days", [[], [day(MONDAY)], [day(MONDAY, 5, "unproven")], [day(MONDAY, 5, "overdue"), day(TUESDAY)]]
)
def test_a_stream_without_late_records_of_sealed_days_needs_no_run(days: Sequence[DayState]) -> None:
    assert find_late_days("s", days, None) is None


def test_a_run_is_started_once_and_again_only_for_further_records() -> None:
    late = LateDays(stream="s", records={MONDAY: 2, TUESDAY: 1}, requested=WEDNESDAY)
    assert to_start(late, [])
    started = reopenings(late, "r")
    assert not to_start(late, started)  # held back: the same records wait after the run
    assert not to_start(LateDays(stream="s", records={MONDAY: 2}, requested=WEDNESDAY), started)
    assert to_start(LateDays(stream="s", records={MONDAY: 3}, requested=WEDNESDAY), started)
    assert to_start(LateDays(stream="t", records={MONDAY: 2}, requested=WEDNESDAY), started)


def test_a_published_day_is_forgotten_unless_its_stream_was_not_checked() -> None:
    first, second, third = (
        Reopening(stream=stream, day=str(at), records=1, run="r")
        for stream, at in (("s", MONDAY), ("s", TUESDAY), ("t", MONDAY))
    )
    late = [LateDays(stream="s", records={TUESDAY: 1}, requested=WEDNESDAY)]
    assert still_late([first, second, third], late, {"t"}) == (second, third)


def test_a_paused_dag_is_a_problem_that_names_it() -> None:
    found = paused_problem(LateDays(stream="s", records={MONDAY: 2}, requested=MONDAY), "reconcile_s")
    assert (found.problem.kind, found.marks) == ("late_data_waits", ("2026-11-23",))
    assert "up to 2 late records wait, and reconcile_s is paused" in found.problem.text


PROGRAM = """
import json, sys
from datetime import UTC, date, datetime
from types import SimpleNamespace
from tidemark.inspect.watch import Reopening
from tidemark.inspect.watch_findings import Findings
from tidemark.inspect.watch_late import LateDays
from tidemark_airflow import reopen
from tidemark_airflow.reopen import runs_to_start

reopen.run_note = lambda stream, days, why: f"{stream} {' '.join(map(str, days))}: {why}"

class Ti:
    def __init__(self, asked):
        self.asked = asked
    def get_dag(self, dag):
        return SimpleNamespace(is_paused=self.asked["paused"])
    def get_dr_count(self, dag, run_ids=None, states=None):
        return self.asked["known"] if run_ids else self.asked["under_way"]

def decide(asked):
    late = LateDays(stream="s", records={date(2026, 11, 23): 2}, requested=date(2026, 11, 25))
    status = SimpleNamespace(stream="s", running="a run" if asked["leased"] else None)
    found = Findings(problems=(), unchecked=frozenset(), statuses=(status,), late=(late,))
    before = [Reopening(stream="s", day="2026-11-23", records=asked["before"], run="r")] if asked["before"] else []
    result = runs_to_start(found, before, datetime(2026, 11, 26, 7, tzinfo=UTC), Ti(asked))
    return [result.runs, len(result.paused), [[item.records, item.run] for item in result.reopenings]]

print(json.dumps([decide(asked) for asked in json.loads(sys.argv[1])]))
"""
RUN = "2026-11-23__late__2026-11-26T07-00-00"
START = {
    "trigger_dag_id": "reconcile_s",
    "trigger_run_id": RUN,
    "conf": {"from_day": "2026-11-25", "to_day": "2026-11-25"},
    "note": "s 2026-11-25: late records of 2026-11-23",
}
QUIET = {"paused": False, "known": 1, "under_way": 0, "leased": False, "before": 0}


CASES: list[tuple[dict[str, Any], list[Any]]] = [
    ({}, [[START], 0, [[2, RUN]]]),
    ({"under_way": 1}, [[], 0, []]),
    ({"leased": True}, [[], 0, []]),
    ({"paused": True}, [[], 1, []]),
    ({"before": 2}, [[], 0, [[2, "r"]]]),
    ({"before": 1}, [[START], 0, [[2, RUN]]]),
    ({"before": 2, "known": 0}, [[START], 0, [[2, RUN]]]),  # the check was killed before the run was started
]


def test_a_run_starts_if_none_is_under_way_and_its_dag_is_not_paused(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "include"), "AIRFLOW_HOME": str(tmp_path)}
    asked = json.dumps([{**QUIET, **case} for case, _ in CASES])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, asked], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [expected for _, expected in CASES]
