"""Copies of the same offsets that a changed key puts on different days: what plans refuse, move and leave alone."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.batch.logs import MONDAY, TUESDAY, ZONE, Log, at
from tests.batch.objects import archive_rows
from tests.batch.test_seal import finish
from tests.command_json import valid_result
from tests.core.worlds import span
from tidemark.archive.ledger.ledger import read_archived
from tidemark.cli.app import app
from tidemark.core.errors import ConflictError, RequestError
from tidemark.core.manifest import digest
from tidemark.core.planner import Preference
from tidemark.current_view.plan import PublishedDay, day_spans, plan_current
from tidemark.current_view.view import as_sealed
from tidemark.definitions.sections import FieldTime
from tidemark.objects import days as object_days
from tidemark.reconcile.plan.day_copies import rollback_conflicts
from tidemark.reconcile.plan.step import finalize_plan_run, plan_run
from tidemark.reconcile.results import PLAN
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.tables.seals import day_seals
from tidemark.verify.archive import ArchiveReader
from tidemark.verify.claims import read_claims
from tidemark.verify.day_copies import SealedCopies, verify_stream
from tidemark.verify.result import ProofPart

pytestmark = pytest.mark.conformance(68)

THURSDAY = TUESDAY + timedelta(days=2)
OLD = (TUESDAY,) * 10  # five values are too far from their timestamps, which then count
NEW = (*((TUESDAY,) * 5), *((THURSDAY,) * 5))


def with_distance(log: Log, days: int) -> None:
    """The stream has its event time from a field, at most so many days from the timestamp."""
    wanted = FieldTime(extractor="record_field", field="$.at", max_distance_days=days)
    log.stream = log.stream.model_copy(update={"event_time": wanted})


def archive_days(log: Log, writer: str, days: Sequence[date], *, start: int = 0, settings: str | None = "") -> None:
    """Commit a copy of the offsets from ``start`` on: rows of these days, by the stream's keys or by others."""
    owner, span_of_all = log.owner(), span(start, start + len(days))
    batch = sum(item.writer == writer for item in log.manifests())
    noon = [datetime(day.year, day.month, day.day, 12, tzinfo=ZONE).astimezone(UTC) for day in days]
    nothing: dict[str, Any] = {"topic": owner.topic, "partition": 0, "timestamp_type": 0, "key": None, "headers": []}
    rows = [
        {**nothing, "value": None, "offset": start + number, "timestamp": time, "event_time": time}
        for number, time in enumerate(noon)
    ]
    _, made = archive_rows(
        log.store, log.layout, ZONE, writer=writer, batch=batch, log=owner, span=span_of_all, rows=rows
    )
    before = [item for item in log.manifests() if item.writer == writer]
    manifest = replace(
        made,
        files=tuple(replace(file, checksum=f"by {writer}") for file in made.files),
        previous=digest(before[-1].to_json()) if before else None,
        day_settings=log.stream.day_settings if settings == "" else settings,
    )
    assert log.store.put_if_absent(log.layout.manifest_key(writer, batch), manifest.to_json())


def seal(log: Log, name: str, *days: date, rows: dict[date, int], reassign: bool = False, force: bool = False) -> Run:
    run = log.run(name)
    plan_run(run, days, force, reassign_days=reassign)
    finalize_plan_run(run)
    finish(run, rows)
    seal_run(run)
    return run


def outage(log: Log, first: Sequence[date] = OLD, then: Sequence[date] = NEW, keys: tuple[int, int] = (1, 30)) -> None:
    """The story: a refill and its seal, a changed key, and the stream that archives the same offsets again."""
    log.produce(10, at(TUESDAY, 12))
    with_distance(log, keys[0])
    archive_days(log, "refill-night", first)
    seal(log, "night", TUESDAY, rows={TUESDAY: sum(day == TUESDAY for day in first)})
    with_distance(log, keys[1])
    archive_days(log, "stream", then)


def used(run: Run) -> list[tuple[str, int, int]]:
    plan = run.require(PLAN).plan
    return [(item.writer, item.range.start, item.range.end) for item in plan.logs[0].used]


def test_a_day_that_would_have_records_of_another_sealed_day_is_refused(log: Log) -> None:
    outage(log)
    run = log.run("thursday")
    with pytest.raises(ConflictError) as caught:
        plan_run(run, [THURSDAY], False)
    text = str(caught.value)
    assert f"5 records of {log.stream.topic}-0 in several sealed days, the first at offset 5" in text
    assert f"{TUESDAY} in batch 0 of refill-night" in text
    assert f"{THURSDAY} in batch 0 of stream" in text
    assert "event_time.max_distance_days=1," in text
    assert "event_time.max_distance_days=30," in text
    assert f"tidemark reconcile {log.stream.name} --from {THURSDAY} --reassign-days" in text
    assert caught.value.days == (TUESDAY, THURSDAY)


def test_a_day_that_would_leave_records_in_no_day_is_refused(log: Log) -> None:
    outage(log, first=NEW, then=OLD, keys=(30, 1))
    with pytest.raises(ConflictError, match=r"5 records of .* in no sealed day, the first at offset 5"):
        plan_run(log.run("thursday"), [THURSDAY], False)


@pytest.mark.parametrize(("first", "then", "keys"), [(OLD, NEW, (1, 30)), (NEW, OLD, (30, 1))])
def test_reassigned_days_are_planned_together_and_later_plans_use_the_same_copies(
    log: Log, first: Sequence[date], then: Sequence[date], keys: tuple[int, int]
) -> None:
    outage(log, first, then, keys)
    moved = seal(log, "moved", THURSDAY, rows={TUESDAY: 5, THURSDAY: 5}, reassign=True)
    saved = moved.require(PLAN)
    assert [(item.day, item.version, item.reason) for item in saved.plan.days] == [
        (TUESDAY, 2, "requested"),
        (THURSDAY, 1, "requested"),
    ]
    assert (saved.requested, saved.reassigned) == ((THURSDAY,), (TUESDAY,))
    assert used(moved) == [("stream", 0, 10)]
    assert verify_stream(log.settings, log.stream.name).verdict == "proven"
    for days in (keys[1], 400):  # the key that both days have now, and a third one
        with_distance(log, days)
        quiet = log.run(f"quiet-{days}")
        assert plan_run(quiet, [THURSDAY], False).days == ()
        assert [item.day for item in plan_run(quiet, [THURSDAY], True).days] == [THURSDAY]
        assert used(quiet) == [("stream", 0, 10)]


def test_the_current_view_has_a_record_once_while_copies_disagree(log: Log) -> None:
    outage(log)
    parts = read_archived(log.store, log.layout, log.stream)
    tables, history = [*(item.tables for item in parts.segments), *parts.tables], parts.history()

    def days(prefer: Preference) -> list[date]:
        found = plan_current(
            stream=log.stream.name,
            history=history,
            spans=day_spans(tables),
            published={TUESDAY: PublishedDay(ranges={log.owner(): (span(0, 10),)}, sealed=None)},
            conflicts={},
            prefer=prefer,
        )
        return [item.day for item in found.archive_parts]

    assert days(Preference(day_settings=log.stream.day_settings)) == [THURSDAY]  # a second time
    assert days(as_sealed(log.store, log.layout, history, log.stream.day_settings)) == []


def test_a_version_from_before_records_moved_does_not_come_back(log: Log) -> None:
    outage(log)
    seal(log, "moved", THURSDAY, rows={TUESDAY: 5, THURSDAY: 5}, reassign=True)
    run = log.run("back")
    first, second = day_seals(log.store, log.layout, TUESDAY)
    (found,) = rollback_conflicts(run, first)
    assert (found.offset, found.records, found.twice, found.days) == (5, 5, True, (TUESDAY, THURSDAY))
    assert rollback_conflicts(run, second) == ()


def test_all_days_together_show_a_record_in_two_days_with_both_days_seals_and_settings(log: Log) -> None:
    outage(log)
    key = log.layout.manifest_key("refill-night", 0)
    body = log.store.get(key)
    assert body is not None
    log.store.delete(key)  # as if no plan had compared the copies
    seal(log, "thursday", THURSDAY, rows={THURSDAY: 5})
    log.store.put(key, body)
    (check,) = verify_stream(log.settings, log.stream.name).checks
    (found,) = check.differences
    assert found.where == f"{log.stream.topic}-0, offset 5"
    assert "5 records" in found.found
    assert f"sealed: {TUESDAY} version 1, {THURSDAY} version 1" in found.found
    assert "event_time.max_distance_days=1," in found.found
    for day in (TUESDAY, THURSDAY):  # each of them by itself, too
        sealed, parts = ProofPart(name="seal"), [ProofPart(name=name) for name in ("manifests", "objects", "copies")]
        claims = read_claims(log.store, log.layout, log.stream.time_zone, day, None, check=sealed)
        assert claims.seal is not None
        archive = ArchiveReader(log.store, log.layout, day, ZONE).derive(
            claims.basis, parts[0], parts[1], lambda _: None
        )
        copies = SealedCopies(store=log.store, layout=log.layout, zone=ZONE, check=parts[2], progress=lambda _: None)
        copies.compare_day(claims.seal, archive, latest=True)
        assert [item.where for item in parts[2].differences] == [f"{log.stream.topic}-0, offset 5"]


def test_without_a_second_copy_a_changed_key_counts_for_what_comes_and_nothing_is_read(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.produce(10, at(TUESDAY, 12))
    with_distance(log, 1)
    archive_days(log, "stream", OLD)
    seal(log, "night", TUESDAY, rows={TUESDAY: 10})
    log.produce(10, at(TUESDAY, 13))
    with_distance(log, 30)
    archive_days(log, "stream", NEW, start=10)
    monkeypatch.setattr(object_days, "object_batches", None)
    run = seal(log, "next", THURSDAY, rows={TUESDAY: 15, THURSDAY: 5})
    assert used(run) == [("stream", 0, 10), ("stream", 10, 20)]
    found = verify_stream(log.settings, log.stream.name)
    assert (found.verdict, found.days, found.waiting) == ("proven", 2, 0)


def test_rows_that_no_seal_has_are_counted_and_a_stray_object_is_a_difference(log: Log) -> None:
    log.produce(10, at(TUESDAY, 12))
    with_distance(log, 30)
    archive_days(log, "stream", OLD)
    seal(log, "night", TUESDAY, rows={TUESDAY: 10})
    log.produce(10, at(TUESDAY, 13))
    archive_days(log, "stream", NEW, start=10)  # five late rows, and five of a day without a seal
    found = verify_stream(log.settings, log.stream.name)
    assert (found.verdict, found.days, found.waiting) == ("proven", 1, 10)
    (*_, last) = (item for item in log.manifests() if item.writer == "stream")
    stray = replace(last, ranges=(replace(last.ranges[0], range=span(10, 21)),))
    log.store.put(log.layout.manifest_key("stream", last.batch), stray.to_json())
    found = verify_stream(log.settings, log.stream.name)
    assert found.verdict == "disproven"
    (problem,) = found.checks[0].differences
    assert problem.what == "a file's range is not one its manifest commits"


def test_a_lost_checkpoint_with_unchanged_keys_costs_no_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.produce(10, at(TUESDAY, 12))
    with_distance(log, 30)
    archive_days(log, "query-a", NEW)
    seal(log, "night", TUESDAY, rows={TUESDAY: 5})
    archive_days(log, "query-b", NEW)
    monkeypatch.setattr(object_days, "object_batches", None)
    assert [item.day for item in plan_run(log.run("thursday"), [THURSDAY], False).days] == [THURSDAY]


@pytest.mark.parametrize(("then", "refused"), [(NEW, True), (OLD, False)])
def test_copies_from_before_the_day_settings_are_compared_by_their_rows(
    log: Log, then: Sequence[date], refused: bool
) -> None:
    log.produce(20, at(TUESDAY, 12))
    with_distance(log, 30)
    archive_days(log, "query-a", OLD, settings=None)
    archive_days(log, "query-a", NEW, start=10, settings=None)
    seal(log, "night", TUESDAY, rows={TUESDAY: 15})
    archive_days(log, "query-b", then)
    run = log.run("thursday")
    if refused:
        with pytest.raises(ConflictError, match=r"\(settings unknown\)"):
            plan_run(run, [THURSDAY], False)
    else:
        assert [item.day for item in plan_run(run, [THURSDAY], False).days] == [THURSDAY]


def test_a_late_day_that_may_keep_its_version_is_not_rebuilt_beside_a_day_that_takes_its_records(log: Log) -> None:
    outage(log)
    log.produce(1, at(TUESDAY, 13))
    archive_days(log, "stream", (TUESDAY,), start=10)  # this run rebuilds Tuesday too, from the same copy
    with pytest.raises(ConflictError):  # but Tuesday could be held back while Thursday is published
        plan_run(log.run("thursday"), [THURSDAY], False)
    moved = plan_run(log.run("moved"), [THURSDAY], False, reassign_days=True)
    assert [(item.day, item.reason) for item in moved.days] == [(TUESDAY, "requested"), (THURSDAY, "requested")]


def test_copies_that_are_archived_between_plan_and_refill_are_compared_too(log: Log) -> None:
    log.produce(10, at(TUESDAY, 12))
    with_distance(log, 1)
    archive_days(log, "refill-night", OLD)
    seal(log, "night", TUESDAY, rows={TUESDAY: 10})
    with_distance(log, 30)
    run = log.run("thursday")
    assert [item.day for item in plan_run(run, [THURSDAY], False).days] == [THURSDAY]
    archive_days(log, "stream", NEW)
    with pytest.raises(ConflictError, match=r"5 records of .*in several sealed days"):
        finalize_plan_run(run)


def test_the_command_prints_the_verdict_on_all_days_and_ends_with_its_code(log: Log) -> None:
    runner = CliRunner()
    wanted = ["verify", log.stream.name, "--all"]
    assert runner.invoke(app, wanted).exit_code == 2  # no day is sealed
    outage(log)
    shown = runner.invoke(app, wanted)
    assert (shown.exit_code, "all 1 sealed day together: proven" in shown.stdout) == (0, True), shown.output
    assert "At most 5 archived rows are late, or of days that are not sealed" in shown.stdout
    key = log.layout.seal_key(TUESDAY, 1)
    log.store.put(key, b"{}")
    shown = runner.invoke(app, [*wanted, "--json"])
    assert shown.exit_code == 1
    value = valid_result("verify", shown.stdout)
    assert (value["verdict"], value["checks"][0]["total"]) == ("disproven", 1)


def test_no_sealed_day_is_a_wrong_request_for_all_days(log: Log) -> None:
    with pytest.raises(RequestError, match="no day of the stream is sealed"):
        verify_stream(log.settings, log.stream.name)


def test_a_wrong_day_does_not_hide_in_rows_of_days_that_are_not_sealed(log: Log) -> None:
    log.produce(10, at(MONDAY, 12))
    with_distance(log, 30)
    archive_days(log, "stream", (*((MONDAY,) * 7), *((TUESDAY,) * 3)))
    seal(log, "night", MONDAY, rows={MONDAY: 7})
    found = verify_stream(log.settings, log.stream.name)
    assert (found.verdict, found.days, found.waiting) == ("proven", 1, 3)
