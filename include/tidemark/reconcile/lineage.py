"""The lineage of a reconcile run: a job for the run, and one for each step that reads or writes rows.

Every step may work in a process of its own, so the run's id follows from its name. What an event needs of the catalog
is read when it is sent, on another thread.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid4, uuid5

from tidemark.core.days import day_end, day_start
from tidemark.core.errors import TidemarkError
from tidemark.core.masking import failure_text
from tidemark.core.outcome import Attempt, RunStep
from tidemark.lineage.datasets import CheckResult, Column, Dataset, LineageJob, TableFacts, archive, source, table
from tidemark.lineage.emit import configured, emitter
from tidemark.lineage.run_events import Ancestors, JobRun, LineageEvent, State, given_ancestors
from tidemark.reconcile.results import (
    AUDIT,
    PUBLISH,
    REBUILD,
    REFILL,
    ROLLBACK,
    SEAL,
    AuditResult,
    PublishResult,
    RebuildResult,
    RefillResult,
    RollbackResult,
    SealResult,
)
from tidemark.run import Run
from tidemark.tables.reader import load_table

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepData:
    """What a step reads and writes. ``versions`` are the days' new versions."""

    inputs: tuple[Dataset, ...] = ()
    outputs: tuple[Dataset, ...] = ()
    versions: Mapping[date, int] | None = None


@contextmanager
def step_with_lineage(run: Run, step: RunStep[T]) -> Iterator[Attempt[T]]:
    """``run.step``, with the events START, and COMPLETE or FAIL, of the step's job."""
    if not configured():
        with run.step(step) as attempt:
            yield attempt
        return
    whole, seen = _whole(run), None
    own = JobRun(namespace=whole.namespace, name=f"{whole.name}.{step.name}", run_id=str(uuid4()))
    send = partial(_send, run, own, _step_ancestors(run))
    send("START", partial(step_data, run, step, None))
    try:
        with run.step(step) as seen:
            yield seen
    except BaseException as error:
        send("FAIL", partial(step_data, run, step, seen and seen.result), error=failure_text(error))
        raise
    else:
        send("COMPLETE", partial(step_data, run, step, seen.result))
    finally:
        emitter().flush()


def run_started(run: Run, days: Collection[date]) -> None:
    """Send the START of the run as a whole."""
    _send_run(run, "START", days, partial(run_data, run, None, None))


def run_ended(
    run: Run,
    days: Collection[date],
    *,
    error: str | None,
    rebuilt: RebuildResult | None,
    versions: Mapping[date, int] | None,
) -> None:
    """Send how the run as a whole ended, with the versions of the days it has sealed."""
    _send_run(run, "COMPLETE" if error is None else "FAIL", days, partial(run_data, run, rebuilt, versions), error)


def step_data(run: Run, step: RunStep[Any], result: Any) -> StepData:
    """What a step reads and writes, with the counts of its result, if it has one."""
    match step.name:
        case REFILL.name:
            return _refilled(run, result)
        case REBUILD.name:
            return _rebuilt(run, result)
        case AUDIT.name:
            checks = () if result is None else _checks(result)
            return StepData(inputs=tuple(replace(item, checks=checks) for item in _tables(run)[:1]))
        case PUBLISH.name:
            return _published(run, result)
        case SEAL.name:
            return _sealed(run, result)
        case ROLLBACK.name:
            return _rolled_back(run, result)
        case _:
            return StepData()


def _refilled(run: Run, result: RefillResult | None) -> StepData:
    rows, files = (result.rows, result.files) if result else (None, None)
    written = archive(run.stream, run.settings, rows, files)
    return StepData(inputs=(source(run.stream, run.settings),), outputs=(written,))


def _rebuilt(run: Run, result: RebuildResult | None) -> StepData:
    """The rows on the audit branch, and the snapshots that hold them there."""
    if result is None or result.staged is None or result.quarantine is None:
        return StepData(inputs=(archive(run.stream, run.settings),), outputs=_tables(run))
    staged = _by_table(run, result.staged.snapshot, result.quarantine.snapshot)
    read = sum(item.read for item in result.days)
    return StepData(inputs=(archive(run.stream, run.settings, read),), outputs=_tables(run, _rows(run, result), staged))


def _published(run: Run, result: PublishResult | None) -> StepData:
    own, quarantine = (result.snapshot_id, result.quarantine_snapshot_id) if result else (None, None)
    return StepData(outputs=_tables(run, versions=_by_table(run, own, quarantine)))


def _sealed(run: Run, result: SealResult | None) -> StepData:
    versions = None if result is None else {item.day: item.version for item in result.seals}
    return StepData(inputs=_tables(run), versions=versions)


def _rolled_back(run: Run, result: RollbackResult | None) -> StepData:
    if result is None:
        return StepData(outputs=_tables(run))
    counts = _by_table(run, result.rows_published, result.rows_quarantined)
    return StepData(outputs=_tables(run, counts), versions={result.sealed.day: result.sealed.version})


def run_data(run: Run, rebuilt: RebuildResult | None, versions: Mapping[date, int] | None) -> StepData:
    """What the run as a whole reads and writes."""
    return StepData(
        inputs=(source(run.stream, run.settings), archive(run.stream, run.settings)),
        outputs=_tables(run, _rows(run, rebuilt)),
        versions=versions,
    )


def _send(
    run: Run,
    own: JobRun,
    ancestors: Ancestors | None,
    state: State,
    data: Callable[[], StepData],
    *,
    error: str | None = None,
    days: Collection[date] = (),
) -> None:
    now = datetime.now(UTC)

    def make() -> LineageEvent:
        found = data()
        tags = {f"tidemark.version.{day}": str(version) for day, version in (found.versions or {}).items()}
        return LineageEvent(
            state=state,
            time=now,
            run_id=own.run_id,
            job=LineageJob(
                namespace=own.namespace,
                name=own.name,
                about=f"Days of stream {run.stream.name}, rebuilt from its archive, proven and published",
                inputs=found.inputs,
                outputs=found.outputs,
            ),
            ancestors=ancestors,
            error=error,
            span=(day_start(min(days), run.stream.zone), day_end(max(days), run.stream.zone)) if days else None,
            tags={"tidemark.run": run.name, **tags},
        )

    emitter().send(make)


def _send_run(
    run: Run, state: State, days: Collection[date], data: Callable[[], StepData], error: str | None = None
) -> None:
    if not configured():
        return
    given = given_ancestors()
    above = None if given is None or given.root is None else Ancestors(parent=given.root, root=given.root)
    _send(run, _whole(run), above, state, data, error=error, days=days)
    emitter().flush()


def _whole(run: Run) -> JobRun:
    """The run as a whole. Its id is the same in every process."""
    run_id = uuid5(NAMESPACE_URL, f"tidemark:{run.settings.deployment}/{run.stream.name}/{run.name}")
    return JobRun(namespace=run.settings.lineage_namespace, name=f"{run.stream.name}.reconcile", run_id=str(run_id))


def _step_ancestors(run: Run) -> Ancestors:
    """Airflow's task, where it says who it is; else the run as a whole."""
    whole = _whole(run)
    return given_ancestors() or Ancestors(parent=whole, root=whole)


def _by_table(run: Run, own: int | None, quarantine: int | None) -> dict[str, int | None]:
    return {run.stream.table: own, run.stream.quarantine_table: quarantine}


def _rows(run: Run, result: RebuildResult | None) -> Mapping[str, int | None]:
    """Rows by table."""
    if result is None:
        return {}
    days = result.days
    return _by_table(run, sum(item.published for item in days), sum(item.quarantined for item in days))


def _tables(
    run: Run, rows: Mapping[str, int | None] | None = None, versions: Mapping[str, int | None] | None = None
) -> tuple[Dataset, ...]:
    """The published table and the quarantine, those that exist."""
    stream = run.stream
    about = {
        stream.table: f"Published rows of stream {stream.name}, each day complete and without duplicates",
        stream.quarantine_table: f"Records of stream {stream.name} that have no published row, with the reason",
    }
    found = []
    for name, text in about.items():
        facts = _facts(run, name)
        if facts is None:
            continue
        if version := (versions or {}).get(name):
            facts = replace(facts, snapshot=str(version))
        found.append(table(run.settings, name, text, facts, (rows or {}).get(name)))
    return tuple(found)


def _facts(run: Run, name: str) -> TableFacts | None:
    """What the catalog says of a table; None if it does not exist, or can't be read now."""
    with suppress(TidemarkError):
        if (there := load_table(run.settings, name)) is not None:
            snapshot = there.current_snapshot()
            return TableFacts(
                location=there.location(),
                columns=tuple(Column(name=it.name, type=str(it.field_type)) for it in there.schema().fields),
                snapshot=None if snapshot is None else str(snapshot.snapshot_id),
            )
    return None


def _checks(result: AuditResult) -> tuple[CheckResult, ...]:
    """The audit's checks with a verdict. A check of several columns is one of the table."""
    return tuple(
        CheckResult(
            assertion=item.expected.expectation,
            column=item.expected.kwargs.get("column"),
            success=item.success,
            blocks=item.expected.severity == "critical",
        )
        for item in result.checks
        if item.success is not None
    )
