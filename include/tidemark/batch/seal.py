"""Step ``seal``: write each rebuilt day's proof, once; and read seals back."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, Literal

from pyiceberg.table import Table

from tidemark.batch.inputs import deduplicated_by, require_same_plan
from tidemark.batch.tables import LastPublication, last_publication, load_table
from tidemark.batch.verdict import passed_days
from tidemark.core.days import micros
from tidemark.core.errors import ConflictError, IncompleteError, QualityError
from tidemark.core.layout import Layout
from tidemark.core.manifest import digest
from tidemark.core.plan import DayPlan, LogPlan, Plan
from tidemark.core.seal import Deduplicated, Difference, Seal, SealedLog, parse_seal
from tidemark.core.settled import joined
from tidemark.run import Run
from tidemark.s3 import ObjectStore

_READERS = 16


def read_seal(store: ObjectStore, layout: Layout, day: date, version: int) -> Seal | None:
    """One version of a day's seal; None where there is none. ConflictError where the object says another day."""
    key = layout.seal_key(day, version)
    body = store.get(key)
    if body is None:
        return None
    seal = parse_seal(body, where=key)
    if (seal.stream, seal.day, seal.version) != (layout.stream, day, version):
        raise ConflictError(
            "a seal is not what its key says",
            expected=f"{layout.stream} {day} version {version}",
            found=f"{seal.stream} {seal.day} version {seal.version}",
            where=key,
        )
    return seal


def latest_seals(store: ObjectStore, layout: Layout) -> tuple[Seal, ...]:
    """The highest version of every sealed day, by day; behind a rollback also the version that was rebuilt last."""
    versions: dict[date, int] = {}
    for item in store.list(layout.seal_prefix):
        day, version = layout.parse_seal_key(item.key)
        versions[day] = max(version, versions.get(day, 0))
    days = sorted(versions)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="seals") as pool:
        found = pool.map(lambda day: tuple(_down_to_rebuilt(store, layout, day, versions[day])), days)
        return tuple(itertools.chain.from_iterable(found))


def _down_to_rebuilt(store: ObjectStore, layout: Layout, day: date, version: int) -> Iterator[Seal]:
    seal = read_seal(store, layout, day, version)
    if seal is None:
        return
    yield seal
    while seal is not None and seal.rolled_back_to is not None:
        seal = read_seal(store, layout, day, seal.version - 1)
        if seal is not None and seal.rolled_back_to is None:
            yield seal


def day_seals(store: ObjectStore, layout: Layout, day: date) -> tuple[Seal, ...]:
    """Every version of one day's seal, the first one first."""
    keys = (layout.parse_seal_key(item.key) for item in store.list(f"{layout.seal_prefix}{day.isoformat()}/"))
    found = (read_seal(store, layout, day, version) for day, version in keys)
    return tuple(seal for seal in found if seal is not None)


def seals_by_day(store: ObjectStore, layout: Layout, days: Iterable[date]) -> dict[date, tuple[Seal, ...]]:
    """``day_seals`` of many days, several read at once."""
    wanted = tuple(days)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="seals") as pool:
        return dict(zip(wanted, pool.map(partial(day_seals, store, layout), wanted), strict=True))


def unsealed_publication(run: Run, table: Table | None, day: date) -> LastPublication | None:
    """What readers see of a day in the published table where no seal of the day names it; None where one does."""
    seen = last_publication(table, day)
    if seen is None or seen.snapshot_id in {item.snapshot_id for item in day_seals(run.store, run.layout, day)}:
        return None
    return seen


def seal_run(run: Run) -> tuple[Seal, ...]:
    """One seal per day of the settled plan that was published; a day this run sealed before is left as it is.

    Raises IncompleteError where a step before did not succeed or rows are not conserved, QualityError where the audit
    did not pass, ConflictError where another run sealed the day meanwhile or the version before is not there. Where
    readers see other rows of a day, the others are sealed before ConflictError says so.
    """
    with run.step("seal") as out:
        plan = run.plan("settled")
        days, overrun = _published(run, plan)
        seals = tuple(write_seal(run, seal) for seal in _seals(run, plan, days)) if days else ()
        out["seals"] = [
            {"day": item.day.isoformat(), "version": item.version, "key": run.layout.seal_key(item.day, item.version)}
            for item in seals
        ]
        if overrun is not None:
            raise overrun
        return seals


def _published(run: Run, plan: Plan) -> tuple[tuple[DayPlan, ...], ConflictError | None]:
    """The days that the run has published, and what is wrong with another one.

    What readers see of them must be this run's rows, made by this very plan; or it has sealed them before.
    """
    if not plan.days:
        return (), None
    rebuilt = run.require("rebuild")
    require_same_plan(run, plan, rebuilt)
    published = run.require("publish")
    named = published.get("days")  # of an earlier version's run: all
    days = tuple(item for item in plan.days if named is None or item.day.isoformat() in named)
    own = published["snapshot_id"]
    table = load_table(run.settings, run.stream.table)
    left, overrun = [], None
    for item in days:
        there = read_seal(run.store, run.layout, item.day, item.version)
        seen = None if there is not None and there.run == run.name else last_publication(table, item.day)
        where = f"{run.stream.table}, {item.day}"
        if seen is not None and seen.snapshot_id != own:
            overrun = overrun or ConflictError(
                "the day's rows are another publication's by now",
                expected=f"snapshot {own} of run {run.name}",
                found=f"snapshot {seen.snapshot_id} of run {seen.run}",
                where=where,
                hint="Start a new run of the day",
            )
            continue
        left.append(item)
        if seen is not None and seen.inputs != rebuilt["inputs"]:
            raise ConflictError(
                "the run was rebuilt after it had published",
                expected=f"rows made of {rebuilt['inputs']}",
                found=f"rows made of {seen.inputs} in snapshot {seen.snapshot_id}",
                where=where,
                hint="Run step 'publish' first",
            )
    return tuple(left), overrun


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


def previous_digest(run: Run, day: date, version: int) -> str | None:
    """What a seal of this version must chain to: the SHA-256 of the version before; None for version 1."""
    if version == 1:
        return None
    key = run.layout.seal_key(day, version - 1)
    body = run.store.get(key)
    if body is None:
        raise ConflictError(
            "the version before is not sealed",
            expected=key,
            found="no object",
            where=f"run {run.name}",
            hint="Bring that seal back from a copy of the bucket; 'tidemark versions' lists those that are there",
        )
    return digest(body)


def write_seal(run: Run, seal: Seal) -> Seal:
    """Write a seal, once; the one that is there where it says the same. ConflictError where it says something else."""
    key = run.layout.seal_key(seal.day, seal.version)
    if run.store.put_if_absent(key, seal.to_json()):
        return seal
    there = read_seal(run.store, run.layout, seal.day, seal.version)
    if there is None or not _says_the_same(there, seal):
        raise ConflictError(
            "the day is sealed already, by another run or over other rows",
            expected=_summary(seal),
            found="an object that was deleted meanwhile" if there is None else _summary(there),
            where=key,
            hint="Start a new run of the day: it will make the next version if there is anything new",
        )
    return there


def _says_the_same(there: Seal, seal: Seal) -> bool:
    """When a seal was made says nothing of its rows, nor whether ranges in a row are told one by one, as they were."""
    logs = []
    for item in there.logs:
        used, holes = joined(item.used, item.holes)
        logs.append(replace(item, used=used, holes=holes))
    there = replace(there, sealed_at_us=seal.sealed_at_us, planned_at_us=seal.planned_at_us, logs=tuple(logs))
    return there == seal


def _summary(seal: Seal) -> str:
    return f"run {seal.run} with {seal.rows_published} rows in snapshot {seal.snapshot_id}"
