"""What a step's log says to people: first what it is about to do, and at its end what it did.

A text never fails its step: where an earlier step has saved nothing, the step itself says what is missing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.core.days import date_ranges
from tidemark.core.delivery import DELIVERY, DeliveryAudit
from tidemark.core.offsets import count
from tidemark.core.outcome import RunStep
from tidemark.core.plan import Plan
from tidemark.core.text import excerpt
from tidemark.orchestration.steps import LAST_TASK
from tidemark.reconcile.audit.checks import CheckOutcome, observed_text
from tidemark.reconcile.results import (
    AUDIT,
    FINALIZE_PLAN,
    PLAN,
    PUBLISH,
    REBUILD,
    REFILL,
    REPORT,
    ROLLBACK,
    SEAL,
    STEPS,
    WAIT,
    AuditResult,
    FinalizeResult,
    HeldDay,
    PlanResult,
    PublishResult,
    RebuildResult,
    RefillResult,
    RollbackResult,
    SealResult,
    WaitResult,
)

if TYPE_CHECKING:
    from tidemark.run import Run

Lines = Iterator[str]
# Their own modules import Spark.
_REPLAY = RunStep("replay", dict[str, Any])
_MAINTAIN = RunStep("maintain", dict[str, Any])


# What the steps do that need no plan for their text. A stream and a run are named.
_BEGIN = {
    "wait_for_lease": "Take the lease of {stream} for run {run}: one run of a stream works at a time",
    "finalize_plan": "Plan the same offsets of {stream} again: each of them must be archived now",
    "delivery": "Compare the live topic of {stream} with the days that the run has sealed",
    "complete": "Decide how run {run} of {stream} ended",
    "report": "Write the report of run {run} of {stream}",
    "replay": "Process the dead letters of {stream} again, with its present transformation",
    "maintain": "Maintain the archive and the tables of {stream}",
}


def begin_text(step: str, run: "Run") -> str:
    """What the step is about to do, as far as the steps before have planned it."""
    name, plan = run.stream.name, _newest_plan(run)
    days = date_ranges([item.day for item in plan.days]) if plan and plan.days else "no day"
    match step:
        case "refill":
            first = run.outcome(PLAN)
            offsets = count(item.range for item in first.result.refill) if first and first.result else 0
            return f"Fetch {offsets:,} offsets of {run.stream.topic} from Kafka into the archive"
        case "rebuild" if plan:
            objects = len({item.key for item in plan.slices})
            return f"Rebuild {days} of {name} from {objects:,} objects of the archive"
        case "audit" if plan:
            return (
                f"Check {days} of {name}: {len(run.stream.batch.checks)} checks of its definition, and Tidemark's own"
            )
        case "publish" if plan:
            return f"Publish {days} of {name} in one atomic step"
        case "seal" if plan:
            return f"Seal {days} of {name}"
        case _:
            return _BEGIN.get(step, f"Step {step} of {{stream}}, run {{run}}").format(stream=name, run=run.name)


def _newest_plan(run: "Run") -> Plan | None:
    final = run.outcome(FINALIZE_PLAN)
    if final and final.result:
        return final.result.plan
    first = run.outcome(PLAN)
    return first.result.plan if first and first.result else None


def end_lines(step: str, run: "Run") -> Lines:
    """What the step has saved of its work, also where it failed; nothing where it saved nothing.

    The last step saves nothing: the report's verdict is what it decided by.
    """
    if step == LAST_TASK:
        ended = run.outcome(REPORT)
        yield f"Run {run.name}: {ended.result['verdict']['title'] if ended and ended.result else 'it has no report'}"
        return
    known = {item.name: item for item in (*STEPS, REPORT, ROLLBACK, _REPLAY, _MAINTAIN)}
    found = run.outcome(known[step]) if step in _LINES else None
    if found is not None and found.result is not None:
        yield from _LINES[step](found.result)
        yield f"Step {step} took {found.seconds:,.1f} s. Its result: s3://{run.store.bucket}/{run.key(step)}"


def _wait(result: WaitResult) -> Lines:
    state = "has reached" if result.ready else "has not reached"
    rest = "" if result.ready else ": the next steps fetch the missing records from Kafka"
    yield f"After {result.waited_seconds:,.0f} s the archive {state} the end of the days{rest}"


def _plan(result: PlanResult) -> Lines:
    yield from _days(result.plan)
    yield from _gaps(result.plan)
    if result.refill:
        yield f"To refill from Kafka: {count(item.range for item in result.refill):,} offsets"


def _finalize(result: FinalizeResult) -> Lines:
    yield from _days(result.plan)
    yield from _gaps(result.plan)
    yield result.retention.summary


def _days(plan: Plan) -> Lines:
    for item in plan.days:
        yield f"{item.day}: to rebuild as v{item.version} ({item.reason}), {item.archived_rows:,} archived rows"
    if plan.unchanged:
        yield f"Unchanged, so left as sealed: {date_ranges(plan.unchanged)}"
    for late in plan.ignored:
        yield f"{late.day}: at most {late.records_max:,} late records, which do not reopen the day"


def _gaps(plan: Plan) -> Lines:
    found = [(log.target.log, gap) for log in plan.logs for gap in log.gaps]
    for log, gap in found:
        yield f"{log}: {gap.range} is {'lost' if gap.kind == 'lost' else 'missing in the archive'}"
    if not found:
        yield "No gap: every offset is archived"


def _refill(result: RefillResult) -> Lines:
    offsets = count(item.range for item in result.ranges)
    yield f"Fetched {offsets:,} offsets: {result.rows:,} rows in {result.files:,} objects"
    for item in result.lost:
        yield f"{item.log}: {item.range} was lost to retention meanwhile"


def _rebuild(result: RebuildResult) -> Lines:
    for item in result.days:
        yield (
            f"{item.day}: {item.read:,} rows read = {item.published:,} to publish + {item.quarantined:,} quarantined"
            f" + {item.duplicates_removed:,} duplicates removed"
        )
    yield from _held(result.held)


def _audit(result: AuditResult) -> Lines:
    for item in sorted(result.checks, key=lambda item: item.success is True):
        yield f"{_check_state(item):<7} {item.day or 'all days'}  {_check_text(item)}"
    yield from _held(result.held)
    failed = sum(not item.passes for item in result.checks)
    verdict = "may be published" if result.passed else "must not be published"
    yield f"{len(result.checks):,} checks, {failed:,} not passed: the days {verdict}"


def _check_state(item: CheckOutcome) -> str:
    if item.success:
        return "passed"
    if item.without_history:
        return "unknown"
    return "FAILED" if item.blocks else "warning"


def _check_text(item: CheckOutcome) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in item.expected.kwargs.items())
    text = item.expected.about or f"{item.expected.expectation}({excerpt(arguments)})"
    return f"{text}: {item.exception or observed_text(item.observed)}"


def _publish(result: PublishResult) -> Lines:
    days = date_ranges(result.days) if result.days else "no day"
    already = ", by an earlier attempt" if result.already else ""
    yield f"Published: {days}, snapshot {result.snapshot_id}{already}"


def _seal(result: SealResult) -> Lines:
    for item in result.seals:
        yield f"{item.day}: sealed as v{item.version}, {item.key}"
    if not result.seals:
        yield "No day was sealed"


def _delivery(result: DeliveryAudit) -> Lines:
    if result.because is not None:
        yield result.because
    for item in result.days:
        yield f"{item.day}: {item.verdict}, {item.text}"
        yield from item.sentences


def _report(result: dict[str, Any]) -> Lines:
    yield result["verdict"]["title"]
    yield from result["verdict"]["sentences"]


def _rollback(result: RollbackResult) -> Lines:
    sealed = result.sealed
    yield f"{sealed.day}: v{sealed.version} has the {result.rows_published:,} rows of v{result.rolled_back_to} again"


def _replay(result: dict[str, Any]) -> Lines:
    yield (
        f"{result['read']:,} dead letters read = {result['published']:,} to the live topic"
        f" + {result['dead_again']:,} dead again + {result['duplicates']:,} further copies"
        f" + {result['not_ours']:,} not of this stream"
    )
    if result["lost"]:
        yield f"Retention deleted {result['lost']:,} offsets before any replay"


def _maintain(result: dict[str, Any]) -> Lines:
    """What was done: an error ends the sequence, so the rest may be missing."""
    if "uploads_aborted" in result:
        yield (
            f"{len(result['uploads_aborted']):,} unfinished uploads aborted,"
            f" {len(result['objects_unlisted']):,} objects in no manifest"
        )
    for name, done in result["tables"].items():
        yield (
            f"{name}: {done['snapshots_expired']:,} snapshots expired, {done['snapshots_kept']:,} kept,"
            f" {done['files_deleted'] + len(done['orphans_deleted']):,} files deleted"
        )
    if "ledger" in result:
        yield f"Ledger: {result['ledger']['manifests']:,} manifests, {result['ledger']['new']:,} of them new"
    if "compacted" in result:
        small, replaced = result["compacted"], result["replaced"]
        yield (
            f"{small['files']:,} small objects rewritten as {small['files_written']:,};"
            f" {replaced['deleted']:,} replaced objects deleted, {replaced['waiting']:,} wait for their week to end"
        )
        yield from (f"Not compacted: {key}: {because}" for key, because in small["unfit"].items())


def _held(held: Sequence[HeldDay]) -> Lines:
    for item in held:
        yield f"{item.day}: held back, keeps its version: {item.because}"


_LINES: dict[str, Callable[[Any], Lines]] = {
    WAIT.name: _wait,
    PLAN.name: _plan,
    REFILL.name: _refill,
    FINALIZE_PLAN.name: _finalize,
    REBUILD.name: _rebuild,
    AUDIT.name: _audit,
    PUBLISH.name: _publish,
    SEAL.name: _seal,
    DELIVERY.name: _delivery,
    REPORT.name: _report,
    ROLLBACK.name: _rollback,
    _REPLAY.name: _replay,
    _MAINTAIN.name: _maintain,
}
