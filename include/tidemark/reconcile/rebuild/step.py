"""The rebuild step: archive slices → the stream's transformation → the plan's days on an audit branch.

The day's rows are read once, in one pass without a shuffle. How many there are to read, the manifests say; only where
they cannot tell a trimmed object's share, its rows are counted by a query of their own. What was written is counted
from Iceberg's metadata. The two counts are independent, so conservation (read = published + quarantined + removed as
duplicates by key) proves that no row was lost on the way, nor by an object that has others than its manifest lists.
Only a stream with a key has its rows read once more before, to find duplicates.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial, reduce
from math import ceil

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.archive.read import Step, as_they_are, read_slices, together
from tidemark.core.errors import IncompleteError, TidemarkError, TransformError
from tidemark.core.offsets import TopicPartition, count
from tidemark.core.plan import LogRange, Plan, Slice
from tidemark.definitions.stream import Stream
from tidemark.reconcile.day_profile import DayProfile
from tidemark.reconcile.fingerprints import plan_fingerprint, rows_fingerprint
from tidemark.reconcile.held_days import days_to_hold_back, without
from tidemark.reconcile.lineage import step_with_lineage
from tidemark.reconcile.rebuild.profile import day_profiles
from tidemark.reconcile.rebuild.recovered import recovered_rows
from tidemark.reconcile.rebuild.row_counts import (
    RowsRead,
    day_counts,
    log_counts,
    require_conserved,
    require_known_days,
)
from tidemark.reconcile.rebuild.version_diff import version_differences
from tidemark.reconcile.results import REBUILD, DeduplicatedBy, HeldDay, RebuildResult, StagedRows, final_plan
from tidemark.run import Run
from tidemark.spark import records
from tidemark.spark.failing_record import with_record
from tidemark.spark.failures import rebuild_error
from tidemark.spark.process import PLATFORM_COLUMNS, classify, code_file, load_transform, process
from tidemark.spark.session import ROWS_PER_TASK, shuffles_for
from tidemark.spark.time_zone import require_same_clocks
from tidemark.tables.columns import DAY, QUARANTINE_SCHEMA, branch_name, identity
from tidemark.tables.deduplicate import Duplicates, find_duplicates, keyed
from tidemark.tables.iceberg import IcebergTable

FILES_MAX = 64
SEARCH_S = 180.0  # for the record that the transformation fails on, among all of the days


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One topic id's rows on their way: ``good`` and ``rejected`` in table form.

    ``raw`` are the good ones as the quarantine has them; ``keyed`` has the columns that identify duplicates by key.
    ``counter`` counts the rows of ``good`` that no manifest counts; None if the manifests count all.
    """

    topic_id: str
    good: DataFrame
    rejected: DataFrame
    raw: DataFrame
    keyed: DataFrame | None
    counter: "_Counter | None"


def write_layout(offsets: int, days: int) -> tuple[int, str]:
    """``(tasks, distribution mode)`` for a rebuild of at most ``offsets`` rows over ``days`` days.

    Each task writes a file per day it meets. While that stays at 64 files or fewer nothing is shuffled; above, rows
    are sent to the task of their day.
    """
    tasks = max(1, ceil(offsets / ROWS_PER_TASK))
    return tasks, "none" if days == 1 or tasks * days <= FILES_MAX else "hash"


def offsets_read(plan: Plan) -> int:
    """How many offsets the plan's slices have: the most rows that its rebuild reads."""
    return count(item.range for item in plan.slices)


def rebuild_run(run: Run, spark: SparkSession) -> None:
    """Write the plan's days to branch ``audit_<run>`` of the published and the quarantine table.

    A day that can't be rebuilt is ``held`` where late records alone have reopened it, and the others are rebuilt again
    without it: readers keep the version they have.

    Raises IncompleteError when rows were lost or multiplied on the way, ConfigError when the transformation breaks
    its contract or no longer fits the table, TransformError when it fails on a record, FormatError when an object of
    the archive is damaged.
    """
    with step_with_lineage(run, REBUILD) as attempt:
        require_same_clocks(spark, run.stream)
        plan = left = final_plan(run)
        by = run.stream.batch.deduplicate
        held: list[HeldDay] = []
        columns_changed: list[str] = []
        while True:
            started = attempt.result = RebuildResult(
                plan=plan_fingerprint(plan),
                inputs=rows_fingerprint(run, left),
                deduplicated_by=DeduplicatedBy(key=tuple(by.key), keep=by.keep),
                held=tuple(held),
                branch=branch_name(run.name) if left.days else None,
            )
            if not left.days:
                return
            try:
                with _as_our_error(run, spark, left), shuffles_for(spark, offsets_read(left), run.spark_sizes):
                    rebuilt = attempt.result = _rebuild(run, spark, left, started, columns_changed)
                    require_conserved(rebuilt)
                    rebuilt = attempt.result = replace(rebuilt, profiles=_profiles(run, spark, rebuilt))
                    attempt.result = _compared(run, spark, left, rebuilt)
            except TidemarkError as error:
                unable = days_to_hold_back(run, left, error)
                if not unable:
                    raise
            else:
                return
            held += unable
            left = without(left, {item.day for item in unable})


def _rebuild(
    run: Run, spark: SparkSession, plan: Plan, result: RebuildResult, columns_changed: list[str]
) -> RebuildResult:
    """Write all days of ``plan``; the result with what was written.

    ``columns_changed`` collects the table's changes over attempts, because the next attempt finds them made.
    """
    branch, days = branch_name(run.name), tuple(item.day for item in plan.days)
    tasks, distribution = write_layout(offsets_read(plan), len(days))
    sources = _sources(run, spark, plan, days)
    table = IcebergTable(spark, run.settings, run.stream.table)
    quarantine = IcebergTable(spark, run.settings, run.stream.quarantine_table)
    keys = [item.keyed for item in sources if item.keyed is not None]
    with find_duplicates(together(keys) if keys else None, run.stream.batch.deduplicate) as duplicates:
        good = duplicates.leave_out(together([item.good for item in sources])).coalesce(tasks)
        columns_changed += [str(item) for item in table.ensure(good.schema, run.stream.renamed)]
        staged = table.stage(branch, good, days, distribution=distribution)
        read = _counted(sources, plan, days)

        aside = None
        if dict(staged.rows) != {day: rows for day, rows in read.days.items() if rows}:
            # Only now is it worth a second pass over the archive: most days have nothing to quarantine.
            aside = _aside(spark, sources, duplicates, run.stream).coalesce(tasks)
        quarantine.ensure(QUARANTINE_SCHEMA, {})
        kept = quarantine.stage(branch, aside, days, distribution=distribution)
    removed = _removed(quarantine, branch, duplicates) if duplicates.days else {}
    require_known_days(days, staged.rows, kept.rows)
    return replace(
        result,
        columns_changed=tuple(columns_changed),
        staged=StagedRows(base=staged.base, snapshot=staged.snapshot),
        quarantine=StagedRows(base=kept.base, snapshot=kept.snapshot),
        files=staged.files,
        days=day_counts(plan, read, staged.rows, kept.rows, removed),
        logs=log_counts(plan, read),
    )


def _profiles(run: Run, spark: SparkSession, rebuilt: RebuildResult) -> tuple[DayProfile, ...]:
    """The profiles of the days, from the rows on the run's branches."""
    branch, days = branch_name(run.name), [item.day for item in rebuilt.days]
    published = IcebergTable(spark, run.settings, run.stream.table).read(branch)
    aside = None
    if any(item.quarantined or item.duplicates_removed for item in rebuilt.days):
        aside = IcebergTable(spark, run.settings, run.stream.quarantine_table).read(branch)
    return day_profiles(published, aside, days, run.stream)


def _compared(run: Run, spark: SparkSession, plan: Plan, rebuilt: RebuildResult) -> RebuildResult:
    """The result with what the new versions change against those before them."""
    versions = {item.day: item.version for item in plan.days}
    table = IcebergTable(spark, run.settings, run.stream.table)
    differences = version_differences(run, table, branch_name(run.name), versions)
    return replace(rebuilt, differences=differences, recovered=recovered_rows(run, spark, versions))


@contextmanager
def _as_our_error(run: Run, spark: SparkSession, plan: Plan) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        code = code_file(run.stream, run.settings.streams_dir)
        cause = rebuild_error(
            error, archive=f"archive of {run.stream.name}", code=code, personal=run.stream.has_personal
        )
        if isinstance(cause, TransformError):
            cause = with_record(cause, spark, plan.spans, partial(_transformed, run, spark, plan), seconds=SEARCH_S)
        raise cause from error


def _transformed(run: Run, spark: SparkSession, plan: Plan, part: LogRange) -> DataFrame:
    """The transformed rows of the plan's days that a part of a log has in the archive."""
    within = partial(_within, day=records.day(run.stream), days=tuple(item.day for item in plan.days))
    rows = read_slices(spark, run.settings, plan.slices_of(part), lambda _: within)
    return classify(rows, run.stream, load_transform(run.stream, run.settings.streams_dir))


def _sources(run: Run, spark: SparkSession, plan: Plan, days: tuple[date, ...]) -> list[Source]:
    """One source per topic id among the slices; an empty one where the plan reads nothing."""
    transform = load_transform(run.stream, run.settings.streams_dir)
    day = records.day(run.stream)
    topic_ids = sorted({item.log.topic_id for item in plan.slices})
    wanted = run.stream.batch.deduplicate
    within = partial(_within, day=day, days=days)
    sources = []
    for topic_id in topic_ids or [""]:
        slices = [item for item in plan.slices if item.log.topic_id == topic_id]
        counter = _Counter(day, days, slices) if not all(item.counted for item in slices) else None
        read = partial(read_slices, spark, run.settings, slices)
        processed = process(read(_step(days, within, counter.within if counter else within)), run.stream, transform)
        second = process(read(_step(days, within, within)), run.stream, transform).good if wanted.key else None
        lineage = identity(day, topic_id)
        columns = [F.col(f"`{name}`") for name in processed.good.columns if name not in PLATFORM_COLUMNS]
        sources.append(
            Source(
                topic_id=topic_id,
                good=processed.good.select(*lineage, *columns),
                rejected=processed.rejected.select(*lineage, "reason", "source.key", "source.value"),
                raw=processed.good.select(*lineage, "source.key", "source.value"),
                keyed=None if second is None else keyed(second.select(*lineage, *columns), wanted),
                counter=counter,
            )
        )
    return sources


def _within(rows: DataFrame, day: Column, days: Sequence[date]) -> DataFrame:
    return rows.where(day.isin(list(days)))


def _step(days: Sequence[date], within: Step, part: Step) -> Callable[[Slice], Step]:
    """What slices' rows go through: those that no manifest counts ``part``, others ``within`` if they have more days.

    Computing the day costs time per row. A row of another day than its manifest says still stops the rebuild: it is
    staged on a day that is not one of the run's.
    """

    def step(item: Slice) -> Step:
        if not item.counted:
            return part
        return as_they_are if all(found.day in days for found in item.rows) else within

    return step


class _Counter:
    """Counts the rows of some days that no manifest does, in trimmed objects, per day and per partition.

    Not while they pass: Spark reads only what its result needs. For a transformation that leaves no row it may read
    none, and an observation then never ends (SPARK-54620). For one with a limit it reads too few.
    """

    def __init__(self, day: Column, days: Sequence[date], slices: Sequence[Slice]) -> None:
        self._day, self._days = day, tuple(days)
        self._partitions = tuple(sorted({item.log.partition for item in slices if not item.counted}))
        self._rows: DataFrame | None = None

    def within(self, rows: DataFrame) -> DataFrame:
        """The rows of the days, which are those to count."""
        self._rows = _within(rows, self._day, self._days)
        return self._rows

    def counted(self) -> tuple[dict[date, int], dict[int, int]]:
        """Rows per day and per partition: a query over no more columns than that takes."""
        assert self._rows is not None
        counts = [F.count_if(self._day == item) for item in self._days]
        counts += [F.count_if(F.col("partition") == item) for item in self._partitions]
        found = self._rows.agg(*counts).collect()[0]
        at = len(self._days)
        return (dict(zip(self._days, found[:at], strict=True)), dict(zip(self._partitions, found[at:], strict=True)))


def _aside(spark: SparkSession, sources: list[Source], duplicates: Duplicates, stream: Stream) -> DataFrame:
    """The rows of the quarantine: the rejected ones, and the duplicates by key with the record that was kept."""
    frames = [item.rejected for item in sources]
    reason = F.lit(f"duplicate by key ({', '.join(stream.batch.deduplicate.key)})")
    for item in sources:
        found = duplicates.pick(item.raw)
        if found is not None:
            frames.append(found.withColumn("reason", reason))
    empty = records.no_rows(spark, QUARANTINE_SCHEMA)
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames, empty)


def _removed(quarantine: IcebergTable, branch: str, duplicates: Duplicates) -> dict[date, int]:
    """Duplicates by key that were written to the quarantine's branch, per day; all that were found, or an error."""
    own = quarantine.read(branch).where(F.col(DAY).isin(list(duplicates.days)) & F.col("kept_offset").isNotNull())
    removed = {row[DAY]: row["count"] for row in own.groupBy(DAY).count().collect()}
    if removed != duplicates.days:
        found, expected = (
            ", ".join(f"{n} of {day}" for day, n in sorted(item.items())) for item in (removed, duplicates.days)
        )
        raise IncompleteError(
            "duplicates by key are not all in the quarantine",
            expected=f"{expected} found in the archive",
            found=f"{found or 'none'} written",
            hint="A transformation must give the same rows whenever it is asked: no clock and no random number",
        )
    return removed


def _counted(sources: list[Source], plan: Plan, days: tuple[date, ...]) -> RowsRead:
    """The rows by the manifests, and by a count of their own where a manifest does not say."""
    per_day: Counter[date] = Counter(dict.fromkeys(days, 0))
    per_log: Counter[TopicPartition] = Counter({item.target.log: 0 for item in plan.logs})
    for item in plan.slices:
        for found in item.rows if item.counted else ():
            if found.day in days and found.rows is not None:
                per_day[found.day] += found.rows
                per_log[item.log] += found.rows
    logs = {(item.log.topic_id, item.log.partition): item.log for item in plan.slices}
    for source in sources:
        if source.counter is not None:
            of_days, of_partitions = source.counter.counted()
            per_day.update(of_days)
            per_log.update({logs[source.topic_id, at]: rows for at, rows in of_partitions.items()})
    return RowsRead(days=per_day, logs=per_log)
