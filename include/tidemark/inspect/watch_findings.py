"""What one check of the watch finds: every stream's problems, with what its status alone can't say."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from tidemark.core.codec import decode
from tidemark.core.days import micros, moment_text
from tidemark.core.delivery import DELIVERY, DayDelivery, DeliveryAudit
from tidemark.core.errors import ConfigError, FormatError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.text import error_text
from tidemark.definitions.stream import load_stream, misnamed_files, stream_names
from tidemark.inspect.last_run import LastRun
from tidemark.inspect.problems import Problem
from tidemark.inspect.saved_status import save_status
from tidemark.inspect.status import StreamStatus
from tidemark.inspect.watch import ALL_STREAMS, DeadLetterCount, FoundProblem, WatchState
from tidemark.inspect.watch_late import LateDays, find_late_days
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import logs_of, require_kafka
from tidemark.s3 import ObjectStore, require_s3
from tidemark.settings import Settings
from tidemark.tables.main_history import require_catalog

T = TypeVar("T")
# How long a dead-letter topic has to stay as it is until its problem ends.
QUIET = timedelta(hours=1)
RUNWAY_HOURS = (12, 6, 3, 1, 0)
_AT_ONCE = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAudit:
    """A stream's last delivery audit, and the run that made it. ``error`` is why it failed; then it has no days."""

    run: str
    days: tuple[DayDelivery, ...]
    error: str | None

    def __str__(self) -> str:
        if self.error is not None:
            return f"failed in run {self.run}"
        return "; ".join(f"{item.day}: {item.text}" for item in self.days)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one check found. ``unchecked`` are the streams about which a question had no answer."""

    problems: tuple[FoundProblem, ...]
    unchecked: frozenset[str]
    statuses: tuple[StreamStatus, ...] = ()
    dead_letters: tuple[DeadLetterCount, ...] = ()
    audits: Mapping[str, LastAudit | None] = field(default_factory=dict)
    late: tuple[LateDays, ...] = ()


def read_findings(settings: Settings, before: WatchState, now: datetime) -> Findings:
    """Ask about every stream, and save each status. A server that does not answer is one problem, not one per stream.

    Without S3 nothing else is asked: each question would wait for it.
    """
    outages = list(_outages(settings))
    if any(item.problem.text.startswith("S3") for item in outages):
        return Findings(problems=tuple(outages), unchecked=frozenset({ALL_STREAMS}), dead_letters=before.dead_letters)
    names = stream_names(settings.streams_dir)
    statuses = save_status(settings, names, now=now)
    problems = [item for status in statuses for item in of_status(status)]
    problems += [_misnamed(name, error) for name, error in misnamed_files(settings.streams_dir).items()]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="watch") as pool:
        asked = {name: pool.submit(_dead_letters, settings, name, before, now) for name in names}
        audited = {name: pool.submit(read_last_audit, settings, name) for name in names}
        counts = [_answer(name, "dead letters", asked[name].result, problems) for name in names]
        audits = {name: _answer(name, "last delivery audit", audited[name].result, problems) for name in names}
    problems += [item for count in counts if count is not None for item in growth_problem(count)]
    problems += [item for name, audit in audits.items() if audit is not None for item in audit_problem(name, audit)]
    unanswered = {item.stream for item in problems if item.problem.kind in {"unknown", "definition_invalid"}}
    if outages:
        problems = [*outages, *(item for item in problems if item.problem.kind != "unknown")]
    known = {item.stream for item in counts if item is not None}
    kept = (item for item in before.dead_letters if item.stream in unanswered - known)
    return Findings(
        problems=tuple(problems),
        unchecked=frozenset(unanswered),
        statuses=statuses,
        dead_letters=(*(item for item in counts if item is not None), *kept),
        audits=audits,
        late=tuple(_late_days(settings, statuses)),
    )


def _outages(settings: Settings) -> Iterator[FoundProblem]:
    asked: Mapping[str, Callable[[], None]] = {
        "S3": lambda: require_s3(settings),
        "Kafka": lambda: require_kafka(settings.kafka),
        "The catalog": lambda: require_catalog(settings),
    }
    with ThreadPoolExecutor(len(asked)) as pool:
        for name, future in [(name, pool.submit(ask)) for name, ask in asked.items()]:
            if (error := future.exception()) is not None:
                text = f"{name} does not answer, so streams can't be checked: {_found(error)}"
                hint = "Check the server and the connection: 'tidemark doctor' says what is missing"
                yield FoundProblem(stream=ALL_STREAMS, problem=Problem(kind="unknown", text=text, hint=hint))


def _answer(name: str, what: str, ask: Callable[[], T], problems: list[FoundProblem]) -> T | None:
    """The answer; None, and a problem, if there is none."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - one question without an answer must not hide the others
        text = f"Cannot find out the {what} of {name}: {_found(error)}"
        hint = "Check the connection: 'tidemark doctor' says what is missing"
        problems.append(FoundProblem(stream=name, problem=Problem(kind="unknown", text=text, hint=hint)))
        return None


def _found(error: BaseException) -> str:
    return str(error) if isinstance(error, TidemarkError) else error_text(Exception(repr(error)))


def _misnamed(name: str, error: ConfigError) -> FoundProblem:
    problem = Problem(kind="definition_invalid", text=str(error), hint="Rename the file")
    return FoundProblem(stream=name, problem=problem)


def of_status(status: StreamStatus) -> Iterator[FoundProblem]:
    """The problems of one stream's status, with their marks."""
    if status.last_run is not None and status.last_run.verdict == "waiting":
        yield approval_problem(status.stream, status.last_run)
    for problem in status.problems:
        yield FoundProblem(stream=status.stream, problem=problem, marks=_marks(status, problem.kind))


def approval_problem(stream: str, run: LastRun) -> FoundProblem:
    """The run waits for a person. Its title names the days. A further run that asks for them is announced as well."""
    text = f"{stream}: {run.title}. {' '.join(run.sentences[:1])}".rstrip()
    problem = Problem(kind="approval_waits", text=text, hint="Open the day's page, read the report, and answer")
    marks = tuple(f"{day} in run {run.name}" for day in run.days)
    return FoundProblem(stream=stream, problem=problem, marks=marks or (run.name,))


def _marks(status: StreamStatus, kind: str) -> tuple[str, ...]:
    """How bad the problem is: its days, or the limits that the retention runway has crossed."""
    match kind:
        case "day_overdue":
            return tuple(map(str, status.overdue))
        case "day_unproven" | "day_not_ours":
            ours = kind == "day_unproven"
            unproven = (item for item in status.days if item.status == "unproven")
            return tuple(str(item.day) for item in unproven if (item.unproven_run is not None) == ours)
        case "retention":
            left = [item.retention.hours_left for item in status.layers if item.retention is not None]
            hours = min((item for item in left if item is not None), default=0.0)
            return tuple(f"less than {limit} h left" for limit in RUNWAY_HOURS if hours < limit)
        case _:
            return ()


def _late_days(settings: Settings, statuses: Sequence[StreamStatus]) -> Iterator[LateDays]:
    """Of the streams that want their days to reopen at once."""
    for status in statuses:
        try:
            batch = load_stream(status.stream, settings.streams_dir).batch
        except ConfigError:
            continue  # a problem of its own
        late = find_late_days(status.stream, status.days, batch.reopen_days)
        if late is not None and batch.late_data == "as_archived":
            yield late


def _dead_letters(settings: Settings, name: str, before: WatchState, now: datetime) -> DeadLetterCount | None:
    """None for a stream without a dead-letter topic, or with a broken definition, which is a problem of its own."""
    try:
        topic = load_stream(name, settings.streams_dir).speed.dead_letter_topic
    except ConfigError:
        return None
    logs = logs_of(settings.speed_kafka, topic)
    if not logs:
        return None
    end = sum(item.high_watermark for item in watermarks(settings.speed_kafka, logs))
    earlier = next((item for item in before.dead_letters if item.stream == name), None)
    return count_dead_letters(earlier, stream=name, topic_id=logs[0].topic_id, end=end, now_us=micros(now))


def count_dead_letters(
    before: DeadLetterCount | None, *, stream: str, topic_id: str, end: int, now_us: int
) -> DeadLetterCount:
    """The count after a check that found the topic's end at ``end``."""
    quiet = DeadLetterCount(stream=stream, topic_id=topic_id, first=end, end=end, since_us=None, grew_us=None)
    if before is None or before.topic_id != topic_id or end < before.end:
        return quiet
    if end > before.end:
        return replace(before, end=end, since_us=before.since_us or now_us, grew_us=now_us)
    is_over = before.grew_us is None or now_us - before.grew_us >= QUIET // timedelta(microseconds=1)
    return quiet if is_over else before


def growth_problem(count: DeadLetterCount) -> Iterator[FoundProblem]:
    """The problem of a stream whose dead-letter topic grows."""
    if count.since_us is None:
        return
    grown = count.end - count.first
    since = moment_text(count.since_us, UTC)[:16]
    problem = Problem(
        kind="dead_letters",
        text=f"{count.stream}: the dead-letter topic has grown by {grown:,} offsets since {since} UTC",
        hint="Read why in their headers, correct the cause, then start the DAG tidemark_replay, or run"
        f" 'tidemark replay {count.stream}'",
    )
    limits = [10**power for power in range(1, 13)]
    marks = tuple(f"more than {limit:,} offsets" for limit in limits if grown > limit)
    yield FoundProblem(stream=count.stream, problem=problem, marks=marks)


def read_last_audit(settings: Settings, name: str) -> LastAudit | None:
    """The last result of step ``delivery`` or of ``tidemark delivery``; None if there is none.

    Raises FormatError for one that does not parse.
    """
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=name)
    last = store.get(layout.last_delivery_key)
    key = layout.run_key(last.decode(), f"{DELIVERY.name}.json") if last else ""
    body = store.get(key) if last else None
    if last is None or body is None:
        return None
    try:
        outcome = json.loads(body)
        failed, result = outcome["status"] == "failed", outcome["result"]
        days = () if failed else decode(DeliveryAudit, result, where=key).days
        return LastAudit(run=last.decode(), days=days, error=str(outcome["error"]) if failed else None)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError("a delivery audit does not parse", found=repr(error), where=key) from error


def audit_problem(name: str, audit: LastAudit) -> Iterator[FoundProblem]:
    """The problem of a stream whose last audit failed or found something."""
    found = [item for item in audit.days if item.verdict == "findings"]
    if audit.error is not None:
        text = f"{name}: the delivery audit of run {audit.run} failed: {audit.error}"
        hint = f"Correct the cause, then clear task delivery of the run, or run 'tidemark delivery {name}'"
        yield FoundProblem(stream=name, problem=Problem(kind="delivery", text=text, hint=hint), marks=(audit.run,))
    elif found:
        text = f"{name}: the live topic differs from the table. " + " ".join(
            " ".join((f"{item.day}: {item.text}.", *item.sentences)) for item in found
        )
        span = f"--from {found[0].day} --to {found[-1].day}"
        hint = f"See each finding in the report of run {audit.run}, or with 'tidemark delivery {name} {span}'"
        marks = tuple(str(item.day) for item in found)
        yield FoundProblem(stream=name, problem=Problem(kind="delivery", text=text, hint=hint), marks=marks)


def audit_lines(audits: Mapping[str, LastAudit | None]) -> Sequence[str]:
    """A line per stream about its last delivery audit, for the log."""
    return [f"{name}: last delivery audit: {audit or 'none yet'}" for name, audit in audits.items()]
