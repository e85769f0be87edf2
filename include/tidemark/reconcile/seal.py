"""Step ``seal``: write each rebuilt day's proof, once; and read seals back."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Literal

from tidemark.core.days import micros
from tidemark.core.errors import ConflictError, IncompleteError, QualityError
from tidemark.core.object_list import ObjectList, day_objects
from tidemark.core.offsets import count
from tidemark.core.plan import DayPlan, LogPlan, Plan
from tidemark.core.seal import Deduplicated, Seal, SealedLog
from tidemark.core.transaction_holes import joined
from tidemark.reconcile.approval import approvals
from tidemark.reconcile.fingerprints import require_same_plan
from tidemark.reconcile.history_rows import sealed_history
from tidemark.reconcile.lease import check_lease
from tidemark.reconcile.lineage import step_with_lineage
from tidemark.reconcile.results import (
    AUDIT,
    FINALIZE_PLAN,
    PLAN,
    PUBLISH,
    REBUILD,
    REFILL,
    SEAL,
    AuditResult,
    SealedVersion,
    SealResult,
    final_plan,
    new_run_hint,
)
from tidemark.run import Run
from tidemark.tables.certificates import add_certificates
from tidemark.tables.day_summaries import add_day_summaries
from tidemark.tables.history import write_history
from tidemark.tables.main_history import LastPublication
from tidemark.tables.seals import previous_digest, read_seal, write_seal
from tidemark.tables.snapshots import shown_days


def seal_run(run: Run) -> tuple[Seal, ...]:
    """One seal per day of the final plan that was published; a day that this run sealed before stays as it is.

    Certificates, summaries and the history follow the seals. If one of them fails, the seals are valid all the same,
    and a repeat of the step writes what is missing.

    Raises IncompleteError where a step before did not succeed or rows are not conserved, QualityError where the audit
    did not pass, ConflictError where another run published or sealed a day meanwhile or holds the stream's lease, or
    where the version before is missing.
    """
    with step_with_lineage(run, SEAL) as attempt:
        plan = final_plan(run)
        days = _published(run, plan)
        objects = {item.day: day_objects(plan.slices, item.day) for item in days}
        made = _seals(run, plan, days, objects) if days else []
        check_lease(run)
        _write_object_lists(run, objects)
        seals = tuple(write_seal(run, seal) for seal in made)
        attempt.result = SealResult(
            seals=tuple(
                SealedVersion(
                    day=item.day,
                    version=item.version,
                    key=run.layout.seal_key(item.day, item.version),
                    sha256=item.digest(),
                )
                for item in seals
            )
        )
        if seals:
            add_certificates(run.settings, run.store, run.layout)
            add_day_summaries(run.store, run.layout, {item.day for item in seals})
            write_history(run.settings, run.stream.name, sealed_history(run, seals))
        return seals


def _published(run: Run, plan: Plan) -> tuple[DayPlan, ...]:
    """The days that the run has published.

    Readers of both tables must see this run's rows of them, made by this very plan, unless the run has sealed them
    before.
    """
    if not plan.days:
        return ()
    rebuilt = run.require(REBUILD)
    require_same_plan(run, plan, rebuilt)
    published = run.require(PUBLISH)
    days = tuple(item for item in plan.days if item.day in published.days)
    shown = shown_days(run.settings, run.stream)
    for item in days:
        there = read_seal(run.store, run.layout, item.day, item.version)
        if item.day not in shown or (there is not None and there.run == run.name):
            continue
        seen = shown[item.day]
        for table, found, own in (
            (run.stream.table, seen.published, published.snapshot_id),
            (run.stream.quarantine_table, seen.quarantine, published.quarantine_snapshot_id),
        ):
            if found is not None:
                _require_own(run, item.day, table, found, expected=(own, rebuilt.inputs))
    return days


def _require_own(run: Run, day: date, table: str, seen: LastPublication, *, expected: tuple[int | None, str]) -> None:
    """Refuse to seal where readers of a table see another snapshot or other inputs than this run's."""
    own, inputs = expected
    if seen.snapshot_id != own:
        raise ConflictError(
            "another run has published the day since",
            expected=f"snapshot {own} of run {run.name}",
            found=f"snapshot {seen.snapshot_id} of run {seen.run}",
            where=f"{table}, {day}",
            hint=new_run_hint(run.stream.name, [day]),
        )
    if seen.inputs != inputs:
        raise ConflictError(
            "the run was rebuilt after it had published",
            expected=f"rows made of {inputs}",
            found=f"rows made of {seen.inputs} in snapshot {seen.snapshot_id}",
            where=f"{table}, {day}",
            hint="Run step 'publish' first",
        )


def _seals(
    run: Run, plan: Plan, days: Sequence[DayPlan], objects: Mapping[date, tuple[ObjectList, bytes]]
) -> list[Seal]:
    rebuilt, audit, published = run.require(REBUILD), run.require(AUDIT), run.require(PUBLISH)
    _require_passed(run, audit, set(days) - set(audit.passed_days(plan)))
    approved = approvals(run)
    refill = run.outcome(REFILL)
    refilled = count(item.range for item in refill.result.ranges) if refill is not None and refill.result else 0
    planned_at = micros(datetime.fromisoformat(run.require(FINALIZE_PLAN).planned_at))
    logs = tuple(_sealed_log(item) for item in plan.logs)
    counts, by = {item.day: item for item in rebuilt.days}, rebuilt.deduplicated_by
    seals = []
    for day in days:
        rows = counts.get(day.day)
        if rows is None:
            raise IncompleteError(
                "a planned day was not rebuilt",
                expected=day.day,
                found=", ".join(map(str, counts)),
                where=run.key(REBUILD.name),
                hint="Run the rebuild, audit and publish steps again",
            )
        difference = rebuilt.difference(day.day)
        seals.append(
            Seal(
                stream=plan.stream,
                day=day.day,
                version=day.version,
                run=run.name,
                time_zone=run.stream.time_zone,
                sealed_at_us=micros(datetime.now(UTC)),
                previous=previous_digest(run, day.day, day.version),
                rows_read=rows.read,
                rows_published=rows.published,
                rows_quarantined=rows.quarantined,
                duplicates_trimmed=rows.duplicates_trimmed,
                refilled_offsets=refilled,
                quality=_quality(audit, day.day),
                snapshot_id=published.snapshot_id,
                quarantine_snapshot_id=published.quarantine_snapshot_id,
                logs=logs,
                reason=day.reason,
                deduplicated=Deduplicated(key=by.key, keep=by.keep, removed=rows.duplicates_removed)
                if by.key
                else None,
                difference=difference.rows if difference else None,
                planned_at_us=planned_at,
                objects=objects[day.day][0],
                last_batches=run.require(PLAN).archive.last_batches,
                approval=approved.get(day.day),
                truncated=tuple(lost for item in plan.logs for lost in item.target.truncated),
            )
        )
    return seals


def _write_object_lists(run: Run, objects: Mapping[date, tuple[ObjectList, bytes]]) -> None:
    """The lists that the seals name; before them, so that no seal names one that is missing."""
    for day, (found, body) in objects.items():
        run.store.put_if_absent(run.layout.object_list_key(day, found.sha256), body, content_type="text/plain")


def _require_passed(run: Run, audit: AuditResult, unfit: set[DayPlan]) -> None:
    if unfit or not audit.passed:
        failed = [item.expected.expectation for item in audit.checks if not item.passes]
        raise QualityError(
            "a day that failed its checks can't be sealed",
            expected="every critical check passed",
            found=", ".join(failed),
            where=run.key(AUDIT.name),
            hint="The run's report shows each check; start a new run of the day once its data or its checks are mended",
            days=tuple(sorted(item.day for item in unfit)),
        )


def _sealed_log(item: LogPlan) -> SealedLog:
    target = item.target
    used, holes = joined(item.used, item.holes)
    return SealedLog(log=target.log, start=target.start, end=target.end, used=used, gaps=item.gaps, holes=holes)


def _quality(audit: AuditResult, day: date) -> Literal["passed", "warnings", "unchecked"]:
    """The verdict on a day that passed; a check of no single day counts for each."""
    checks = [item for item in audit.checks if item.day in {None, day}]
    if not checks:
        return "unchecked"
    return "passed" if all(item.passes for item in checks) else "warnings"
