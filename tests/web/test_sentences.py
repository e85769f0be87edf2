"""The sentences of the pages about a stream, a day, a run and the tide, from values alone."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.core.worlds import log, seal_of, sealed_log, span
from tests.web.shown import DAY, LOSS, NOW, last_run, plan_with_loss, status, tide
from tidemark.core.day_summary import DaySummary, summarise
from tidemark.core.loss_text import truncation_text
from tidemark.core.plan import Neighbours, Truncation
from tidemark.inspect.last_run import LastRun
from tidemark.inspect.status_rows import DayRow
from tidemark.pages.causes import run_cause
from tidemark.pages.day_calendar import LEGEND, make_calendar
from tidemark.pages.days import DayRun, day_verdict, run_of_day
from tidemark.pages.needs import stream_needs
from tidemark.pages.part import Part, PartError
from tidemark.pages.render import page
from tidemark.pages.tide import WIDTH, tide_rows, tide_sentence
from tidemark.pages.verdicts import headline, in_order_of_need, verdict
from tidemark.pages.words import sentence, zone_minute

PART: Part[None] = Part()
OF_STREAM: dict[str, Any] = {
    "root": "/base/tidemark",
    "airflow": "/base",
    "stream": "flights",
    "state": "attention",
    "headline": "",
    "description": "",
    "status": PART,
    "needs": (),
    "last_run": None,
    "calendar": PART,
    "runs": PART,
    "tide": PART,
    "rows": (),
    "sentence": "",
    "as_of": "",
    "LEGEND": LEGEND,
    "year": None,
    "asked": {},
}
HOSTILE = "<script>alert(1)</script>\"'&"


def test_a_loss_is_named_in_plain_words_before_the_runs_error() -> None:
    found = run_cause(last_run(), plan_with_loss(), UTC)
    assert found.loss
    (cause,) = found.sentences
    assert cause == (
        "3 offsets of flights-0 are lost: Kafka deleted them before they were archived."
        " They are of unknown time: no record is known on either side."
    )
    assert found.details == (LOSS, "Nothing was published.")


def test_the_loss_of_one_offset_is_named_in_the_singular() -> None:
    unknown = "of unknown time: no record is known on either side"
    error = f"flights-0 [2, 3) lost to retention: 1 offset, {unknown}"
    found = run_cause(last_run("failed", error), plan_with_loss(lost_to=3), UTC)
    how = "Kafka deleted it before it was archived"
    assert found.sentences == (f"1 offset of flights-0 is lost: {how}. It is {unknown}.",)
    error = f"flights-0 [2, 3) lost with its topic, which was deleted or recreated: at most 1 offset, {unknown}"
    found = run_cause(last_run("failed", error), plan_with_loss(lost_to=3, topic_deleted=True), UTC)
    how = "it was deleted with the topic"
    assert found.sentences == (f"At most 1 offset of flights-0 is lost: {how}. It is {unknown}.",)


@pytest.mark.conformance(71)
def test_what_a_log_lost_from_its_end_is_a_loss_that_a_person_may_accept() -> None:
    plan = plan_with_loss()
    lost = Truncation(log=log(), range=span(10, 15), archived=8, leader_epoch=1)
    (own,) = plan.logs
    plan = replace(plan, logs=(replace(own, target=replace(own.target, truncated=(lost,))),))
    found = run_cause(last_run("failed", f"expected no gap, found {truncation_text(lost)} [run run-1]"), plan, UTC)
    assert (found.loss, found.sentences) == (True, (f"{truncation_text(lost)}.",))


def test_a_loss_that_a_seal_has_is_not_the_cause_of_another_failure() -> None:
    run = last_run("failed", "the disk is full: expected 5 GB, found 1 GB [/tmp]. Free some")
    found = run_cause(run, plan_with_loss(neighbours=Neighbours(before_us=1, after_us=2)), UTC)
    assert (found.loss, found.sentences) == (False, ("The disk is full.",))
    assert found.details == run.sentences


def test_the_time_of_a_loss_is_that_of_the_streams_zone_to_the_minute() -> None:
    zone = ZoneInfo("Asia/Kolkata")
    noon = datetime(2013, 1, 15, 12, 0, 59, tzinfo=UTC).timestamp()
    assert zone_minute(int(noon * 1_000_000), zone) == "2013-01-15 17:30 +05:30"
    assert zone_minute(10**18, zone) == "no year from 1 to 9999 (1000000000000000000 µs since 1970)"


def test_problems_are_named_once_without_the_streams_name_and_lead_to_the_day() -> None:
    run = last_run()
    found = stream_needs(
        status("run_failed", "day_overdue", "archive_stale", run=run, overdue=(DAY,)),
        run_cause(run, plan_with_loss(), UTC),
    )
    assert [item.kind for item in found] == ["run_failed", "archive_stale"]  # the failed run explains the missing day
    assert found[0].text.startswith("2013-01-15 failed at step finalize_plan. 3 offsets of flights-0 are lost")
    assert found[0].links == (("Open 2013-01-15", "days/2013-01-15"), ("Report of the run", "runs/run-1"))
    assert (found[1].text, found[1].hint) == ("Something of archive_stale.", "Do this.")


def test_a_day_that_no_run_explains_is_missing_with_a_link() -> None:
    (found,) = stream_needs(status("day_overdue", overdue=(DAY,)))
    assert found.text == "2013-01-15 is missing: not sealed, and the deadline has passed."
    assert found.links == (("Open 2013-01-15", "days/2013-01-15"),)


def test_a_problem_that_a_form_or_a_dag_mends_leads_there() -> None:
    days = [replace(state_of(state), day=date(2013, 1, n)) for n, state in enumerate(("overdue", "unproven"), 14)]
    days = [*days, replace(days[1], day=date(2013, 1, 16), unproven_run="run-1")]
    found = stream_needs(
        replace(status("retention", "day_unproven", "day_not_ours", "archive_stale"), days=tuple(days))
    )
    links = {item.kind: ([path for _, path in item.links], item.dags) for item in found}
    assert links == {
        "retention": (["days/2013-01-14"], ("reconcile_flights",)),
        "day_unproven": (["days/2013-01-16"], ("reconcile_flights",)),
        "day_not_ours": (["days/2013-01-15"], ()),
        "archive_stale": ([], ()),
    }
    (many,) = stream_needs(status("day_overdue", overdue=(DAY, date(2013, 1, 16))))
    assert many.dags == ("tidemark_backfill",)


def test_a_need_links_the_dag_in_airflow_around_the_pages() -> None:
    (need,) = stream_needs(status("retention"))
    text = page("stream", **(OF_STREAM | {"needs": (need,)}))
    assert '<a data-airflow href="/base/dags/reconcile_flights">Open the DAG reconcile_flights</a>' in text


def test_a_run_that_waits_for_a_person_puts_its_stream_on_top_with_a_link() -> None:
    waiting = status("run_failed", run=last_run("waiting", "Failed check: x"), name="delays")
    others = status(name="a"), status("run_failed", name="b", run=last_run())
    found = in_order_of_need([verdict(item, NOW) for item in (*others, waiting)])
    assert [item.stream for item in found] == ["delays", "b", "a"]
    assert (found[0].state, found[0].last_run) == ("attention", waiting.last_run)
    assert headline(waiting) == "2013-01-15 waits for a person's approval."
    (need,) = stream_needs(waiting)
    assert need.links == (("Open 2013-01-15", "days/2013-01-15"),)


def test_streams_without_an_answer_come_after_those_that_need_a_person() -> None:
    kinds = {"a": (), "b": ("unknown",), "c": ("archive_stale",), "d": ("retention", "unknown")}
    found = in_order_of_need([verdict(status(*kinds[name], name=name), NOW) for name in kinds])
    assert [(item.stream, item.state) for item in found] == [
        ("d", "attention"),
        ("c", "attention"),
        ("b", "unknown"),
        ("a", "good"),
    ]


def test_a_day_that_a_loss_stops_says_so_first_and_that_another_run_fails_again() -> None:
    run = last_run()
    found = day_verdict(DAY, (), run, run_cause(run, plan_with_loss(), UTC), zone=UTC, now=NOW)
    assert (found.state, found.loss) == ("attention", True)
    assert found.sentence == "2013-01-15 is missing: its last run failed."
    assert found.more[0].startswith("3 offsets of flights-0 are lost")
    assert found.more[1] == "Every further run fails until a person accepts the loss."
    assert (found.details[0], found.run) == (LOSS, "run-1")


@pytest.mark.parametrize(
    ("hours", "state", "expected"),
    [
        (23, "open", "2013-01-15 is not over. It ends in 1 h."),
        (25, "open", "2013-01-15 is not sealed yet."),
        (31, "attention", "2013-01-15 is missing."),
    ],
)
def test_a_day_without_a_run_is_missing_only_after_its_grace_period(hours: int, state: str, expected: str) -> None:
    now = NOW.replace(day=15, hour=0) + timedelta(hours=hours)
    found = day_verdict(DAY, (), None, None, zone=UTC, now=now)
    assert (found.state, found.sentence) == (state, expected)


@pytest.mark.parametrize(("minute", "state"), [(14, "open"), (16, "attention")])
def test_a_day_is_missing_from_the_deadline_of_its_stream_on(minute: int, state: str) -> None:
    now = NOW.replace(day=16, hour=2, minute=minute)
    assert day_verdict(DAY, (), None, None, zone=UTC, now=now, sealed_by="02:15").state == state


def test_a_day_whose_seals_have_no_answer_is_not_called_missing() -> None:
    assert day_verdict(DAY, None, None, None, zone=UTC, now=NOW).state == "unknown"


def test_another_days_run_says_nothing_of_a_sealed_day() -> None:
    run = last_run(days=(date(2013, 1, 16),))
    seals = (seal_of(DAY, [sealed_log(log(), 0, 10)]),)
    found = day_verdict(DAY, seals, run_of_day(DAY, run, None, None), None, zone=UTC, now=NOW)
    assert (found.state, found.sentence) == ("good", "2013-01-15 is complete.")


def newest_run(state: str, started: datetime = NOW) -> DayRun:
    return DayRun(name="run-1", state=state, started=started)


def test_a_failed_day_keeps_its_cause_after_a_run_of_another_day_has_succeeded() -> None:
    """That run failed before it knew its days, so its report names none."""
    later = replace(last_run("complete", days=(date(2013, 1, 16),)), name="run-2", ended_at=NOW + timedelta(hours=24))
    early = replace(last_run("failed", "Kafka does not answer: expected an answer"), days=())
    found = run_of_day(DAY, later, newest_run("failed"), early)
    assert found is early
    shown = day_verdict(DAY, (), found, run_cause(early, None, UTC), zone=UTC, now=NOW, newest=newest_run("failed"))
    assert (shown.state, shown.sentence) == ("attention", "2013-01-15 is missing: its last run failed.")
    assert shown.more == ("Kafka does not answer.", "It ended 36 h ago and is not sealed.")
    assert (shown.details, shown.run) == (("Kafka does not answer: expected an answer",), "run-1")


def test_the_last_run_of_a_day_may_be_one_of_the_command_line() -> None:
    by_command = replace(last_run(), name="run-2", ended_at=NOW + timedelta(hours=1))
    assert run_of_day(DAY, by_command, newest_run("failed"), last_run()) is by_command
    assert run_of_day(DAY, by_command, newest_run("failed"), None) is by_command
    assert run_of_day(DAY, by_command, newest_run("failed", NOW + timedelta(hours=2)), None) is None
    assert run_of_day(DAY, by_command, None, None) is by_command


def test_a_failed_run_without_a_report_sends_the_reader_to_its_log() -> None:
    found = day_verdict(DAY, (), None, None, zone=UTC, now=NOW, newest=newest_run("failed"))
    assert found.sentence == "2013-01-15 is missing: its last run failed."
    assert found.more[1] == "It saved no report. Its log in Airflow says why: see its run below."


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("running", "2013-01-15 is being rebuilt since 2013-01-17 12:00 UTC."),
        ("queued", "A run of 2013-01-15 is queued since 2013-01-17 12:00 UTC."),
    ],
)
def test_a_day_whose_run_is_under_way_needs_nobody(state: str, expected: str) -> None:
    run = replace(last_run(), name="run-0") if state == "running" else None  # an earlier one, which failed
    cause = run_cause(run, None, UTC) if run else None
    now = NOW if state == "running" else datetime(2013, 1, 16, 0, 30, tzinfo=UTC)  # before the deadline
    found = day_verdict(DAY, (), run, cause, zone=UTC, now=now, newest=newest_run(state))
    assert (found.state, found.sentence, found.run) == ("open", expected, None)


def test_a_run_that_is_queued_after_the_deadline_hides_neither_the_day_nor_the_failure_before() -> None:
    run, later = replace(last_run(), name="run-0"), NOW + timedelta(days=9)
    cause = run_cause(run, None, UTC)
    for before, name in ((run, "run-0"), (None, None)):
        found = day_verdict(DAY, (), before, cause, zone=UTC, now=later, newest=newest_run("queued"))
        queued = "A run of 2013-01-15 is queued since 2013-01-17 12:00 UTC."
        assert (found.state, found.sentence, found.run) == ("attention", queued, name)


def test_a_run_that_a_person_marked_as_failed_asks_nobody_any_more() -> None:
    run = last_run("waiting", "Failed check: x")
    found = day_verdict(DAY, (), run, run_cause(run, None, UTC), zone=UTC, now=NOW, newest=newest_run("failed"))
    assert (found.state, found.sentence) == ("attention", "2013-01-15 is missing: its last run failed.")


def test_a_running_run_that_asks_a_person_waits_for_that_person() -> None:
    run = last_run("waiting", "Failed check: x")
    found = day_verdict(DAY, (), run, run_cause(run, None, UTC), zone=UTC, now=NOW, newest=newest_run("running"))
    assert (found.state, found.sentence) == ("attention", "2013-01-15 waits for a person's approval.")


@pytest.mark.parametrize("verdict", ["waiting", "failed"])
def test_a_run_that_has_sealed_the_day_since_its_report_needs_no_person_for_it(verdict: str) -> None:
    seal, run = seal_of(DAY, [sealed_log(log(), 0, 10)]), last_run(verdict)
    states = {}
    for name in (run.name, "run-2"):
        seals = (replace(seal, run=name),)
        states[name] = day_verdict(DAY, seals, run, run_cause(run, None, UTC), zone=UTC, now=NOW).state
    assert states == {run.name: "good", "run-2": "attention"}


SEALED = summarise(seal_of(DAY, [sealed_log(log(), 0, 10)]))


def state_of(state: str, waiting_max: int = 0) -> DayRow:
    of_seal = ("unproven_run", "version", "published", "quarantined", "checks", "lost", "unexplained", "rolled_back_to")
    return DayRow(day=DAY, state=state, waiting_max=waiting_max, **dict.fromkeys(of_seal))


@pytest.mark.parametrize(
    ("state", "summaries", "known", "run"),
    [
        ("sealed", (SEALED,), state_of("sealed"), None),
        ("amended", (SEALED, replace(SEALED, version=2)), state_of("sealed"), None),
        ("lost", (replace(SEALED, lost=3, lost_of_day=3),), state_of("sealed"), None),
        ("waiting", (SEALED,), state_of("sealed", 7), None),
        ("held_back", (SEALED,), state_of("sealed", 7), last_run("days held back")),
        ("to_approve", (), state_of("unsealed"), last_run("waiting")),
        ("failed", (), state_of("overdue"), last_run()),
        ("missing", (), state_of("overdue"), None),
        ("unproven", (SEALED,), state_of("unproven"), None),
        ("open", (), state_of("unsealed"), None),
        ("quiet", (), state_of("quiet"), None),
        ("none", (), None, None),
    ],
)
def test_each_state_of_a_day_has_a_mark_and_words_in_the_calendar(
    state: str, summaries: tuple[DaySummary, ...], known: DayRow | None, run: LastRun | None
) -> None:
    found = make_calendar(summaries, [known] if known else [], run, today=date(2013, 1, 20), year=None)
    (month,) = found.months  # those before the first known day are left out
    (cell,) = [item for week in month.weeks for item in week if item and item.day == DAY]
    assert cell.state == state
    assert cell.title.startswith("2013-01-15: ")
    if state != "none":
        assert cell.mark == LEGEND[cell.state][0]
        assert dict(found.counts)[cell.state] == 1
    # No two states look the same to those who see no colour.
    assert len({mark for mark, _ in LEGEND.values()}) == len(LEGEND)


@pytest.mark.parametrize(("summaries", "state"), [((), "failed"), ((SEALED,), "sealed")])
def test_a_day_whose_newest_run_failed_is_marked_if_it_is_not_sealed(
    summaries: tuple[DaySummary, ...], state: str
) -> None:
    later = last_run("complete", days=(date(2013, 1, 16),))
    found = make_calendar(summaries, [state_of("overdue")], later, today=date(2013, 1, 20), year=None, failed={DAY})
    assert dict(found.counts) == {state: 1}


def test_a_calendar_of_years_starts_at_its_first_day_and_links_the_years_before() -> None:
    days = [replace(SEALED, day=date(2011, 3, 1) + timedelta(days=n)) for n in range(700)]
    recent = make_calendar(days, [], None, today=date(2013, 1, 31), year=None)
    assert [item.name for item in recent.months][::11] == ["February 2012", "January 2013"]
    assert (recent.earlier, recent.later) == (2012, None)
    first = make_calendar(days, [], None, today=date(2013, 1, 31), year=2011)
    assert (len(first.months), first.earlier, first.later) == (12, None, 2012)


def test_the_tide_of_100_partitions_is_in_order_to_scale_and_names_what_is_short() -> None:
    logs = [tide(n, 1000, 2000, 3000, 4000 + n, 5.0 if n in {7, 40} else 100.0) for n in reversed(range(100))]
    rows = tide_rows(logs, alarm_hours=12)
    assert [row.partition for row in rows] == list(range(100))
    assert [row.partition for row in rows if row.short] == [7, 40]
    assert tide_sentence(rows) == "Kafka will soon delete records of partitions 7, 40 that are not archived."
    assert [(band.kind, band.x, band.width) for band in rows[0].bands] == [
        ("sealed", 0.0, 333.33),
        ("archived", 333.33, 333.33),
        ("waiting", 666.67, 333.33),
    ]
    for row in rows:
        assert sum(band.width for band in row.bands) == pytest.approx(WIDTH, abs=0.05)


def test_what_kafka_deleted_before_it_was_archived_is_drawn_and_named() -> None:
    logs = [replace(tide(3, 3000, 1000, 3500, 4000, 5.0), lost=500), tide(4, 0, 0, 10, 10, None)]
    rows = tide_rows(logs, alarm_hours=12)
    assert [(band.kind, band.x, band.width) for band in rows[0].bands] == [
        ("archived", 0.0, 500.0),
        ("lost", 500.0, 166.67),
        ("archived", 666.67, 166.67),
        ("waiting", 833.33, 166.67),
    ]
    assert (rows[0].unsealed, rows[0].lost, rows[0].waiting) == (2000, 500, 500)
    assert rows[0].text == "500 offsets lost, 2,000 offsets archived and not sealed, 500 offsets not archived"
    assert tide_sentence(rows) == "Kafka deleted records of partition 3 before they were archived: 500 offsets."


def test_a_few_waiting_records_of_billions_stay_visible() -> None:
    (row,) = tide_rows([tide(0, 0, 4_000_000_000, 4_000_000_000, 4_000_000_001, 50.0)], alarm_hours=12)
    widths = {band.kind: band.width for band in row.bands}
    assert widths == {"sealed": 996.0, "waiting": 4.0}
    assert row.text == "0 offsets archived and not sealed, 1 offset not archived"


@pytest.mark.parametrize(
    ("log_start", "sealed", "archived", "end"),
    [(0, None, 0, 0), (5, 0, 2, 9), (0, 5, 3, 4), (7, 7, 7, 7), (0, None, 4, 9)],
)
def test_positions_in_an_odd_order_draw_no_band_outside_the_axis(
    log_start: int, sealed: int | None, archived: int, end: int
) -> None:
    (row,) = tide_rows([tide(0, log_start, sealed, archived, end, None)], alarm_hours=12)
    assert all(0 <= band.x <= band.x + band.width <= WIDTH + 0.01 for band in row.bands)


def test_markup_in_a_description_an_error_or_a_key_stays_text() -> None:
    run = last_run("failed", HOSTILE)
    need = stream_needs(status("run_failed", run=run), run_cause(run, None, UTC))
    hostile = {
        "headline": HOSTILE,
        "description": HOSTILE,
        "needs": need,
        "last_run": replace(run, name=HOSTILE),
        "tide": replace(PART, error=PartError(problem=HOSTILE, found=HOSTILE, where=HOSTILE, hint=HOSTILE)),
        "sentence": HOSTILE,
        "asked": {"partition": HOSTILE, "offset": HOSTILE},
    }
    text = page("stream", **(OF_STREAM | hostile))
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert "\"'&" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the archive is late", "The archive is late."),
        ("time_zone: not a time zone", "time_zone: not a time zone."),
        ("", ""),
    ],
)
def test_a_sentence_begins_with_a_capital_unless_a_key_is_first(text: str, shown: str) -> None:
    assert sentence(text) == shown
