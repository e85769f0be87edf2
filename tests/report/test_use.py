"""May readers use a day: the page and the index have one answer, and a loss that may be of the day limits it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.core.worlds import log, seal_of, span
from tests.report.samples import DAY, audit, complete, log_plan, make_plan, make_run, outcome, summary
from tidemark.core.day_summary import summarise
from tidemark.core.plan import Gap, Hole, LogPlan, Neighbours, Plan, Truncation
from tidemark.core.seal import Seal, SealedLog
from tidemark.definitions.sections import Check
from tidemark.reconcile.audit.checks import CheckOutcome, Expected
from tidemark.reconcile.report.history import DaysBefore
from tidemark.reconcile.report.index import index_rows
from tidemark.reconcile.report.report import make_report

NOON = 1_358_355_600_000_000  # of the day, in New York
HOUR, WEEK = 3_600_000_000, 7 * 86_400_000_000
ONCE = "Every offset is accounted for, exactly once."
COMPLETE = f"{ONCE} All 3 checks passed."
LOST = "Of the offsets that are lost for good, 10 may be of this day."


def lost(**neighbours: int) -> LogPlan:
    around = Neighbours(**neighbours) if neighbours else None
    return log_plan(gaps=(Gap(range=span(3100, 3110), kind="lost", neighbours=around),))


def truncated() -> LogPlan:
    item = log_plan()
    cut = Truncation(log=log(), range=span(3100, 3110), archived=3100, leader_epoch=None)
    return replace(item, target=replace(item.target, truncated=(cut,)))


def use_of(plan: Plan, history: DaysBefore | None = None, **steps: Any) -> tuple[str, str]:
    (found,) = make_report(make_run(), complete(plan, **steps), history=history)["use"]
    return found["answer"], found["because"]


def end_of(item: LogPlan) -> int:
    return max([3100, *(gap.range.end for gap in item.gaps)])


def sealed(plan: Plan) -> Seal:
    """The day's seal with what the plan found."""
    found = tuple(item for log in plan.logs for item in log.target.truncated)
    logs = [
        SealedLog(log=item.target.log, start=0, end=end_of(item), used=item.used, gaps=item.gaps, holes=item.holes)
        for item in plan.logs
    ]
    return replace(seal_of(DAY, logs), truncated=found, quality="passed")


HOLE = Hole(range=span(0, 3000), missing=10, cause="unexplained")
UNDATED = (
    "Of 10 lost offsets no record shows the day. Every other offset is accounted for, exactly once."
    " All 3 checks passed."
)
OTHER_DAYS = (
    "The lost offsets are of other days. Every other offset is accounted for, exactly once. All 3 checks passed."
)


@pytest.mark.parametrize(
    ("item", "answer", "because"),
    [
        (log_plan(), "yes", COMPLETE),
        (lost(before_us=NOON, after_us=NOON + HOUR), "limited", LOST),
        (lost(before_us=NOON), "limited", LOST),
        (lost(), "yes", UNDATED),
        (lost(before_us=NOON - WEEK), "yes", UNDATED),
        (lost(after_us=NOON + WEEK), "yes", UNDATED),
        (truncated(), "yes", UNDATED),
        (lost(before_us=NOON + WEEK, after_us=NOON + WEEK + HOUR), "yes", OTHER_DAYS),
        (
            log_plan(holes=(HOLE,)),
            "limited",
            "Of the offsets up to its end, 10 have no record, and nothing proves why.",
        ),
    ],
    ids=[
        "none",
        "of the day",
        "after the day's last",
        "no time",
        "quiet since",
        "quiet before",
        "end",
        "later",
        "hole",
    ],
)
def test_page_and_index_have_one_answer_and_a_loss_that_may_be_of_the_day_limits_it(
    item: LogPlan, answer: str, because: str
) -> None:
    plan = make_plan(item)
    assert use_of(plan) == (answer, because)
    (row,) = index_rows([summarise(sealed(plan))], DAY)
    assert (row.answer, row.because) == (answer, because if answer == "limited" else "")


def test_a_day_that_stays_as_it_is_has_the_limits_that_its_seal_has() -> None:
    plan = replace(make_plan(), days=(), unchanged=(DAY,))
    none: dict[str, Any] = {"publish": None, "seal": None}
    limited = replace(summary(DAY), version=4, quality="warnings", lost_of_day=7)
    covers = "Its seal already covers everything that was archived."
    for known, answer, because in (
        (summary(DAY), "yes", covers),
        (
            limited,
            "limited",
            f"{covers} {LOST.replace('10', '7')} Checks of severity warning did not pass.",
        ),
    ):
        assert use_of(plan, DaysBefore(unchanged={DAY: known}), **none) == (answer, because)
        assert index_rows([known], DAY)[0].answer == answer
    assert use_of(plan, **none) == ("limited", f"{covers} What else the seal says could not be read.")


def test_checks_that_could_not_be_judged_yet_do_not_count_as_passed() -> None:
    found = audit(DAY)
    check = Check(expectation="expect_row_count_to_match_history", severity="warning")
    new = CheckOutcome(expected=Expected.of(check), day=DAY, success=None, observed=None, without_history=True)
    step = outcome(replace(found, checks=(*found.checks, new, new)), at=6)
    assert use_of(make_plan(), audit=step) == (
        "yes",
        f"{ONCE} 3 checks passed. 2 could not be judged yet, because too few earlier days are sealed.",
    )
