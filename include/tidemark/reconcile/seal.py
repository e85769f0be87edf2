"""Step ``seal``: write each rebuilt day's proof, once; and read seals back."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Literal

from tidemark.core.days import micros
from tidemark.core.errors import ConflictError, IncompleteError, QualityError
from tidemark.core.plan import DayPlan, LogPlan, Plan
from tidemark.core.seal import Deduplicated, Difference, Seal, SealedLog
from tidemark.core.transaction_holes import joined
from tidemark.reconcile.fingerprints import deduplicated_by, require_same_plan
from tidemark.reconcile.results import new_run_hint, passed_days
from tidemark.run import Run
from tidemark.tables.reader import load_table
from tidemark.tables.seals import previous_digest, read_seal, write_seal
from tidemark.tables.snapshots import last_publication


def seal_run(run: Run) -> tuple[Seal, ...]:
    """One seal per day of the final plan that was published; a day this run sealed before is left as it is.

    Raises IncompleteError where a step before did not succeed or rows are not conserved, QualityError where the audit
    did not pass, ConflictError where another run published or sealed a day meanwhile or the version before is missing.
    """
    with run.step("seal") as out:
        plan = run.plan("settled")
        days = _published(run, plan)
        seals = tuple(write_seal(run, seal) for seal in _seals(run, plan, days)) if days else ()
        out["seals"] = [
            {"day": item.day.isoformat(), "version": item.version, "key": run.layout.seal_key(item.day, item.version)}
            for item in seals
        ]
        return seals


def _published(run: Run, plan: Plan) -> tuple[DayPlan, ...]:
    """The days that the run has published.

    Readers must see this run's rows of them, made by this very plan, unless the run has sealed them before.
    """
    if not plan.days:
        return ()
    rebuilt = run.require("rebuild")
    require_same_plan(run, plan, rebuilt)
    published = run.require("publish")
    days = tuple(item for item in plan.days if item.day.isoformat() in published["days"])
    own = published["snapshot_id"]
    table = load_table(run.settings, run.stream.table)
    for item in days:
        there = read_seal(run.store, run.layout, item.day, item.version)
        seen = None if there is not None and there.run == run.name else last_publication(table, item.day)
        where = f"{run.stream.table}, {item.day}"
        if seen is not None and seen.snapshot_id != own:
            raise ConflictError(
                "another run has published the day since",
                expected=f"snapshot {own} of run {run.name}",
                found=f"snapshot {seen.snapshot_id} of run {seen.run}",
                where=where,
                hint=new_run_hint(plan.stream, [item.day]),
            )
        if seen is not None and seen.inputs != rebuilt["inputs"]:
            raise ConflictError(
                "the run was rebuilt after it had published",
                expected=f"rows made of {rebuilt['inputs']}",
                found=f"rows made of {seen.inputs} in snapshot {seen.snapshot_id}",
                where=where,
                hint="Run step 'publish' first",
            )
    return days


def _seals(run: Run, plan: Plan, days: Sequence[DayPlan]) -> list[Seal]:
    rebuilt, audit, published = run.require("rebuild"), run.require("audit"), run.require("publish")
    planned_at = run.require("settled").get("planned_at")
    refill = run.load("refill") or {}
    refilled = sum(item["end"] - item["start"] for item in refill.get("ranges", []))
    unfit = set(days) - set(passed_days(plan, audit))
    if unfit or not audit["passed"]:
        failed = [item["expectation"] for item in audit["checks"] if not item["success"]]
        raise QualityError(
            "a day that failed its checks can't be sealed",
            expected="every critical check passed",
            found=", ".join(failed),
            where=run.key("audit"),
            hint="The run's report shows each check; start a new run of the day once its data or its checks are mended",
        )
    logs = tuple(_sealed_log(item) for item in plan.logs)
    seals = []
    for day in days:
        rows = rebuilt["days"].get(day.day.isoformat())
        if rows is None:
            raise IncompleteError(
                "a planned day was not rebuilt",
                expected=day.day,
                found=", ".join(rebuilt["days"]),
                where=run.key("rebuild"),
                hint="Run the rebuild, audit and publish steps again",
            )
        seals.append(
            Seal(
                stream=plan.stream,
                day=day.day,
                version=day.version,
                run=run.name,
                time_zone=run.stream.time_zone,
                sealed_at_us=int(datetime.now(UTC).timestamp() * 1_000_000),
                previous=previous_digest(run, day.day, day.version),
                rows_read=rows["read"],
                rows_published=rows["published"],
                rows_quarantined=rows["quarantined"],
                duplicates_trimmed=rows["duplicates_trimmed"],
                refilled_offsets=refilled,
                quality=_quality(audit, day.day),
                snapshot_id=published["snapshot_id"],
                quarantine_snapshot_id=published["quarantine_snapshot_id"],
                logs=logs,
                reason=day.reason,
                deduplicated=_deduplicated(run, rebuilt, rows["duplicates_removed"]),
                difference=difference_of(rebuilt["differences"].get(day.day.isoformat())),
                planned_at_us=None if planned_at is None else micros(datetime.fromisoformat(planned_at)),
            )
        )
    return seals


def difference_of(value: Mapping[str, Any] | None) -> Difference | None:
    """The counts of a difference as the rebuild step saves it."""
    if value is None:
        return None
    return Difference(added=value["added"], removed=value["removed"], changed=value["changed"])


def _deduplicated(run: Run, rebuilt: Mapping[str, Any], removed: int) -> Deduplicated | None:
    key, keep = deduplicated_by(run, rebuilt)
    return Deduplicated(key=key, keep=keep, removed=removed) if key else None


def _sealed_log(item: LogPlan) -> SealedLog:
    used, holes = joined(item.used, item.holes)
    return SealedLog(
        log=item.target.log,
        origin=item.target.origin,
        end=item.target.end,
        used=used,
        gaps=item.gaps,
        holes=holes,
    )


def _quality(audit: Mapping[str, Any], day: date) -> Literal["passed", "warnings", "unchecked"]:
    """What the checks of a day that passed say of it; those of no single day are of each."""
    checks = [item for item in audit["checks"] if item.get("day") in {None, day.isoformat()}]
    if not checks:
        return "unchecked"
    return "passed" if all(item["success"] for item in checks) else "warnings"
