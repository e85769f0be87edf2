"""What the watch announces: each problem's beginning, worsening and end once, whatever happens in between."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.delivery import DayDelivery, HourDelivery, Verdict
from tidemark.core.errors import FormatError
from tidemark.inspect.last_run import LastRun
from tidemark.inspect.problems import KINDS, WATCH_KINDS, Problem
from tidemark.inspect.watch import (
    ALL_STREAMS,
    Announced,
    DeadLetterCount,
    FoundProblem,
    OpenProblem,
    WatchState,
    after_message,
    before_message,
    find_changes,
    next_problems,
    of_notifiers,
    parse_state,
)
from tidemark.inspect.watch_findings import (
    QUIET,
    LastAudit,
    approval_problem,
    audit_lines,
    audit_problem,
    count_dead_letters,
    growth_problem,
)
from tidemark.inspect.watch_message import DETAILS_MAX, Links, write_message
from tidemark_airflow.watch_state import read_state

LINKS = Links(
    page=lambda stream: f"http://air/{stream}",
    day=lambda stream, day: f"http://air/{stream}/{day}",
    docs=lambda page: f"http://docs/{page}",
)
NOTHING = Announced(notifier="mail")
HOUR_US = 3_600_000_000


def found(stream: str, kind: str, *marks: str, text: str = "it is so") -> FoundProblem:
    return FoundProblem(stream=stream, problem=Problem(kind=kind, text=text, hint="do this"), marks=marks)


class Watch:
    """A watch whose state is read from text before each step, as after a restart."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.now_us = 0

    @property
    def state(self) -> WatchState:
        return parse_state(self.text, where="here")

    def check(self, *problems: FoundProblem, unchecked: frozenset[str] = frozenset()) -> None:
        self.now_us += 1
        before = self.state
        after = next_problems(problems, unchecked, before.problems, now_us=self.now_us)
        self.text = replace(before, checked_us=self.now_us, problems=after).to_json()

    def announce(self, notifier: str = "mail", *, killed: bool = False) -> list[tuple[str, str, str]]:
        """What the notifier sends; ``killed`` after it was sent, and before that is saved."""
        state = self.state
        changes = find_changes(state.problems, state.announced_by(notifier))
        if changes:
            self.text = before_message(state, notifier).to_json()
            if not killed:
                self.text = after_message(self.state, notifier).to_json()
        return [(item.change, item.problem.stream, item.problem.kind) for item in changes]


def test_a_problem_is_announced_when_it_begins_and_ends_and_not_in_between() -> None:
    watch, late = Watch(), found("flights", "day_overdue", "2026-11-25")
    sent = []
    for problems in ((), (late,), (late,), (late,), (), ()):
        watch.check(*problems)
        sent.append(watch.announce())
    began, ended = ("began", "flights", "day_overdue"), ("ended", "flights", "day_overdue")
    assert sent == [[], [began], [], [], [ended], []]


def test_another_missing_day_is_worse_and_a_day_that_returns_is_not() -> None:
    watch = Watch()
    days = (("25",), ("25", "26"), ("26",), ("25", "26"), ("25", "26", "27"))
    sent = []
    for marks in days:
        watch.check(found("flights", "day_overdue", *marks))
        state = watch.state
        sent.append([item.marks for item in find_changes(state.problems, state.announced_by("mail"))])
        watch.announce()
    assert sent == [[()], [("26",)], [], [], [("27",)]]


def test_a_question_without_an_answer_is_announced_if_the_next_check_has_none_either() -> None:
    watch, unknown = Watch(), found("flights", "unknown")
    sent = []
    for problems in ((unknown,), (), (unknown,), (unknown,), (unknown,), ()):
        watch.check(*problems, unchecked=frozenset(item.stream for item in problems))
        sent.append(watch.announce())
    assert sent == [[], [], [], [("began", "flights", "unknown")], [], [("ended", "flights", "unknown")]]


def test_no_problem_ends_while_its_stream_or_a_server_does_not_answer() -> None:
    watch, late = Watch(), found("flights", "day_overdue", "25")
    watch.check(late, found("trains", "run_failed"))
    watch.announce()
    watch.check(found("flights", "unknown"), unchecked=frozenset({"flights"}))
    assert watch.announce() == [("ended", "trains", "run_failed")]
    outage = found(ALL_STREAMS, "unknown")
    watch.check(outage, unchecked=frozenset({ALL_STREAMS}))
    watch.check(outage, unchecked=frozenset({ALL_STREAMS}))
    assert watch.announce() == [("began", ALL_STREAMS, "unknown")]
    watch.check()
    assert watch.announce() == [("ended", ALL_STREAMS, "unknown"), ("ended", "flights", "day_overdue")]


def test_a_problem_keeps_its_beginning_while_the_watch_is_restarted() -> None:
    watch = Watch()
    for _ in range(3):
        watch.check(found("flights", "run_failed"))
    assert [(item.since_us, item.checks) for item in watch.state.problems] == [(1, 2)]


def test_a_notifier_that_failed_for_a_while_announces_only_the_difference() -> None:
    watch, failed, stale = Watch(), found("a", "run_failed"), found("b", "archive_stale")
    watch.check(failed)
    assert watch.announce("chat") == watch.announce("mail") == [("began", "a", "run_failed")]
    watch.check(failed, stale)
    watch.check(failed, stale)
    assert watch.announce("chat") == [("began", "b", "archive_stale")]
    watch.check(stale)
    watch.check(found("c", "overflow"))
    assert watch.announce("mail") == [("began", "c", "overflow"), ("ended", "a", "run_failed")]


def test_a_new_notifier_announces_what_is_open_and_a_removed_one_is_forgotten() -> None:
    watch = Watch()
    watch.check(found("a", "run_failed"))
    watch.announce("mail")
    assert watch.announce("chat") == [("began", "a", "run_failed")]
    assert [item.notifier for item in of_notifiers(watch.state, {"chat"}).announced] == ["chat"]


KIND = st.sampled_from(["run_failed", "day_overdue", "unknown"])
STREAM = st.sampled_from(["a", "b"])
MARKS = st.frozensets(st.sampled_from(["1", "2", "3"])).map(sorted).map(tuple)
CHECK = st.lists(st.builds(lambda stream, kind, marks: found(stream, kind, *marks), STREAM, KIND, MARKS), max_size=4)


@given(st.lists(st.tuples(CHECK, st.sampled_from(["sent", "killed after", "killed before"]))))
def test_any_sequence_of_checks_and_kills_leaves_each_reader_with_the_open_problems(
    steps: list[tuple[list[FoundProblem], str]],
) -> None:
    watch, known = Watch(), set[tuple[str, str]]()  # what a reader knows, who gets every message that was sent
    uncertain = False
    for problems, end in steps:
        unanswered = frozenset(item.stream for item in problems if item.problem.kind == "unknown")
        watch.check(*problems, unchecked=unanswered)
        sent = watch.announce(killed=end != "sent")
        for change, stream, kind in () if end == "killed before" else sent:
            key = (stream, kind)
            if not uncertain:  # without a kill nothing is repeated, and nothing ends that was not announced
                assert (key in known) == (change != "began")
            (known.discard if change == "ended" else known.add)(key)
        uncertain = end != "sent" and (uncertain or bool(sent))
        if end == "sent":
            assert watch.announce() == []
            confirmed = {item.key for item in watch.state.problems if item.confirmed}
            assert confirmed <= known <= {item.key for item in watch.state.problems}


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1}'])
def test_a_state_that_does_not_parse_is_an_error(text: str) -> None:
    with pytest.raises(FormatError):
        parse_state(text, where="here")


@pytest.mark.parametrize("text", ["not JSON", '{"format": 1}', '{"format": 2}', '{"format": 1, "problems": 3}'])
def test_the_watch_says_that_its_variable_is_damaged_and_continues_without_it(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_TIDEMARK_WATCH", text)
    assert read_state() == WatchState()
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "[Airflow variable tidemark_watch]" in record.getMessage()
    assert record.getMessage().endswith("this check announces every open problem again.")


def test_a_dead_letter_topic_that_grows_is_a_problem_until_an_hour_of_quiet() -> None:
    def after(before: DeadLetterCount | None, end: int, hours: float, topic_id: str = "t") -> DeadLetterCount:
        return count_dead_letters(before, stream="s", topic_id=topic_id, end=end, now_us=round(hours * HOUR_US))

    hour = QUIET.total_seconds() / 3600
    first = after(None, 100, 0)
    grown = after(first, 103, 1)
    again_grown = after(grown, 110, 1.5)
    assert (first.since_us, grown.since_us, grown.first) == (None, HOUR_US, 100)
    assert (again_grown.since_us, again_grown.first, again_grown.end) == (HOUR_US, 100, 110)
    assert after(again_grown, 110, 1.5 + hour - 0.01) == again_grown
    quiet = after(again_grown, 110, 1.5 + hour)
    assert (quiet.since_us, quiet.first) == (None, 110)
    recreated = after(again_grown, 200, 1.6, topic_id="u")
    assert (recreated.since_us, recreated.first, recreated.topic_id) == (None, 200, "u")


def test_what_to_do_about_dead_letters_needs_no_terminal() -> None:
    grown = DeadLetterCount(stream="flights", topic_id="t", first=0, end=5, since_us=HOUR_US, grew_us=HOUR_US)
    (problem,) = growth_problem(grown)
    assert "start the DAG tidemark_replay, or run 'tidemark replay flights'" in problem.problem.hint


def open_problem(stream: str, kind: str, marks: tuple[str, ...] = (), **more: str) -> OpenProblem:
    texts = {"text": f"{stream}: it is so", "hint": "do this", **more}
    return OpenProblem(stream=stream, kind=kind, since_us=1_764_144_300_000_000, checks=2, marks=marks, **texts)


def waiting(run: str, *days: date) -> FoundProblem:
    return approval_problem(
        "flights",
        LastRun(
            name=run,
            verdict="waiting",
            title=f"{', '.join(map(str, days))}: a person has to approve",
            sentences=("A check of severity warning failed", "More"),
            days=days,
            ended_at=datetime(2026, 11, 26, tzinfo=UTC),
            report="report.html",
        ),
    )


def test_days_that_wait_for_approval_are_named_and_announced_once_per_run() -> None:
    watch, sent, texts = Watch(), [], []
    monday, tuesday = date(2026, 11, 23), date(2026, 11, 24)
    for problems in ([waiting("a", monday, tuesday)], [waiting("a", monday, tuesday)], [waiting("b", monday)], []):
        watch.check(*problems)
        changes = find_changes(watch.state.problems, watch.state.announced_by("mail"))
        texts += [write_message("prod", changes, LINKS).text] if changes else []
        sent.append([change for change, _, _ in watch.announce()])
    assert sent == [["began"], [], ["worse"], ["ended"]]
    assert "flights: 2026-11-23, 2026-11-24: a person has to approve. A check of severity warning failed" in texts[0]
    assert "2026-11-23 in run b" in texts[1]
    assert "http://docs/how-to/approve-a-day" in texts[0]


def test_a_message_says_what_happened_since_when_what_to_do_and_where() -> None:
    problem = open_problem("flights", "day_overdue")
    message = write_message("prod", find_changes([problem], NOTHING), LINKS)
    assert message.subject == "Tidemark prod: problems: 1 began (flights)"
    assert message.text.splitlines() == [
        message.subject,
        "",
        f"flights: day_overdue began. {KINDS['day_overdue']}",
        "  What happened: flights: it is so",
        "  Since: 2025-11-26 08:05 UTC",
        "  What to do: do this",
        "  Runbook: http://docs/runbooks/day-overdue",
        "  Page: http://air/flights",
    ]


@pytest.mark.parametrize(
    ("marks", "linked"),
    [
        (("2026-11-23 in run a", "2026-11-24 in run a", "2026-11-24 in run b"), [24, 23]),
        (tuple(f"2026-11-{day}" for day in range(10, 20)), [19, 18, 17, 16, 15]),
        (("2026-11-23__late__1", "less than 12 h left"), []),
    ],
)
def test_a_message_about_days_links_the_page_of_each(marks: tuple[str, ...], linked: list[int]) -> None:
    problem = open_problem("flights", "approval_waits", marks=marks)
    message = write_message("prod", find_changes([problem], NOTHING), LINKS)
    lines = [line for line in message.text.splitlines() if line.startswith("  Page of")]
    assert lines == [f"  Page of 2026-11-{day}: http://air/flights/2026-11-{day}" for day in linked]


def test_a_message_escapes_what_records_and_servers_said() -> None:
    problem = open_problem("flights", "archive_failed", text="<script>\r\nSubject: x & y")
    message = write_message("<prod>\n", find_changes([problem], NOTHING), LINKS)
    assert "\n" not in message.subject
    assert "<script>" not in message.html
    assert "&lt;script&gt;\\r\\nSubject: x &amp; y" in message.html
    assert '<a href="http://air/flights">http://air/flights</a>' in message.html


def test_one_message_names_fifty_streams_and_details_thirty() -> None:
    problems = [open_problem(f"s{number:02}", "run_failed") for number in range(50)]
    message = write_message("prod", find_changes(problems, NOTHING), LINKS)
    assert message.text.count("What happened") == DETAILS_MAX == 30
    assert all(f"s{number:02}: " in message.text for number in range(50))
    assert len(message.subject) <= 150


def test_every_kind_of_problem_can_be_announced_and_saved() -> None:
    problems = tuple(open_problem("s", kind) for kind in {**KINDS, **WATCH_KINDS})
    message = write_message("prod", find_changes(problems, NOTHING), LINKS)
    assert message.text.count("Runbook: http://docs/") == len(problems)
    state = WatchState(problems=problems)
    assert parse_state(state.to_json(), where="here") == state
    assert json.loads(state.to_json())["format"] == 1


def audit(*days: DayDelivery, error: str | None = None) -> LastAudit:
    return LastAudit(run="scheduled__2013-01-16", days=days, error=error)


def audited(day: int, verdict: Verdict, missing: int = 0) -> DayDelivery:
    counts = {"live": 40, "dead_letters": 2, "pending": 0, "duplicated": 0, "unexpected": 0}
    hours = (
        HourDelivery(hour=9, missing=missing, **counts),
        HourDelivery(hour=10, missing=1 if missing else 0, **counts),
    )
    return DayDelivery(day=date(2013, 1, day), verdict=verdict, sentences=(), archived=100, hours=hours)


def test_days_on_which_the_live_topic_differs_are_a_problem() -> None:
    last = audit(audited(14, "pass"), audited(15, "findings", missing=4), audited(16, "unknown"))
    (problem,) = audit_problem("flights", last)
    assert (problem.stream, problem.problem.kind, problem.marks) == ("flights", "delivery", ("2013-01-15",))
    assert problem.problem.text == "flights: the live topic differs from the table. 2013-01-15: 5 missing."
    assert problem.problem.hint == (
        "See each finding in the report of run scheduled__2013-01-16, or with"
        " 'tidemark delivery flights --from 2013-01-15 --to 2013-01-15'"
    )
    found = "2013-01-14: every record was delivered once; 2013-01-15: 5 missing; 2013-01-16: not certain"
    assert audit_lines({"flights": last, "trains": None}) == [
        f"flights: last delivery audit: {found}",
        "trains: last delivery audit: none yet",
    ]


def test_a_failed_audit_is_a_problem_and_a_passed_one_is_none() -> None:
    (problem,) = audit_problem("flights", audit(error="ServiceError: Kafka is down"))
    assert problem.marks == ("scheduled__2013-01-16",)
    assert problem.problem.text.endswith("scheduled__2013-01-16 failed: ServiceError: Kafka is down")
    assert list(audit_problem("flights", audit(audited(14, "pass"), audited(15, "unknown")))) == []
